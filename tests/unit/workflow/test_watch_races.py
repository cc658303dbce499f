"""How often a watch over all races asks Slurm, whose answers it takes, and what it sees between.

The clock and squeue's answers are the test's own; the race directories are real.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rv.race.directory import record_text
from rv.race.stage import FOLDERS
from rv.slurm.cache import SnapshotCache
from rv.transport import ScriptResult
from rv.transport.local import LocalTransport
from rv.workflow.cluster import Cluster
from rv.workflow.watch_races import RacesWatch
from tests.unit.race.test_status import RACE

BEGIN = 1_000_000.0
CLAIM = f"11.0\nsubmission=1\nnodes=a1\nhost=a1\nstarted={BEGIN}\nstrategy=s1\nwhole\n"


class Squeue(LocalTransport):
    """Its disk is real; squeue says that every race's first job is in this state."""

    def __init__(self, root: Path) -> None:
        super().__init__({})
        self.root = root
        self.now_s = BEGIN
        self.state = "PENDING"
        self.asked: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def run(self, script: str, *, timeout_s: float) -> ScriptResult:
        found = re.search(r"JobID:(\w+)\|", script)
        if not found:
            return ScriptResult(returncode=1, stdout="", stderr="")
        self.asked.append(self.now_s)
        mark, end = found[1], "Unknown"
        rows = "".join(
            f"11{mark}|{self.state}|0|2030-01-01T12:00:00|{end}|{end}|p||Priority|{mark}|x|{mark}|rv-{path.name}-1|\n"
            for path in self.root.glob("[a-z]*")
        )
        return ScriptResult(returncode=0, stdout=f"{rows}{mark} end 0\n", stderr="")


@pytest.fixture
def squeue(tmp_path: Path) -> Squeue:
    made = Squeue(tmp_path / "races")
    launch(made, RACE.race_id)
    return made


def launch(squeue: Squeue, race_id: str) -> Path:
    """Write a race that was sent."""
    names = tuple(replace(e, name=f"rv-{race_id}-{e.number}") for e in RACE.entries)
    race = replace(RACE, race_id=race_id, directory=str(squeue.root / race_id), entries=names,
                   submitted_at=squeue.now_s)  # fmt: skip
    for folder in FOLDERS:
        (squeue.root / race_id / folder).mkdir(mode=0o700, parents=True)
    (squeue.root / race_id / "jobs/1.id").write_text("11\n")
    (squeue.root / race_id / "race.json").write_text(record_text(race))
    return squeue.root / race_id


def watch(squeue: Squeue, home: str = "cache") -> RacesWatch:
    """A client; those of one home share what Slurm said."""
    cache = SnapshotCache(directory=squeue.root.parent / home, key="k", clock=squeue.clock)
    cluster = Cluster(key=RACE.cluster, label="here", transport=squeue, cache=cache,
                      race_root=str(squeue.root), slurm_path="/usr/bin")  # fmt: skip
    return RacesWatch(cluster=cluster, clock=squeue.clock)


def pass_time(squeue: Squeue, watches: list[RacesWatch], seconds: int) -> None:
    for _ in range(seconds):
        for each in watches:
            each.look()
        squeue.now_s += 1


def test_what_waits_is_asked_about_more_and_more_seldom(squeue: Squeue) -> None:
    """As one wait does: at most once in 3 s, and once a minute in the end."""
    pass_time(squeue, [watch(squeue)], 600)
    pauses = [b - a for a, b in zip(squeue.asked, squeue.asked[1:], strict=False)]
    assert len(squeue.asked) < 25
    assert pauses[0] <= 5
    assert 50 < max(pauses) < 70


def test_twenty_clients_ask_little_more_than_one(squeue: Squeue) -> None:
    pass_time(squeue, [watch(squeue)], 200)
    alone = len(squeue.asked)
    squeue.asked.clear()
    pass_time(squeue, [watch(squeue, "other") for _ in range(20)], 200)
    assert len(squeue.asked) <= 3 * alone


def test_a_start_is_seen_without_asking_slurm(squeue: Squeue) -> None:
    """The winner's claim is in the race directory; its end is asked for at once."""
    client = watch(squeue)
    pass_time(squeue, [client], 30)
    assert [race.state for race in client.look()] == ["PENDING"]
    count = len(squeue.asked)
    squeue.state = "RUNNING"
    (squeue.root / RACE.race_id / "claim").write_text(CLAIM)
    (race,) = client.look()
    assert (race.state, race.claim and race.claim.nodes) == ("RUNNING", "a1")
    assert len(squeue.asked) == count
    (squeue.root / RACE.race_id / "ended").write_text(f"11.0\ncode=3\nsignal=\nended={BEGIN + 9}\n")
    squeue.now_s += 4
    (race,) = client.look()
    assert (race.state, race.exit_code) == ("FAILED", 3)


def test_a_race_that_is_launched_meanwhile_is_seen_soon(squeue: Squeue) -> None:
    client = watch(squeue)
    pass_time(squeue, [client], 300)
    launch(squeue, "bcdefghj")
    squeue.now_s += 3
    assert [race.race.race_id for race in client.look()] == ["bcdefghj", RACE.race_id]


def test_silence_is_told_and_ends(squeue: Squeue, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was known stays to be seen."""
    client = watch(squeue)
    client.look()
    assert client.silent_since_s is None
    silent = ScriptResult(returncode=1, stdout="", stderr="")
    monkeypatch.setattr(squeue, "run", lambda script, timeout_s: silent)
    monkeypatch.setattr("rv.slurm.squeue.retry_query", lambda ask: ask())
    squeue.now_s += 70
    (race,) = client.look()
    assert race.race.race_id == RACE.race_id
    assert client.silent_since_s == squeue.now_s
    monkeypatch.undo()
    squeue.now_s += 70
    client.look()
    assert client.silent_since_s is None
