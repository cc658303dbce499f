"""Many commands, one script: how their outputs are framed, and how the frames are read back.

Every frame line carries a sentinel that the caller drew at random for this script, so no job
name, however hostile, can begin or end a frame.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """One command's exit code and output; 124 is a command that was stopped after its time."""

    exit_code: int
    stdout: str
    stderr: str = ""

    @property
    def is_good(self) -> bool:
        """Whether the command succeeded."""
        return self.exit_code == 0


_RUN_ALL = """\
d=$(mktemp -d 2>/dev/null || mktemp -d -p /dev/shm 2>/dev/null || mktemp -d -p "$HOME") || exit 1
trap 'rm -rf -- "$d"' EXIT
me=$(id -un)
export me
ask() {
  timeout --foreground -k 1 "$2" bash -c "$3" >"$d/$1.out" 2>"$d/$1.err" </dev/null
  printf '\\n%s begin %s %s\\n' "$mark" "$1" $? >"$d/$1.head"
}
"""


def framing_script(commands: Mapping[str, tuple[int, str]], sentinel: str) -> str:
    """Return bash text that runs `commands` side by side and frames their answers by name.

    Each has the seconds after which it is stopped, and its shell text, which may use `$me`, the
    user's name. Frame names are plain words. One `cat` writes all the frames: a process for each
    part would take longer than the controller's answers.
    """
    asked = "".join(
        f"ask {name} {seconds} {_quoted(line)} &\n" for name, (seconds, line) in commands.items()
    )
    parts = " ".join(
        f'"$d/{name}.head" "$d/{name}.out" "$d/errors" "$d/{name}.err" "$d/end"'
        for name in commands
    )
    return f"""\
mark={sentinel}
{_RUN_ALL}{asked}printf '\\n%s stderr\\n' "$mark" >"$d/errors"
printf '\\n%s end\\n' "$mark" >"$d/end"
wait
cat {parts}
echo '{sentinel} done'
"""


def parse_frames(text: str, sentinel: str) -> dict[str, Frame] | None:
    """Read the frames by name; None where the answer was cut off before its last line."""
    # By places in the text: the answer of a large cluster is copied no more than it must be.
    text = text if text.startswith("\n") else f"\n{text}"
    end = f"\n{sentinel} end\n"
    frames: dict[str, Frame] = {}
    at = 0
    while (stop := text.find(end, at)) >= 0:
        frames |= _frame(text, at, stop, sentinel)
        at = stop + len(end)
    return frames if text[at:].lstrip("\n").startswith(f"{sentinel} done") else None


def _frame(text: str, at: int, stop: int, sentinel: str) -> dict[str, Frame]:
    """Read the frame between two places by its name; a login banner may stand above it."""
    start = f"\n{sentinel} begin "
    begin = text.find(start, at, stop)
    if begin < 0:
        return {}
    begin += len(start)
    output = _place(text, "\n", begin, stop)
    name, _, code = text[begin:output].partition(" ")
    output = min(output + 1, stop)
    mark = f"\n{sentinel} stderr\n"
    errors = _place(text, mark, output, stop)
    stderr = text[errors + len(mark) : stop]
    return {name: Frame(exit_code=_code(code), stdout=text[output:errors], stderr=stderr)}


def _place(text: str, mark: str, at: int, stop: int) -> int:
    """Return where a mark is between two places, else the second."""
    found = text.find(mark, at, stop)
    return stop if found < 0 else found


def write_frames(frames: Mapping[str, Frame], sentinel: str) -> str:
    """Write frames as the script would, for keeping some of them."""
    parts = [
        f"\n{sentinel} begin {name} {frame.exit_code}\n{frame.stdout}"
        f"\n{sentinel} stderr\n{frame.stderr}\n{sentinel} end\n"
        for name, frame in frames.items()
    ]
    return "".join((*parts, f"{sentinel} done\n"))


def _code(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 1


def _quoted(line: str) -> str:
    return "'" + line.replace("'", "'\\''") + "'"
