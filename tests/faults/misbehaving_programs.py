"""Wrappers of Slurm's programs that misbehave by a schedule, with one entry for each call."""

from collections.abc import Sequence
from random import Random
from typing import Final

from tests.faults.scenarios.registry import SLOW_S
from tests.faults.world import World

WORDS: Final = ("ok", "lost", "late", "code", "nothing", "garbage", "truncated", "slow")
"""What a call may do.

lost: it times out and Slurm never hears of it. late: Slurm does it, and the answer times out. code:
it is done and answered, with exit code 1. nothing: silence and exit code 0, and Slurm never hears
of it. garbage: it is done, and the answer is noise. truncated: it is done, and half of the answer
comes. slow: it is done `SLOW_S` later.
"""

_BODY: Final = """
here=${{0%/bin/*}}; name=${{0##*/}}
turn=$(exec 9>>"$here/turn.$name"; flock 9; echo call >>"$here/calls.$name"; wc -l <"$here/calls.$name")
case $(sed -n "${{turn}}p" "$here/schedule.$name") in
  lost) echo "$name: error: Socket timed out on send/recv operation" >&2; exit 1 ;;
  late) "$real" "$@" >/dev/null 2>&1
    echo "$name: error: Socket timed out on send/recv operation" >&2; exit 1 ;;
  code) "$real" "$@"; exit 1 ;;
  nothing) exit 0 ;;
  garbage) "$real" "$@" >/dev/null 2>&1; head -c 300 /dev/urandom; exit 0 ;;
  truncated) out=$("$real" "$@" 2>&1); printf %s "${{out:0:$((${{#out}} / 2))}}"; exit 0 ;;
  slow) sleep {slow}; exec "$real" "$@" ;;
  *) exec "$real" "$@" ;;
esac
"""


def misbehave(world: World, name: str, schedule: Sequence[str]) -> None:
    """Let the calls of a program do what the schedule says in turn, and afterwards work."""
    (world.path / f"schedule.{name}").write_text("\n".join(schedule) + "\n", encoding="utf-8")
    world.wrap(name, _BODY.format(slow=SLOW_S))


def random_schedule(dice: Random, count: int, *words: str) -> list[str]:
    """Return a schedule in which about every other call goes wrong."""
    return [dice.choice(words or WORDS[1:]) if dice.random() < 0.5 else "ok" for _ in range(count)]


def behave(world: World, name: str) -> None:
    """Let a program work from now on."""
    (world.path / f"schedule.{name}").write_text("", encoding="utf-8")
