"""Scripts that are sent as one, and what each came to."""

import subprocess

import pytest

from rv.transport import LOST
from rv.transport.joined_scripts import Part, joined, parted

MARK = "rvmark0123"
SCRIPTS = (
    "x=1; printf 'a\\n\\0b'; exit 3",
    'printf %s "${x-unset}"; exec 2>/dev/null; echo lost >&2',
    "set -o pipefail; false | cat",
    "kill -KILL $BASHPID",
    "cat <<end\ntext\nend",
)
"""That end in every way, and would change what follows in the same shell."""

CAME_TO = [(3, b"a\n\0b"), (0, b"unset"), (1, b""), (137, b""), (0, b"text\n")]


def ran(*scripts: str) -> tuple[int, bytes, bytes]:
    """What bash says to them."""
    done = subprocess.run(
        ["/bin/bash", "--noprofile", "--norc", "-c", joined(scripts, MARK)],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=30,
        env={"PATH": "/usr/bin:/bin", "SECONDS": "1000"},  # a user may export anything
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_each_has_its_own_shell_code_and_output() -> None:
    """Whatever the one before it did."""
    answer = ran(*SCRIPTS)
    assert answer[0] == 0
    assert [part[:2] for part in parted(answer, MARK, len(SCRIPTS))] == CAME_TO


def test_how_long_each_took() -> None:
    """In whole seconds, by a clock that ticks: that of one that waited is not that of the next."""
    ends = "".join(f"{MARK}0 {at_s}{MARK}\n" for at_s in (0, 3, 3))
    assert [part.seconds for part in parted((0, ends.encode(), b""), MARK, 3)] == [0, 3, 0]
    _, waited = parted(ran("true", "sleep 2.2"), MARK, 2)
    assert waited.seconds >= 2
    assert parted(ran("true"), MARK, 1)[0].seconds < 1000  # no matter what a user exports


@pytest.mark.parametrize("code", [0, 1, 124, 137, LOST, 256])
def test_an_answer_that_is_cut_off_anywhere(code: int) -> None:
    """What came whole is used; the rest has the code of the end, if that says what ended it."""
    whole = ran(*SCRIPTS)[1]
    expected = parted((0, whole, b""), MARK, len(SCRIPTS))
    missing = Part(LOST if code in (0, 1) else code, b"", 0)
    for size in range(len(whole)):
        parts = parted((code, whole[:size], b""), MARK, len(SCRIPTS))
        ended = whole[:size].count(MARK.encode()) // 2
        assert parts == expected[:ended] + [missing] * (len(SCRIPTS) - ended)
