"""Submit a race's jobs in parallel, in one round trip, at least once each under a fixed name.

A duplicate is harmless: it loses the claim and is reaped by name. A lost job is not; so whatever
is in doubt (a timeout, a dropped connection, words that sbatch never said before) is looked up by
name, adopted when found, and submitted again only after Slurm must have dealt with the first.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rv.cluster.jobs import find_by_name_script, parse_queue
from rv.cluster.probe import new_sentinel
from rv.cluster.text import last_line
from rv.models.race import Race
from rv.race.marks import leave_mark
from rv.render.quote import shell
from rv.transport import Transport

PARALLEL: Final = 8
_ATTEMPTS: Final = 3
_IN_DOUBT: Final = re.compile(
    r"timed out|unable to contact|connect|communicat|zero bytes|socket|temporarily|try again"
    r"|slow down|protocol|authenticat|munge|not responding",
    re.IGNORECASE,
)
# The id is written down by the shell that got it: the client may be gone by then.
# With --export=NONE, which the scripts have for whoever submits them by hand, the node first runs a
# login shell for the job's environment: 1.3 s on 22.05, more with a slow profile. With ALL it does
# not, and what sbatch itself sees, and thereby Slurm keeps, is these few variables.
_SUBMIT: Final = r"""
cd "$RV_DIR" || exit 3
kept=()
for name in PATH HOME USER LOGNAME SHELL LC_ALL LD_LIBRARY_PATH SLURM_CONF SLURM_CLUSTERS; do
  [ -z "${!name+set}" ] || kept+=("$name=${!name}")
done
submit() {
  # A claimed race needs no more jobs, but for the next segment of a chain, number 0.
  if [ -e stop ] || [ -e ended ] || { [ -e claim ] && [ "$1" != 0 ]; }; then
    printf '%s %s skip\n' "$RV_MARK" "$1"
    return
  fi
  local out rc
  out=$(env -i "${kept[@]}" sbatch --export=ALL --parsable $RV_OPTIONS "jobs/$1.sh" \
    2>"jobs/$1.err" </dev/null)
  rc=$?
  if [ $rc -eq 0 ] && [[ $out =~ (^|$'\n')([0-9]+)(;[^$'\n']*)?$ ]]; then
    printf '%s\n' "${BASH_REMATCH[2]}" >>"jobs/$1.id"
    printf '%s %s id %s\n' "$RV_MARK" "$1" "${BASH_REMATCH[2]}"
  else
    printf '%s %s rc %s %s\n' "$RV_MARK" "$1" "$rc" "$(tr '\n' ' ' <"jobs/$1.err" | tail -c 400)"
  fi
}
running=0
for number in $RV_NUMBERS; do
  if [ "$running" -ge "$RV_PARALLEL" ]; then wait -n; running=$((running - 1)); fi
  submit "$number" &
  running=$((running + 1))
done
wait
"""


class Outcome(StrEnum):
    """What became of one submission. SKIPPED: the race was already won or stopped."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted:
    """The fate of one submission; `text` is Slurm's words where it was not accepted."""

    number: int
    outcome: Outcome
    job_id: int = 0
    text: str = ""


def submit(
    race: Race,
    numbers: Sequence[int],
    transport: Transport,
    *,
    options: Sequence[str] = (),
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Submitted, ...]:
    """Submit these submissions; `options` are further sbatch options, such as `--begin`.

    Takes one round trip when nothing is in doubt; else up to three times twice the controller's
    message timeout. What is refused is written down in the race directory; the parts of a refused
    merged submission are sent in its place, and their fates come after those asked for.
    """
    fates = _submit_once(race, numbers, transport, options)
    for _ in range(_ATTEMPTS - 1):
        doubtful = [n for n, fate in fates.items() if fate.outcome is Outcome.UNKNOWN]
        if not doubtful:
            break
        fates |= _adopt(race, doubtful, transport)
        doubtful = [n for n, fate in fates.items() if fate.outcome is Outcome.UNKNOWN]
        if not doubtful:
            break
        sleep(2 * race.message_timeout.total_seconds())
        fates |= _adopt(race, doubtful, transport)
        doubtful = [n for n, fate in fates.items() if fate.outcome is Outcome.UNKNOWN]
        fates |= _submit_once(race, doubtful, transport, options) if doubtful else {}
    parts: list[int] = []
    for fate in fates.values():
        if fate.outcome is Outcome.REFUSED:
            leave_mark(race, f"jobs/{fate.number}.refused", fate.text, transport)
            parts.extend(race.parts_of(fate.number))
    instead = submit(race, parts, transport, options=options, sleep=sleep) if parts else ()
    return (*(fates[number] for number in numbers), *instead)


