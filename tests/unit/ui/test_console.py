"""Nothing that rv prints can move the cursor, recolour, reorder or ring, whatever it quotes."""

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rv
from rv.errors import ErrorKind, RvError
from rv.ui import console

CONTROL = re.compile(r"[^\n\x20-\x7e\xa1-\U0010ffff]|[\u200b-\u200f\u2028-\u202e\u2060-\u206f]")
TEXT = st.text() | st.lists(
    st.sampled_from(["\x1b[2J", "\x1b]0;x\x07", "\x9b", "\x7f", "\0", "\r", "\u202e", "\u2028", "\ud800", "a"])
).map("".join)  # fmt: skip
PRINTERS: dict[str, Callable[[str], None]] = {
    "say": console.say,
    "notice": console.notice,
    "answer": console.answer,
    "error": lambda text: console.error(RvError(ErrorKind.REFUSED, text, hint=text)),
    "error as JSON": lambda text: console.error_json(RvError(ErrorKind.REFUSED, text, hint=text)),
    "JSON": lambda text: console.emit_json({text: [text]}),
}


def printed(call: Callable[[str], None], text: str) -> str:
    """What a terminal gets."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        patch.setattr(sys, "stderr", stream)
        call(text)
    return stream.buffer.getvalue().decode()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", PRINTERS)
def test_clean(name: str) -> None:
    @given(TEXT)
    def check(text: str) -> None:
        shown = printed(PRINTERS[name], text)
        assert not CONTROL.search(shown), repr(shown)

    check()


def test_an_error_is_one_line_and_its_hint_another() -> None:
    """Newlines in what Slurm said do not make more."""
    failure = RvError(ErrorKind.REFUSED, "a\nb\r\nc\u2028d", hint="x\ny")
    assert printed(lambda _: console.error(failure), "").splitlines() == [
        "error[refused]: a b c d",
        "  hint: x y",
    ]


def test_nobody_else_writes() -> None:
    """All that is printed goes through the console."""
    package = Path(rv.__file__).parent
    writes = re.compile(r"\bprint\(|sys\.std(?:out|err)\.(?:write|buffer)")
    sources = [path for path in package.rglob("*.py") if "payloads" not in path.parts]
    found = {str(path.relative_to(package)) for path in sources if writes.search(path.read_text())}
    assert found <= {"ui/console.py"}
