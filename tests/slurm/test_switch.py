"""`--switch` on a real Slurm: a chain goes on with a faster layout where one is free, and once."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from rv import sandbox
from tests.slurm.launching import RaceFiles, Rv, group, profile

Eventually = Callable[..., None]

PARTITIONS = {"f1": "fast", "h1": "best", "h2": "best"}
COMMAND = """
cd {home}
echo "$RV_SEGMENT $SLURMD_NODENAME $RV_TOTAL_ELAPSED" >>segments
until [ -e "go-$RV_SEGMENT" ]; do sleep 0.1; done
echo x >"$RV_CHECKPOINT_DIR/x"
cat "go-$RV_SEGMENT" >"$RV_CHECKPOINT_DIR/.rv-next"
"""
"""Writes down where each segment runs, and does what the test says next."""


@pytest.fixture(scope="module")
def box(sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sandbox.Sandbox]:
    """A slow node, a faster one, and one that is faster still; and one with four GPUs."""
    spec = profile(
        [
            group("s", "v100", gpus=1),
            group("f", "a100", gpus=1),
            group("h", "h100", nodes=2, gpus=1),
            group("m", "a40", gpus=4),
        ],
        {"slow": ["s"], "fast": ["f"], "best": ["h"], "four": ["m"]},
        scheduler={"bf_interval": 2, "sched_interval": 2},
    )
    path = tmp_path_factory.mktemp("profile") / "switching.yaml"
    path.write_text(yaml.safe_dump(spec), encoding="utf-8")
    yield sandbox.up("switching", path)
    sandbox.down("switching")


@pytest.fixture
def rv(box: sandbox.Sandbox, tmp_path: Path) -> Iterator[Rv]:
    """The sandbox with honest, idle nodes, before and after."""
    rv = Rv(box=box, home=tmp_path)
    rv.wait_for_idle_nodes()
    yield rv
    rv.slurm("scancel", "--user=root")
    sandbox.set_fault(box, "h1", None)


def fill(rv: Rv, eventually: Eventually, *nodes: str) -> dict[str, str]:
    """Keep these nodes busy; the job on each of them."""
    jobs = {node: rv.fill(node, 1, "-p", PARTITIONS[node]) for node in nodes}
    eventually(lambda: {rv.job_state(job) for job in jobs.values()} == {"RUNNING"})
    return jobs


def free(rv: Rv, eventually: Eventually, jobs: dict[str, str]) -> None:
    """End what keeps nodes busy, and wait until they are idle."""
    rv.slurm("scancel", *jobs.values())
    idle = {f"{node} idle" for node in jobs}
    eventually(lambda: idle <= set(rv.slurm("sinfo", "-h", "-N", "-o", "%N %T").splitlines()))


def start(
    rv: Rv, eventually: Eventually, *options: str, node: str = "s1", command: str = COMMAND
) -> RaceFiles:
    """Start a chain while only the slow node is free, and wait until it runs there."""
    where = ("--gpu", "1", "-p", "slow,fast,best") if node == "s1" else ("-p", "four")
    words = (*where, "--work", "1gpuh", "--checkpoint", "--switch", "-d", *options)
    done = rv("up", *words, "--run", command.format(home=rv.home))
    assert done.returncode == 0, done.stderr
    eventually(lambda: segments(rv) == [("1", node)], timeout=60)
    return rv.last()


def segments(rv: Rv) -> list[tuple[str, str]]:
    """Each start of the command: the segment and its node."""
    path = rv.home / "segments"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(line.split()[0], line.split()[1]) for line in lines]


def go_on(rv: Rv, segment: int, word: str = "again") -> None:
    """Let a segment end, and say what comes next."""
    draft = rv.home / ".go"
    draft.write_text(f"{word}\n")
    draft.rename(rv.home / f"go-{segment}")


def test_a_chain_moves_to_a_faster_layout_when_one_is_free(rv: Rv, eventually: Eventually) -> None:
    """Not before: where none is, it goes on as it was. The best of two wins, and keeps it."""
    fillers = fill(rv, eventually, "f1", "h1", "h2")
    race = start(rv, eventually)
    go_on(rv, 1)
    eventually(lambda: segments(rv)[1:] == [("2", "s1")], timeout=60)
    assert len((race.directory / "segments" / "1.next").read_text().split()) == 3
    eventually(lambda: len(rv.queue()) == 1, timeout=30)
    free(rv, eventually, {node: fillers[node] for node in ("f1", "h1")})
    go_on(rv, 2)
    eventually(lambda: segments(rv)[2:] == [("3", "h1")], timeout=60)
    go_on(rv, 3)
    eventually(lambda: segments(rv)[3:] == [("4", "h1")], timeout=60)
    assert len((race.directory / "segments" / "3.next").read_text().split()) == 1
    said = rv.state()
    assert (said["state"], said["gpu"]) == ("RUNNING", ["h100"]), said
    go_on(rv, 4, "done")
    eventually(lambda: not rv.queue(), timeout=60)
    said = rv.state()
    assert (said["state"], said["exit_code"]) == ("COMPLETED", 0)
    assert [one["strategy"].split("/")[0] for one in said["chain"]["segments"]] == [
        "v100", "v100", "h100", "h100",
    ]  # fmt: skip
    assert len(segments(rv)) == 4


def test_a_faster_node_that_is_bad_holds_nothing_up_twice(rv: Rv, eventually: Eventually) -> None:
    """The chain goes on as it was, and asks for that node no more; the good one is busy."""
    fillers = fill(rv, eventually, "f1", "h1", "h2")
    race = start(rv, eventually)
    sandbox.set_fault(rv.box, "h1", "error")
    free(rv, eventually, {"h1": fillers["h1"]})
    go_on(rv, 1)
    eventually(lambda: segments(rv)[1:] == [("2", "s1")], timeout=120)
    assert race.names("declined") == ["h1"]
    assert "nvidia-smi failed" in (race.directory / "declined" / "h1").read_text()
    assert rv.state()["state"] == "RUNNING"
    eventually(lambda: len(rv.queue()) == 1, timeout=60)
    go_on(rv, 2)
    eventually(lambda: segments(rv)[2:] == [("3", "s1")], timeout=30)
    assert len((race.directory / "segments" / "2.next").read_text().split()) == 3


def test_a_chain_that_is_stopped_leaves_none_of_its_next_jobs(
    rv: Rv, eventually: Eventually
) -> None:
    """They wait for the segment to end, and would begin when it does."""
    fill(rv, eventually, "f1", "h1", "h2")
    race = start(rv, eventually)
    job = race.claim["owner"].partition(".")[0]
    rv.slurm("scancel", "--signal=USR1", "--batch", job)
    eventually((race.directory / "segments" / "1.next").exists)
    eventually(lambda: len(rv.queue()) == 4)
    assert {record["state"] for record in rv.state()["jobs"]} >= {"RUNNING", "PENDING"}
    assert rv("stop").returncode == 0
    eventually(lambda: not rv.queue(), timeout=60)
    assert rv.state()["state"] == "CANCELLED"
    assert segments(rv) == [("1", "s1")]


def test_what_is_used_up_counts_as_the_same_share_of_the_faster_time(
    rv: Rv, eventually: Eventually
) -> None:
    """The next job asks for what is left of its own time, not of the slower one's."""
    fillers = fill(rv, eventually, "h1", "h2")
    race = start(rv, eventually, "-x", "f1")
    claim = race.directory / "segments" / "1"
    half = int(race.claim["total"]) // 2
    draft = race.directory / "half"
    began = float(race.claim["started"]) - half
    draft.write_text(claim.read_text().replace(race.claim["started"], f"{began:.1f}"))
    draft.rename(claim)
    free(rv, eventually, {"h1": fillers["h1"]})
    go_on(rv, 1)
    eventually(lambda: segments(rv)[1:] == [("2", "h1")], timeout=60)
    total, used, elapsed = (int(race.claim[key]) for key in ("total", "used", "elapsed"))
    assert total < half
    assert abs(elapsed - half) < 30
    assert abs(used - total / 2) < 10


