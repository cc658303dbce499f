"""Scripts that are sent as one: a login node starts several processes for each that it is sent."""

from collections.abc import Sequence
from typing import NamedTuple

from rv.transport import LOST, why_unknown
from rv.transport.remote_shell import Answer


class Part(NamedTuple):
    """What one of the scripts came to: its exit code, its output, and how long it took."""

    code: int
    out: bytes
    seconds: int


def joined(scripts: Sequence[str], mark: str) -> str:
    """Return a script that runs each of these in a shell of its own, in order.

    `mark` was drawn for it: no output holds it.
    """
    end = f'printf %s {mark} "$? $SECONDS" {mark}\n'
    return "SECONDS=0\n" + "".join(f"(\n{script}\n)\n{end}" for script in scripts)


def parted(answer: Answer, mark: str, count: int) -> list[Part]:
    """Return what each of so many scripts came to.

    One that did not come to its end has no output, and the code of what ended all, or `LOST`.
    """
    code, out, _ = answer
    pieces = out.split(mark.encode())[:-1]  # what follows the last mark was cut off
    parts, began_s = [], 0
    for output, end in zip(pieces[::2], pieces[1::2], strict=False):
        own_code, at_s = map(int, end.split())
        parts.append(Part(own_code, output, at_s - began_s))
        began_s = at_s
    missing = Part(code if why_unknown(code, "") else LOST, b"", 0)
    return parts + [missing] * (count - len(parts))
