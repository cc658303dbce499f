"""Scripts that carry the exit codes and outputs of their commands back in one text.

Every line that separates outputs carries a sentinel that the caller draws at random for this
script, so that no job name, however hostile, can begin or end an output.
"""

import os
from collections.abc import Mapping

from rv.dataclass import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandOutput:
    """One command's exit code and output; 124 is a command that was stopped at its timeout."""

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


def new_sentinel() -> str:
    """Draw a sentinel for one script. It begins with a letter: squeue reads digits as a width."""
    return f"rv{os.urandom(8).hex()}"  # as the module secrets does, which takes long to import


def exit_code_line(sentinel: str) -> str:
    """Return the bash line that prints the exit code of the command before it."""
    return f"printf '\\n{sentinel} end %s\\n' $?\n"


def has_succeeded(text: str, sentinel: str) -> bool:
    """Whether the output is complete and its `exit_code_line` says 0."""
    return f"\n{sentinel} end 0\n" in f"\n{text}\n"


def parallel_script(commands: Mapping[str, tuple[int, str]], sentinel: str) -> str:
    """Return bash text that runs `commands` at the same time and prints their outputs by name.

    Each has its timeout in seconds, and its shell text, which may use `$me`, the user's name. Names
    are plain words. One `cat` writes all the outputs: a process for each part would take longer
    than the controller's answers.
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


def parse_outputs(text: str, sentinel: str) -> dict[str, CommandOutput] | None:
    """Read what `parallel_script` printed, by name; None where it was cut off before its end."""
    # By positions in the text: the answer of a large cluster is copied no more than it must be.
    text = text if text.startswith("\n") else f"\n{text}"
    end = f"\n{sentinel} end\n"
    outputs: dict[str, CommandOutput] = {}
    at = 0
    while (stop := text.find(end, at)) >= 0:
        outputs |= _output(text, at, stop, sentinel)
        at = stop + len(end)
    is_complete = text[at:].lstrip("\n").startswith(f"{sentinel} done")
    return outputs if is_complete else None


def write_outputs(outputs: Mapping[str, CommandOutput], sentinel: str) -> str:
    """Write outputs as `parallel_script` prints them, to keep some of them."""
    parts = [
        f"\n{sentinel} begin {name} {output.exit_code}\n{output.stdout}"
        f"\n{sentinel} stderr\n{output.stderr}\n{sentinel} end\n"
        for name, output in outputs.items()
    ]
    return "".join((*parts, f"{sentinel} done\n"))


def _output(text: str, at: int, stop: int, sentinel: str) -> dict[str, CommandOutput]:
    """Read the output between two positions, by its name; a login banner may stand above it."""
    start = f"\n{sentinel} begin "
    begin = text.find(start, at, stop)
    if begin < 0:
        return {}
    begin += len(start)
    head_end = _position(text, "\n", begin, stop)
    name, _, code = text[begin:head_end].partition(" ")
    stdout_start = min(head_end + 1, stop)
    mark = f"\n{sentinel} stderr\n"
    stdout_end = _position(text, mark, stdout_start, stop)
    stdout, stderr = text[stdout_start:stdout_end], text[stdout_end + len(mark) : stop]
    return {name: CommandOutput(exit_code=_exit_code(code), stdout=stdout, stderr=stderr)}


def _position(text: str, mark: str, start: int, stop: int) -> int:
    """Return where a mark is between two positions, else the second."""
    position = text.find(mark, start, stop)
    return stop if position < 0 else position


def _exit_code(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) < 4
    return int(text) if is_number else 1


def _quoted(line: str) -> str:
    return "'" + line.replace("'", "'\\''") + "'"
