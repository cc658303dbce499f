"""The checkpoints of a chain: when the last of them was written."""

from rv.errors import ErrorKind, RvError
from rv.models.race import Race
from rv.render.quote import shell
from rv.slurm.printable import last_line
from rv.transport import Transport, require_end

_LAST = """
cd {} || exit
if [ -L checkpoints ] && [ ! -d checkpoints ]; then
  echo "they are in $(readlink checkpoints), which is not there" >&2
  exit 1
fi
[ -d checkpoints ] || exit 0
set -o pipefail
find -L checkpoints -type f ! -name '.rv-*' -printf '%T@\\n' | sort -n | tail -n 1
"""


def last_checkpoint(race: Race, transport: Transport) -> float | None:
    """Return when the last checkpoint was written, seconds since the epoch; None where none was.

    Raises `RvError(UNREACHABLE)` where nobody can say: that is not the same as none.
    """
    done = transport.run(_LAST.format(shell(race.directory)), timeout_s=30)
    failed = f"the checkpoints of race {race.race_id} cannot be looked for"
    require_end(done, failed)
    text = done.stdout.strip()
    if done.returncode and not text:  # a file that vanished meanwhile is an error of find's too
        raise RvError(
            ErrorKind.UNREACHABLE,
            f"{failed}: {last_line(done.stderr)}",
            hint="the same command again; another --name begins anew",
        )
    try:
        return float(text) if text else None
    except ValueError:
        return None
