"""The accounting of starts: what a scenario's races came to, counted from outside of rv."""

import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rv.race.directory import STAGED
from tests.faults.world import PATIENCE_S, World, kill

RaceDocument = dict[str, Any]
OPEN: Final = frozenset({"STAGED", "PENDING", "RUNNING", "UNKNOWN"})
MAY_CHANGE: Final = frozenset({"LOST", "ENDED"})
"""States that may still change when a node that was out of touch answers again."""

UNKNOWN_S: Final = 60.0
_FIELDS: Final = "JobIDRaw,State,ExitCode,JobName%60"
_GONE_S: Final = 60.0
_FINAL_STATE: Final = re.compile(r"race ([a-z0-9]{8}) ([A-Z_]{4,})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One scenario's line in the table, with the complaints that its figures count."""

    scenario: str
    seed: int
    races: int = 0
    starts: int = 0
    lost: int = 0
    leftovers: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def complaints(self) -> list[str]:
        """Everything that went wrong."""
        return [
            f"{self.scenario} (seed {self.seed}): {text}" for text in self.leftovers + self.wrong
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """Slurm's own record of a job: every state it was in, the last one last."""

    job_id: int
    states: tuple[str, ...]
    code: int | None
    is_requeued: bool = False


def count_outcome(
    world: World,
    scenario: str,
    seed: int,
    ends: Iterable[str],
    *,
    doubles: bool = False,
    patience: float = PATIENCE_S,
) -> Row:
    """Let every race settle under later `rv ps`, for `patience` seconds, and count what there is."""
    wrong = list(_clients(world, patience))
    _age(world)
    races = _settle(world, patience)
    leftovers = [*_jobs_left(world), *_processes_left(world, patience), *_directories_left(world)]
    for race in races:
        wrong += (f"race {race['race']}: {text}" for text in _judge(world, race, set(ends)))
    wrong += _history(world, races)
    if not doubles:
        wrong += _doubled(world)
    return Row(
        scenario=scenario,
        seed=seed,
        races=len(races),
        starts=len(world.lines(world.work / "starts")),
        lost=sum(race["state"] == "LOST" for race in races),
        leftovers=tuple(leftovers),
        wrong=tuple(wrong),
    )


def _clients(world: World, patience: float) -> Iterator[str]:
    """Wait for every client; none hangs, and none ends with a traceback."""
    for client in world.clients:
        try:
            code = client.wait(patience)
        except subprocess.TimeoutExpired:
            yield f"a client does not end: {client.err[-300:]!r}"
            client.kill(whole=True)
            continue
        if "Traceback" in client.err + client.out:
            yield f"a client's traceback: {client.err[-600:]!r}"
        if not (-15 <= code < 160 or code in (255,)):
            yield f"a client ended with code {code}"


def _age(world: World) -> None:
    """Make what nobody finished so old that the next rv command may clear it away."""
    known = world.known_jobs()
    for race in world.races():
        if not any(race.name in name for name in known):
            world.backdate_race(race)
    for half in (world.path / "races").glob(".*"):
        words = half.name.split(".")
        if len(words) == 4 and words[2].isdigit():
            words[2] = str(int(words[2]) - 7200)
            half.rename(half.with_name(".".join(words)))


def _settle(world: World, patience: float) -> list[RaceDocument]:
    """Ask `rv ps` until all races are over and their jobs gone, or patience is."""
    deadline = time.monotonic() + patience
    while True:
        _let_jobs_end(world)
        races = world.ps()
        live = world.live_jobs()
        if not live and not any(race["state"] in OPEN for race in races):
            world.forget_queue()  # an answer of a second ago may have jobs that were ending then
            return world.ps()
        if time.monotonic() > deadline:
            return races


def _let_jobs_end(world: World) -> None:
    """Wait a moment for jobs that are ending by themselves."""
    deadline = time.monotonic() + 3
    while world.live_jobs() and time.monotonic() < deadline:
        time.sleep(0.2)


def _jobs_left(world: World) -> Iterator[str]:
    """What is in the queue still, with Slurm's reason."""
    for row in world.rows_of_live_jobs():
        yield f"left in the queue: {row}"


def _processes_left(world: World, patience: float) -> list[str]:
    """Processes of a client or of a command, which its job should have ended with."""
    deadline = time.monotonic() + min(patience, _GONE_S)
    while (left := list(_marked(world))) and time.monotonic() < deadline:
        time.sleep(0.5)
    kill([pid for pid, _ in left])
    return [f"left running: {pid} {line}" for pid, line in left]


def _marked(world: World) -> Iterator[tuple[int, str]]:
    marks = [f"\0RV_RACE_ROOT={world.path}/races\0".encode()]
    marks += [f"\0RV_RACE={race.name}\0".encode() for race in world.races()]
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environ = b"\0" + (entry / "environ").read_bytes()
            if any(mark in environ for mark in marks):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                yield int(entry.name), line.decode(errors="replace")[:120]


def _directories_left(world: World) -> Iterator[str]:
    """Race directories that no race is in."""
    root = world.path / "races"
    for path in root.glob("*") if root.exists() else ():
        if path.name == STAGED:
            continue
        if path.name.startswith(".") or not (path / "race.json").exists():
            yield f"left on the disk: {path.name}"


def _judge(world: World, race: RaceDocument, ends: set[str]) -> Iterator[str]:
    """Compare what `rv ps` says of a race with what its command and Slurm recorded."""
    state, claim = race["state"], race["winner"]
    starts, finishes = (_lines_of(world, race["race"], name) for name in ("starts", "ends"))
    said = f"{state} ({race['why'] or 'no reason'})"
    if starts > 1:
        yield f"its command started {starts} times"
    if state not in ends:
        yield f"{said} instead of {' or '.join(sorted(ends))}; {_own_queue(world, race['race'])}"
    if state == "COMPLETED" and (starts, finishes) != (1, 1):
        yield f"{said}, but its command started {starts} times and ended {finishes} times"
    # With code 0 rv says that it ran: a stop came just then; its state is compared with Slurm's below.
    if state not in ("COMPLETED", *OPEN) and finishes and race["exit_code"] != 0:
        yield f"{said}, but its command ran to its end"
    if starts and claim is None:
        yield f"{said} without a winner, but its command was started"
    if "never submitted" in race["why"] and (known := _known(world, race["race"])):
        yield f"{said}, but Slurm knows {', '.join(known)}"
    if claim and state not in OPEN:
        record = record_of(world, claim["job_id"], race["race"])
        if record and not _saw_the_stop(state, starts, race, record):
            yield from _compare(state, race, record)
    for job in race["jobs"]:
        if job["job_id"] and job["state"] not in ("ENDED", "UNKNOWN"):
            if claim and claim["job_id"] == job["job_id"] and _was_out_of_touch(race):
                continue  # its own record and Slurm's differ, and rv says so
            record = record_of(world, job["job_id"], race["race"])
            if record and _was_cancelled_at_its_end(job["state"], race, record):
                continue
            if record and job["state"] not in record.states:
                yield f"job {job['job_id']} is shown {job['state']}; Slurm says {record.states}"


def _was_cancelled_at_its_end(state: str, race: RaceDocument, record: Record) -> bool:
    """Whether a stop came when the command had succeeded, and its job was about to end."""
    is_cancelled = record.states[-1] == "CANCELLED"
    return state == "COMPLETED" and is_cancelled and record.code == race["exit_code"] == 0


def _saw_the_stop(state: str, starts: int, race: RaceDocument, record: Record) -> bool:
    """Whether the winner started nothing, since the race was stopped, and ended before a cancel."""
    is_stopped = (state, starts, race["exit_code"]) == ("CANCELLED", 0, 143)
    return is_stopped and record.states[-1] == "COMPLETED" and record.code == 0


def _compare(state: str, race: RaceDocument, record: Record) -> Iterator[str]:
    """Hold a claimed race to Slurm's record of its winner."""
    said = f"{state} ({race['why']}), but Slurm says {record}"
    last = record.states[-1]
    if state == "LOST":
        if not (record.is_requeued or {"NODE_FAIL", "BOOT_FAIL"} & set(record.states)):
            yield said
    elif _was_cancelled_at_its_end(state, race, record):
        return  # a stop that came when the command had ended: Slurm cancelled the rest of its job
    elif state in ("COMPLETED", "FAILED"):
        if not _was_out_of_touch(race) and (last != state or record.code != race["exit_code"]):
            yield said
    elif state != "ENDED" and last != state:
        yield said


def _was_out_of_touch(race: RaceDocument) -> bool:
    return "out of touch" in race["why"]


def record_of(world: World, job_id: int, race: str) -> Record | None:
    """What Slurm has of a job, accounting first: it keeps every restart of it."""
    deadline = time.monotonic() + 30
    while True:
        rows = [line.split("|", 3) for line in _sacct(world, job_id)]
        rows = [row for row in rows if f"-{race}-" in row[-1]]
        states = tuple(row[1].split()[0] for row in rows)
        shown = world.slurm("scontrol", "show", "job", "-o", str(job_id), check=False)
        if f"JobName=rv-{race}-" in shown:
            found = dict(word.partition("=")[::2] for word in shown.split() if "=" in word)
            states = (*states, found["JobState"])
            return Record(
                job_id=job_id,
                states=states,
                code=_code(found["ExitCode"]),
                is_requeued=found.get("Restarts", "0") != "0",
            )
        if states and states[-1] not in ("PENDING", "RUNNING", "COMPLETING", "REQUEUED"):
            return Record(
                job_id=job_id,
                states=states,
                code=_code(rows[-1][2]),
                is_requeued="REQUEUED" in states or len(rows) > 1,
            )
        if time.monotonic() > deadline:
            return None
        time.sleep(0.5)


def _sacct(world: World, job_id: int) -> list[str]:
    argv = ("sacct", "-X", "-D", "-n", "-P", "-S", "now-2days", "-j", str(job_id), "-o", _FIELDS)
    return [line for line in world.slurm(*argv, check=False).splitlines() if line.count("|") >= 3]


def _code(text: str) -> int:
    code, _, number = text.partition(":")
    return 128 + int(number) if int(number) else int(code)


def _history(world: World, races: Sequence[RaceDocument]) -> Iterator[str]:
    """No answer of `rv ps` was final and then was not so; none was UNKNOWN for long."""
    final = {race["race"]: race["state"] for race in races}
    unknown: dict[str, float] = {}
    for at, answer in world.ps_answers:
        for race in answer:
            name, state = race["race"], race["state"]
            if name not in final:
                continue
            if state not in OPEN and state not in MAY_CHANGE and state != final[name]:
                yield f"race {name} was shown {state} ({race['why']}) and then {final[name]}"
            if state != "UNKNOWN":
                unknown.pop(name, None)
            elif at - max(unknown.setdefault(name, at), world.healthy_since) > UNKNOWN_S:
                yield f"race {name} was UNKNOWN for {at - unknown[name]:.0f} s"
    for client in world.clients:
        for name, state in _FINAL_STATE.findall(client.err):
            if name in final and state not in OPEN | MAY_CHANGE and state != final[name]:
                yield f"a client said {state} of race {name}, which is {final[name]}"


def _doubled(world: World) -> Iterator[str]:
    """Submissions that became several jobs although rv could have known better."""
    rows = world.slurm("sacct", "-X", "-n", "-P", "-S", "now-2days", "-o", "JobIDRaw,JobName%60")
    rows += world.slurm("squeue", "-h", "-a", "-t", "all", "-o", "%A|%j")  # accounting may lag
    pairs = {tuple(line.split("|", 1)) for line in rows.splitlines() if "|rv-" in line}
    races = {race.name for race in world.races()}
    counted = Counter(name for _, name in pairs if name.split("-")[1] in races)
    for name, count in counted.items():
        if count > 1:
            yield f"{name} was submitted {count} times"


def _lines_of(world: World, race: str, name: str) -> int:
    return sum(line.startswith(f"{race} ") for line in world.lines(world.work / name))


def _known(world: World, race: str) -> list[str]:
    return sorted(name for name in world.known_jobs() if f"-{race}-" in name)


def _own_queue(world: World, race: str) -> str:
    """A race's jobs as Slurm has them, in a word each."""
    rows = world.slurm("squeue", "-h", "-a", "-t", "all", "-o", "%A %j %T %r").splitlines()
    return "; ".join(row for row in rows if race in row) or "Slurm knows no job of it"


def table(rows: Sequence[Row]) -> str:
    """Print rows of one scenario as one line, and their sum as the last."""
    names = sorted({row.scenario for row in rows})
    width = max([len(name) for name in names] + [8])
    head = f"{'scenario':<{width}}  races  starts  LOST  leftovers  wrong  seconds"
    lines = [_line(name, [row for row in rows if row.scenario == name], width) for name in names]
    return "\n".join([head, *lines, _line("total", rows, width)])


def _line(name: str, rows: Sequence[Row], width: int) -> str:
    races, starts, lost = (sum(getattr(row, key) for row in rows) for key in _SUMS)
    leftovers, wrong = (
        sum(len(getattr(row, key)) for row in rows) for key in ("leftovers", "wrong")
    )
    seconds = sum(row.seconds for row in rows)
    return f"{name:<{width}}  {races:5}  {starts:6}  {lost:4}  {leftovers:9}  {wrong:5}  {seconds:7.1f}"


_SUMS: Final = ("races", "starts", "lost")
