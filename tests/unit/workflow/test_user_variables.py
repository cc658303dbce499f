"""What a .env file says, and lock files: pure readers."""

import pytest

from rv.errors import RvError
from rv.workflow.lock_file import find_lock_file, requirements_kind
from rv.workflow.user_variables import parse_dotenv, why_unfit


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("A=1", {"A": "1"}), ("export A=1", {"A": "1"}), ("  A = 1  ", {"A": "1"}), ("A=", {"A": ""}),
        ("A=x # y", {"A": "x"}), ("A='x # y'", {"A": "x # y"}), ('A="x\\ny"', {"A": "x\ny"}),
        ("A='it' # is", {"A": "it"}), ("A=$(id)", {"A": "$(id)"}), ("A=x=y", {"A": "x=y"}),
        ('A="x" # say "y"', {"A": "x"}), ("A='x' # it's", {"A": "x"}), ('A="a\\\\nb"', {"A": "a\\nb"}),
        ("# A=1", {}), ("", {}), ('A="say \\"hi\\""', {"A": 'say "hi"'}),
    ],
)  # fmt: skip
def test_a_line_of_a_dotenv_file(line: str, found: dict[str, str]) -> None:
    """Quotes as in a shell; nothing is expanded."""
    assert parse_dotenv([line]) == found


@pytest.mark.parametrize("line", ["s3cret", "A='s3cret", 'A="s3cret', "A='s3' cret"])
def test_a_line_that_is_none_is_named_by_its_number_alone(line: str) -> None:
    """It may be a secret."""
    with pytest.raises(ValueError, match="line 2 ") as caught:
        parse_dotenv(["A=1", line])
    assert "s3" not in str(caught.value)


def test_a_value_that_no_program_can_have() -> None:
    """A NUL, and more than Linux takes."""
    assert why_unfit("a\0b")
    assert why_unfit("x" * (128 << 10))
    assert not why_unfit("a\nb" * 1000)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("six==1.17.0", "plain"), ("# -r x\nsix", "plain"), ("six==1 \\\n  --hash=sha256:00", "hashed"),
     ("--index-url https://x/simple\nsix", "plain"), ("ratelimit==1\nclick", "plain"), ("", "plain")],
)  # fmt: skip
def test_requirements_of_their_own(text: str, kind: str) -> None:
    """With hashes and without."""
    assert requirements_kind(text, "requirements.txt") == kind


@pytest.mark.parametrize(
    "text", ["-r x.txt", "six\n  -c x", "-e .", "--editable=x", "./x", "../x", "/x", "file:x", "-rx.txt",
             "x @ file:///y", "x @ ./y"]
)  # fmt: skip
def test_requirements_that_lead_elsewhere(text: str) -> None:
    """The hash would not tell what they install."""
    with pytest.raises(RvError, match="leads to other files"):
        requirements_kind(text, "requirements.txt")


def test_the_key_follows_what_is_installed(tmp_path) -> None:
    """The lock file and the version of Python, and not where they lie."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "requirements.txt").write_text("six==1.17.0\n")
    first, same = (find_lock_file(str(tmp_path / name)).digest for name in ("a", "b"))
    assert first == same
    (tmp_path / "b" / ".python-version").write_text("3.12\n")
    assert find_lock_file(str(tmp_path / "b")).digest != first
    (tmp_path / "b" / ".python-version").write_text("$(reboot)\n")
    with pytest.raises(RvError, match="no version of Python"):
        find_lock_file(str(tmp_path / "b"))