def _submit_once(
    race: Race, numbers: Sequence[int], transport: Transport, options: Sequence[str]
) -> dict[int, Submitted]:
    mark = new_sentinel()
    settings = {
        "RV_DIR": race.directory,
        "RV_MARK": mark,
        "RV_OPTIONS": " ".join(options),
        "RV_NUMBERS": " ".join(str(number) for number in numbers),
        "RV_PARALLEL": str(PARALLEL),
    }
    head = "".join(f"{name}={shell(value)}\n" for name, value in settings.items())
    patience = 4 * race.message_timeout.total_seconds() + 10 + len(numbers)
    completed = transport.run(head + _SUBMIT, timeout=patience)
    fates = {number: _silent(number, completed.stderr) for number in numbers}
    for line in completed.stdout.splitlines():
        fate = _fate(line, mark)
        if fate is not None and fate.number in fates:
            fates[fate.number] = fate
    return fates


def _silent(number: int, stderr: str) -> Submitted:
    return Submitted(
        number=number, outcome=Outcome.UNKNOWN, text=last_line(stderr) or "no answer from sbatch"
    )


def _fate(line: str, mark: str) -> Submitted | None:
    fields = line.split(" ", 3)
    if len(fields) < 3 or fields[0] != mark or not fields[1].isdigit():
        return None
    number, what, detail = fields[1], fields[2], "".join(fields[3:])
    if what == "id" and detail.isdigit():
        return Submitted(number=int(number), outcome=Outcome.ACCEPTED, job_id=int(detail))
    if what == "skip":
        return Submitted(number=int(number), outcome=Outcome.SKIPPED)
    code, _, words = detail.partition(" ")
    text = _slurm_words(words) or f"sbatch ended with code {code}"
    doubtful = code in {"0", "124", "137", "143"} or not words.strip() or _IN_DOUBT.search(words)
    return Submitted(
        number=int(number), outcome=Outcome.UNKNOWN if doubtful else Outcome.REFUSED, text=text
    )


def _slurm_words(text: str) -> str:
    """The last of sbatch's complaints, without its own prefixes."""
    parts = [part.strip() for part in re.split(r"sbatch: (?:error|fatal): ", text) if part.strip()]
    return last_line(": ".join(parts[-2:])).removeprefix("Batch job submission failed: ")


def _adopt(race: Race, numbers: Sequence[int], transport: Transport) -> dict[int, Submitted]:
    """Look the doubtful ones up by name; what is found was accepted all the same."""
    names = {race.name_of(number): number for number in numbers}
    sentinel = new_sentinel()
    completed = transport.run(find_by_name_script(names, sentinel), timeout=30)
    found = parse_queue(completed.stdout, sentinel) or ()
    adopted = {
        names[record.name]: Submitted(
            number=names[record.name], outcome=Outcome.ACCEPTED, job_id=record.job_id
        )
        for record in found
        if record.name in names and not record.state.is_terminal
    }
    for fate in adopted.values():
        known = (transport.read(f"{race.directory}/jobs/{fate.number}.id") or b"").decode()
        leave_mark(race, f"jobs/{fate.number}.id", f"{known}{fate.job_id}\n", transport)
    return adopted
