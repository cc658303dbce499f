"""Databases that are kept for the next sandbox: whole, whoever saves them at the same time."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from rv.sandbox.accounting import restore_database, save_database
from rv.sandbox.records import Record

FILES = 40
AT_ONCE = 6


def test_sandboxes_that_start_together_save_a_whole_database(
    record: Record, tmp_path: Path
) -> None:
    """Several in one process, as the fault suite starts them."""
    records = [replace(record, directory=str(tmp_path / str(n))) for n in range(AT_ONCE)]
    for one in records:
        one.layout.database.mkdir(parents=True)
        for number in range(FILES):
            (one.layout.database / f"table{number}").write_text("rows")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for turn in range(10):
            template = tmp_path / "cache" / str(turn)
            list(pool.map(lambda one, to=template: save_database(to, one), records))
            assert len(list(template.iterdir())) == FILES
    assert sorted(path.name for path in template.parent.iterdir()) == [str(n) for n in range(10)]
    restored = replace(record, directory=str(tmp_path / "new"))
    Path(restored.directory).mkdir()
    assert restore_database(template, restored)
    assert len(list(restored.layout.database.iterdir())) == FILES
