"""What tests/conftest.py leaves out over ssh is there, and each has a reason."""

from tests.conftest import LEFT_OUT, ROOT


def test_each_entry_names_a_file_or_a_test_of_it() -> None:
    """One that was renamed would be run, or be listed for nothing."""
    for entry, reason in LEFT_OUT.items():
        file, _, name = entry.partition("::")
        assert f"def {name}" in (ROOT / file).read_text(encoding="utf-8"), entry
        assert reason, entry