def test_it_leaves_the_gpus_that_a_larger_layout_needs(rv: Rv, eventually: Eventually) -> None:
    """One GPU of four, then all: the job that goes on as before would take one of them first."""
    filler = rv.fill("m1", 3, "-p", "four")
    eventually(lambda: rv.job_state(filler) == "RUNNING")
    race = start(rv, eventually, "--gpu", "1-4", node="m1")
    assert race.claim["strategy"].startswith("a40/1x1/")
    go_on(rv, 1)
    eventually(lambda: segments(rv)[1:] == [("2", "m1")], timeout=60)
    assert race.claim["strategy"].startswith("a40/1x1/"), "the others are taken"
    rv.slurm("scancel", filler)
    eventually(lambda: rv.job_state(filler) != "RUNNING")
    go_on(rv, 2)
    eventually(lambda: segments(rv)[2:] == [("3", "m1")], timeout=60)
    assert race.claim["strategy"].startswith("a40/1x4/")
    eventually(lambda: len(rv.queue()) == 1, timeout=60)


def test_it_goes_back_to_where_the_command_ran(rv: Rv, eventually: Eventually) -> None:
    """As where the faster GPU has no kernel for it, whatever it has written; not twice."""
    crashing = (
        'if [ "$SLURMD_NODENAME" = h1 ]; then echo "$RV_SEGMENT h1 0" >>{home}/segments;'
        ' echo 1 >"$RV_CHECKPOINT_DIR/arguments"; exit 3; fi'
    )
    fillers = fill(rv, eventually, "h1", "h2")
    start(rv, eventually, "-x", "f1", command=f"{crashing}\n{COMMAND}")
    free(rv, eventually, {"h1": fillers["h1"]})
    go_on(rv, 1)
    eventually(lambda: segments(rv)[1:] == [("2", "h1"), ("3", "s1")], timeout=60)
    assert rv.state()["state"] == "RUNNING"
    go_on(rv, 3)
    eventually(lambda: segments(rv)[3:] == [("4", "s1")], timeout=60)
    go_on(rv, 4, "done")
    eventually(lambda: not rv.queue(), timeout=60)
    assert rv.state()["state"] == "COMPLETED"
