"""Submit a race's jobs, the best first, in one round trip, at least once each under a fixed name.

A duplicate is harmless: it loses the claim and is cancelled by name. A lost job is not: so whatever
is unconfirmed (a timeout, a dropped connection, text that sbatch never printed before) is looked up
by name, adopted when it is there, and submitted again only after Slurm has dealt with the first.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from rv.dataclass import dataclass
from rv.models.job import JobRecord
from rv.models.race import Race
from rv.models.request import Objective
from rv.race.directory import write_state_file
from rv.race.sources import confirmation_limit_s
from rv.render.quote import shell
from rv.slurm.printable import last_line
from rv.slurm.script import new_sentinel
from rv.slurm.squeue import parse_squeue_own
from rv.slurm.squeue_scripts import squeue_by_name_script
from rv.transport import ScriptResult, Transport
from rv.transport.query_retry import retry_query

PARALLEL: Final = 8
_ATTEMPTS: Final = 3
_TOGETHER: Final = 150  # what fits into one argument of a shell, 128 KiB
_UNCONFIRMED: Final = re.compile(
    r"timed out|unable to contact|connect|communicat|zero bytes|socket|temporarily|try again"
    r"|slow down|rate limit|protocol|authenticat|munge|not responding|standby"
    # The reply was not understood, not the request.
    r"|longer than data received|unexpected message|insane message",
    re.IGNORECASE,
)
_USAGE: Final = 'Try "sbatch --help" for more information'
_TEXT_BYTES: Final = 16_384  # read of what sbatch prints on stderr
_TIMED_OUT: Final = 124
_SIGNALLED: Final = 128
_BY_SBATCH: Final = 255
"""How sbatch ends where it does not take an option's value; so does ssh that lost a connection."""
_COMPLAINT: Final = re.compile(r"sbatch: (?:error|fatal): ")
_FAILED: Final = "Batch job submission failed: "
# A turn is a line in a pipe: `wait -n` would pass over what ended before it was called. Where no
# pipe can be opened, all that is running is awaited.
_TURNS: Final = """
offer_turns() {
  exec 9<> <(:)
  local turn
  for ((turn = 0; turn < $1; turn++)); do echo >&9; done
}
take_turn() {
  local running
  until read -r -t 1 <&9; do
    [ $? -gt 128 ] || { wait; return; }
    # One that was killed, as by SIGPIPE where the client is gone, gives no turn back.
    running=($(jobs -pr))
    [ ${#running[@]} -ge "$1" ] || { read -r -t 0.1 <&9; return 0; }
  done
}
"""
# The id is written down by the shell that got it: the client may be gone by then.
# With --export=NONE, which the scripts have for whoever submits them by hand, the node first runs a
# login shell for the job's environment: 1.3 s on 22.05, more with a slow profile. With ALL it does
# not, and what sbatch itself sees, and thereby Slurm keeps, is these few variables.
_SUBMIT: Final = (
    _TURNS
    + r"""
# Its own scripts, and nobody else's: a folder above it may be another user's to rename.
cd "$RV_DIR" && [ -O . ] || { echo "$RV_DIR is gone, or another user's" >&2; exit 3; }
kept=()
for name in PATH HOME USER LOGNAME SHELL LC_ALL LD_LIBRARY_PATH SLURM_CONF; do
  [ -z "${!name+set}" ] || kept+=("$name=${!name}")
done
submit() {
  # A claimed race needs no more jobs, but for the next segment of a chain, number 0.
  if [ -e stop ] || [ -e ended ] || { [ -e claim ] && [ "$1" != 0 ]; }; then
    printf '%s %s skip\n' "$RV_MARK" "$1"
    return
  fi
  # The attempt is written down first: if nobody hears the answer, the next rv command looks for it.
  if ! { : >"jobs/$1.out" && : >"jobs/$1.err" && printf '%(%s)T\n' -1 >>"jobs/$1.sent"
  } 2>/dev/null; then
    printf '%s %s unsent %s\n' "$RV_MARK" "$1" "$RV_DIR cannot be written"
    return
  fi
  # Into a file: what a wrapper leaves behind may keep a pipe open for ever.
  env -i "${kept[@]}" sbatch --export=ALL --parsable $RV_OPTIONS "jobs/$1.sh" \
    >"jobs/$1.out" 2>"jobs/$1.err" </dev/null
  local rc=$?
  # A wrapper may print around the id; where two lines could be it, the name will tell.
  local line ids=() id=$'^([0-9]{1,18})(;.*)?\r?$'
  while IFS= read -r line || [ -n "$line" ]; do
    [[ ! $line =~ $id ]] || ids+=("${BASH_REMATCH[1]}")
  done <"jobs/$1.out"
  if [ $rc -eq 0 ] && [ ${#ids[@]} -eq 1 ]; then
    printf '%s\n' "${ids[0]}" >>"jobs/$1.id"
    printf '%s %s id %s\n' "$RV_MARK" "$1" "${ids[0]}"
  else
    # What printed an id may have sent the job, whatever it came to afterwards.
    [ ${#ids[@]} -eq 0 ] || rc=0
    printf '%s %s rc %s %s\n' "$RV_MARK" "$1" "$rc" \
      "$(head -c "$RV_TEXT_BYTES" <"jobs/$1.err" | tr '\n\r\f\v' ' ')"
  fi
}
offer_turns "$RV_PARALLEL"
sent=0
for number in $RV_NUMBERS; do
  take_turn "$RV_PARALLEL"
  # Of equal jobs the first that comes starts first, some others a pass of Slurm's later: the best
  # are sent in their order, but none waits long for one that is slow. Each tells over a pipe of its
  # own: an earlier one, late, would be taken for it.
  [ "$sent" -ge "$RV_PARALLEL" ] || exec 8<> <(:)
  { submit "$number" 8>&- 9>&-; echo >&8; echo >&9; } &
  sent=$((sent + 1))
  [ "$sent" -gt "$RV_PARALLEL" ] || read -r -t 0.5 <&8
done
wait
"""
)


class SubmitOutcome(StrEnum):
    """What became of one submission.

    SKIPPED: the race was already won or stopped. UNSENT: the attempt could not be written down, so
    it was not made. UNKNOWN: sent but not acknowledged; `jobs/N.sent` says so to a later command.
    """

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNSENT = "unsent"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmitResult:
    """The outcome of one submission; `text` is Slurm's message where it was not accepted."""

    number: int
    outcome: SubmitOutcome
    job_id: int = 0
    text: str = ""


def submit(
    race: Race,
    numbers: Sequence[int],
    transport: Transport,
    *,
    options: Sequence[str] = (),
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[SubmitResult, ...]:
    """Submit these submissions; `options` are further sbatch options, such as `--begin`.

    Takes one round trip when all are acknowledged; else up to three times twice the controller's
    message timeout. What is refused is written down in the race directory; the parts of a refused
    merged submission are sent in its place, and their results come after those asked for.
    """
    results = _call_sbatch(race, numbers, transport, options)
    return _confirmed(race, results, transport, options, sleep)


def submit_together(
    sent: Sequence[tuple[Race, Sequence[int], Sequence[str]]],
    transport: Transport,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> list[tuple[SubmitResult, ...]]:
    """Submit jobs of many races, each with its options, 150 races a round trip.

    Otherwise this is `submit` of each of them.
    """
    ends: list[tuple[SubmitResult, ...]] = []
    for begin in range(0, len(sent), _TOGETHER):
        some = sent[begin : begin + _TOGETHER]
        for (race, _, options), results in zip(some, _call_for_many(some, transport), strict=True):
            ends.append(_confirmed(race, results, transport, options, sleep))
    return ends


def _confirmed(
    race: Race,
    results: dict[int, SubmitResult],
    transport: Transport,
    options: Sequence[str],
    sleep: Callable[[float], None],
) -> tuple[SubmitResult, ...]:
    """Make sure of what is unconfirmed, and send the parts of what was refused."""
    numbers = tuple(results)
    for _ in range(_ATTEMPTS - 1):
        results |= _adopt(race, _with(results, SubmitOutcome.UNKNOWN), transport)
        if not _with(results, SubmitOutcome.UNKNOWN):
            break
        sleep(confirmation_limit_s(race))
        results |= _adopt(race, _with(results, SubmitOutcome.UNKNOWN), transport)
        again = _call_sbatch(race, _with(results, SubmitOutcome.UNKNOWN), transport, options)
        # It may be refused because of the first, which was taken and unheard of until now.
        results |= again | _adopt(race, _with(again, SubmitOutcome.REFUSED), transport)
    parts = _note_refused(race, results.values(), transport)
    of_parts = submit(race, parts, transport, options=options, sleep=sleep) if parts else ()
    return (*(results[number] for number in numbers), *of_parts)


def submit_once(
    race: Race, numbers: Sequence[int], transport: Transport, *, options: Sequence[str] = ()
) -> tuple[SubmitResult, ...]:
    """Submit without waiting: what stays unconfirmed is left to a later command."""
    results = _call_sbatch(race, numbers, transport, options)
    parts = _note_refused(race, results.values(), transport)
    of_parts = submit_once(race, parts, transport, options=options) if parts else ()
    return (*(results[number] for number in numbers), *of_parts)


def _with(results: Mapping[int, SubmitResult], outcome: SubmitOutcome) -> list[int]:
    return [number for number, result in results.items() if result.outcome is outcome]


def _note_refused(race: Race, results: Iterable[SubmitResult], transport: Transport) -> list[int]:
    """Write down what Slurm refused; return the parts to be sent in its place."""
    parts: list[int] = []
    for result in results:
        if result.outcome is SubmitOutcome.REFUSED:
            write_state_file(race, f"jobs/{result.number}.refused", result.text, transport)
            parts.extend(race.parts_of(result.number))
    return parts


def _call_sbatch(
    race: Race, numbers: Sequence[int], transport: Transport, options: Sequence[str]
) -> dict[int, SubmitResult]:
    """Run sbatch for each submission, and read what the shell prints of each."""
    if not numbers:
        return {}
    mark = new_sentinel()
    at_once = _at_once(race)
    head = "\n".join(_settings(race, mark, numbers, options, at_once))
    timeout_s = 4 * race.message_timeout.total_seconds() + 10 + len(numbers) * PARALLEL // at_once
    completed = transport.run(f"{head}\n{_SUBMIT}", timeout_s=timeout_s)
    return _read_results(numbers, mark, completed)


def _at_once(race: Race) -> int:
    """Return how many sbatch may run at a time: one where the best job has to start first.

    Of jobs that are equal to it Slurm starts the one with the lowest id, and so hands out GPUs to
    the first of a race that can use them.
    """
    is_by_start = race.request is None or race.request.objective is Objective.START
    return PARALLEL if is_by_start else 1


def _call_for_many(
    sent: Sequence[tuple[Race, Sequence[int], Sequence[str]]], transport: Transport
) -> list[dict[int, SubmitResult]]:
    """Run sbatch for the submissions of several races, in one shell; one by one in each race."""
    marks = [new_sentinel() for _ in sent]
    lines = [_TURNS, f"submit_race() (\n{_SUBMIT}\n)", f"offer_turns {PARALLEL}"]
    for mark, (race, numbers, options) in zip(marks, sent, strict=True):
        settings = " ".join(_settings(race, mark, numbers, options, 1))
        lines.append(f"take_turn {PARALLEL}; {{ {settings} submit_race; echo >&9; }} &")
    slowest = max(race.message_timeout for race, _, _ in sent)
    jobs = sum(len(numbers) for _, numbers, _ in sent)
    timeout_s = 4 * slowest.total_seconds() + 10 + jobs
    completed = transport.run("\n".join([*lines, "wait"]), timeout_s=timeout_s)
    each = zip(marks, sent, strict=True)
    return [_read_results(numbers, mark, completed) for mark, (_, numbers, _) in each]


def _settings(
    race: Race, mark: str, numbers: Sequence[int], options: Sequence[str], parallel: int
) -> list[str]:
    """Return the assignments that the shell above reads."""
    settings = {
        "RV_DIR": race.directory,
        "RV_MARK": mark,
        "RV_OPTIONS": " ".join(options),
        "RV_NUMBERS": " ".join(str(number) for number in numbers),
        "RV_PARALLEL": str(parallel),
        "RV_TEXT_BYTES": str(_TEXT_BYTES),
    }
    return [f"{name}={shell(value)}" for name, value in settings.items()]


def _read_results(
    numbers: Sequence[int], mark: str, completed: ScriptResult
) -> dict[int, SubmitResult]:
    """Read what the shell says of each submission; what it says nothing of is unconfirmed."""
    silent = last_line(completed.stderr) or "no answer from sbatch"
    results = {
        number: SubmitResult(number=number, outcome=SubmitOutcome.UNKNOWN, text=silent)
        for number in numbers
    }
    for line in completed.stdout.split("\n"):
        result = _read_result(line, mark)
        if result is not None and result.number in results:
            results[result.number] = result
    return results


def _read_result(line: str, mark: str) -> SubmitResult | None:
    """Read a line `MARK NUMBER WHAT DETAIL` of the shell above; None for any other line."""
    fields = line.split(" ", 3)
    if len(fields) < 3 or fields[0] != mark or not fields[1].isdigit():
        return None
    number, what, detail = int(fields[1]), fields[2], "".join(fields[3:])
    if what == "unsent":
        return SubmitResult(number=number, outcome=SubmitOutcome.UNSENT, text=detail)
    if what == "id" and detail.isdigit():
        return SubmitResult(number=number, outcome=SubmitOutcome.ACCEPTED, job_id=int(detail))
    if what == "skip":
        return SubmitResult(number=number, outcome=SubmitOutcome.SKIPPED)
    code, _, message = detail.partition(" ")
    text = _slurm_message(message) or f"sbatch ended with code {code}"
    return SubmitResult(number=number, outcome=_outcome_of_failure(code, message), text=text)


def _outcome_of_failure(code: str, message: str) -> SubmitOutcome:
    """Return REFUSED where Slurm itself said no, else UNKNOWN.

    Slurm's own messages decide, each of them where a wrapper tried several times; that of a banner
    or a plugin before them may be about anything. So may what was cut off.
    """
    number = int(code) if code.isdigit() else 0
    is_answered = number < _SIGNALLED or (number == _BY_SBATCH and _is_of_sbatch(message))
    if number in (0, _TIMED_OUT) or not is_answered or not message.strip():
        return SubmitOutcome.UNKNOWN
    is_cut_off = len(message.encode()) >= _TEXT_BYTES
    own_messages = message.partition(_FAILED)[2] or message
    is_unconfirmed = is_cut_off or _UNCONFIRMED.search(own_messages)
    return SubmitOutcome.UNKNOWN if is_unconfirmed else SubmitOutcome.REFUSED


def _is_of_sbatch(message: str) -> bool:
    return _USAGE in message or _COMPLAINT.search(message) is not None


def _slurm_message(text: str) -> str:
    """Return all that sbatch complains of, and what a site's plugin says, without its prefixes."""
    banner, *complaints = _COMPLAINT.split(text)
    own = [banner.partition(_USAGE)[0].strip().removeprefix("sbatch: ")]
    parts = [part.strip().removeprefix(_FAILED) for part in complaints or own]
    return last_line(": ".join(part for part in parts if part))


def _adopt(race: Race, numbers: Sequence[int], transport: Transport) -> dict[int, SubmitResult]:
    """Look unconfirmed submissions up by name; what is there was accepted all the same."""
    if not numbers:
        return {}
    names = {race.name_of(number): number for number in numbers}
    sentinel = new_sentinel()

    def look_up() -> tuple[JobRecord, ...] | None:
        completed = transport.run(squeue_by_name_script(names, sentinel), timeout_s=30)
        return parse_squeue_own(completed.stdout, sentinel)

    records = [record for record in retry_query(look_up) or () if record.name in names]
    ids = {names[record.name]: record.job_id for record in records}
    note_ids(race, ids, transport)
    return {
        number: SubmitResult(number=number, outcome=SubmitOutcome.ACCEPTED, job_id=job_id)
        for number, job_id in ids.items()
    }


def note_ids(race: Race, ids: Mapping[int, int], transport: Transport) -> None:
    """Write down the job ids of submissions, beside those already known."""
    lines = [f"echo {job_id} >>jobs/{number}.id" for number, job_id in sorted(ids.items())]
    if lines:
        transport.run("\n".join([f"cd {shell(race.directory)} || exit", *lines]), timeout_s=30)
