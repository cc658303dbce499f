"""Between two segments of a chain: one job is sent for the next, and a cancelled chain ends."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rv import sandbox
from tests.slurm.launching import Rv, group, profile
from tests.slurm.test_chain import ALIVE, Chain, launch_chain, mine

Eventually = Callable[..., None]
Start = Callable[[], Chain]
SLOW_SBATCH = '#!/bin/bash\nsleep 3\nPATH=${PATH#*:} exec sbatch "$@"\n'
"""So slow that whoever looks meanwhile sees no job."""


@pytest.fixture(scope="module")
def box(sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sandbox.Sandbox]:
    """Two nodes in two partitions: jobs of `dear` cancel those of `cheap`."""
    made = profile(
        [group("c", "a100", nodes=2, gpus=1)],
        {"cheap": ["c"], "dear": ["c"]},
        cred_expire=5,
        scheduler={"bf_interval": 2, "sched_interval": 2},
        slurm_conf={"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"},
    )
    cheap, dear = made["partitions"]
    cheap |= {"priority": 1, "options": {"PreemptMode": "CANCEL"}}
    dear |= {"priority": 10, "options": {"PreemptMode": "OFF"}}
    path = tmp_path_factory.mktemp("profile") / "handover.yaml"
    path.write_text(json.dumps(made), encoding="utf-8")
    yield sandbox.up("handover", path)
    sandbox.down("handover")


@pytest.fixture
def chain(box: sandbox.Sandbox, tmp_path: Path, eventually: Eventually) -> Iterator[Chain]:
    """A chain whose first segment runs, on the first node: the second is taken."""
    rv = Rv(box=box, home=tmp_path)
    taken = rv.fill("c2", 1, "-p", "dear", "--job-name=hog")
    eventually(lambda: rv.job_state(taken) == "RUNNING", timeout=60)
    made = launch_chain(rv, ALIVE, "python3 work.py", "-p", "cheap", "--time", "10m")
    eventually(lambda: made.lines("beats"), timeout=60)
    yield made
    (rv.home / "go").touch()
    rv("stop", made.race.race_id)
    rv.slurm("scancel", "-n", "hog")
    eventually(lambda: not rv.slurm("squeue", "-h"), timeout=60)


def job_of(chain: Chain) -> str:
    """The job that runs the latest segment."""
    return chain.race.claim["owner"].partition(".")[0]


def next_jobs(chain: Chain) -> list[str]:
    """The jobs of a later segment that wait."""
    name = f"--name=rv-{chain.race.race_id}-next"
    return chain.rv.slurm("squeue", "-h", "-t", "PD", name, "-o", "%A").split()


def time_is_up(chain: Chain, segment: int, eventually: Eventually) -> str:
    """Give the sign that Slurm gives before the walltime; return the job that is sent then."""
    eventually(lambda: chain.race.claim["segment"] == str(segment), timeout=60)
    chain.rv.slurm("scancel", "--batch", "--signal=USR1", job_of(chain))
    sent = chain.race.directory / "segments" / f"{segment}.next"
    eventually(sent.exists, timeout=60)
    return sent.read_text().strip()


def reach_limit(chain: Chain, job: str) -> None:
    """Have Slurm end a job at its limit when it next looks, every 30 s.

    Its end is now, and no moment later: Slurm could look before it, warn the job, and let it hand
    over for 30 s.
    """
    chain.rv.slurm("scontrol", "update", f"jobid={job}", "endtime=now")


def test_three_clients_send_one_next_segment(chain: Chain, eventually: Eventually) -> None:
    """After a preemption that cancels; and the chain goes on to its end."""
    first = job_of(chain)
    hog = chain.rv.fill("c1", 1, "-p", "dear", "--job-name=hog")
    eventually(lambda: chain.rv.job_state(first) == "PREEMPTED", timeout=90)
    eventually((chain.race.directory / "segments" / "1.ended").exists)
    slow = chain.home / "bin"
    slow.mkdir()
    (slow / "sbatch").write_text(SLOW_SBATCH)
    (slow / "sbatch").chmod(0o755)
    path = f"{slow}:{chain.rv.environment['PATH']}"
    clients = [
        replace(chain.rv, more={"XDG_CACHE_HOME": str(chain.home / f"cache{n}"), "PATH": path})
        for n in range(3)
    ]
    for asking in [client.launch("ps") for client in clients]:
        asking.communicate(timeout=120)
    assert len(next_jobs(chain)) == 1

    chain.rv.slurm("scancel", hog)
    eventually((chain.race.directory / "segments" / "2").exists, timeout=60)
    time_is_up(chain, 2, eventually)
    chain.rv.slurm("scancel", "-n", "hog")
    (chain.home / "go").touch()
    eventually(lambda: not mine(chain), timeout=90)
    assert chain.state()["state"] == "COMPLETED"
    assert [line.split()[1] for line in chain.lines("starts")] == ["1", "2", "3"]


def test_a_job_that_waits_for_another_is_not_the_next_segment(
    chain: Chain, eventually: Eventually
) -> None:
    """Such as one that a client sent when an earlier segment was over: it is cancelled."""
    name, script = (
        f"--job-name=rv-{chain.race.race_id}-next",
        chain.race.directory / "jobs" / "1.sh",
    )
    stray = chain.rv.slurm("sbatch", "--parsable", name, "--begin=now+1hour", str(script)).strip()
    following = time_is_up(chain, 1, eventually)
    assert following != stray
    eventually(lambda: next_jobs(chain) == [following])


@pytest.mark.parametrize("signal", ["TERM", "KILL"])
def test_a_cancelled_chain_ends_though_its_next_job_was_sent(
    chain: Chain, eventually: Eventually, signal: str
) -> None:
    """Nobody looks: killed at once, it leaves it to the next segment's job to see that."""
    time_is_up(chain, 1, eventually)
    cancel(chain, signal)
    eventually(lambda: not mine(chain), timeout=90)
    assert len(chain.lines("starts")) == 1
    assert chain.state()["state"] == "CANCELLED"


def cancel(chain: Chain, signal: str) -> None:
    """Cancel the job that runs; Slurm sends it SIGTERM, and SIGKILL later, unless told to."""
    how = [] if signal == "TERM" else ["--full", "--signal=KILL"]
    chain.rv.slurm("scancel", *how, job_of(chain))


def test_a_cancelled_segment_cancels_the_job_of_the_next(
    chain: Chain, eventually: Eventually
) -> None:
    """At once, by itself: when that job starts, Slurm may have forgotten how this one ended."""
    chain.rv.slurm("scontrol", "hold", time_is_up(chain, 1, eventually))
    cancel(chain, "TERM")
    eventually(lambda: not mine(chain), timeout=60)
    assert chain.ends() == ["stopped"]
    assert chain.state()["state"] == "CANCELLED"


def test_a_client_ends_a_cancelled_chain_whose_next_job_waits(
    chain: Chain, eventually: Eventually
) -> None:
    """Its job may wait for hours until it can see that itself."""
    following = time_is_up(chain, 1, eventually)
    chain.rv.slurm("scontrol", "hold", following)
    cancel(chain, "KILL")
    eventually(lambda: chain.state()["state"] == "CANCELLED", timeout=60)
    eventually(lambda: not mine(chain))
    assert len(chain.lines("starts")) == 1


def test_a_segment_that_slurm_ends_at_its_limit_is_gone_on_with(
    chain: Chain, eventually: Eventually
) -> None:
    """It has noted its checkpoint and does not stop: Slurm's TIMEOUT is an end of this segment."""
    first, states = job_of(chain), set[str]()
    following = time_is_up(chain, 1, eventually)
    reach_limit(chain, first)

    def is_ended(job: str, state: str) -> bool:
        states.add(chain.state()["state"])
        return bool(chain.rv.job_state(job) == state)

    eventually(lambda: is_ended(first, "TIMEOUT"), timeout=60)
    eventually(lambda: is_ended(following, "RUNNING"), timeout=60)
    eventually(lambda: len(chain.lines("starts")) == 2, timeout=60)
    (chain.home / "go").touch()
    eventually(lambda: is_ended(following, "COMPLETED"), timeout=60)
    assert chain.state()["state"] == "COMPLETED"
    assert states <= {"RUNNING", "PENDING", "COMPLETED"}
    assert chain.ends() == ["again", "done"]


def test_a_client_goes_on_after_slurms_timeout(chain: Chain, eventually: Eventually) -> None:
    """The partition took no job from the node: the next rv command sends the segment."""
    first, states = job_of(chain), set[str]()
    reach_limit(chain, first)
    chain.rv.slurm("scontrol", "update", "partitionname=cheap", "allocnodes=none")
    try:
        eventually(lambda: chain.rv.job_state(first) == "TIMEOUT", timeout=60)
        eventually(lambda: not mine(chain), timeout=60)
    finally:
        chain.rv.slurm("scontrol", "update", "partitionname=cheap", "allocnodes=ALL")

    def has_begun_again() -> bool:
        states.add(chain.state()["state"])
        return len(chain.lines("starts")) == 2

    eventually(has_begun_again, timeout=60)
    (chain.home / "go").touch()
    eventually(lambda: not mine(chain), timeout=60)
    assert chain.state()["state"] == "COMPLETED"
    assert states <= {"RUNNING", "PENDING"}


@pytest.mark.parametrize("moment", ["in a segment", "in the hand-over", "between segments"])
def test_a_stopped_chain_is_cancelled_at_once(
    chain: Chain, eventually: Eventually, moment: str
) -> None:
    """With the last of its jobs, whatever accounting has heard by then."""
    if moment != "in a segment":
        time_is_up(chain, 1, eventually)
    if moment == "between segments":
        chain.rv.slurm("scontrol", "hold", *next_jobs(chain))
        eventually((chain.race.directory / "segments" / "1.ended").exists, timeout=60)
        eventually(lambda: len(mine(chain)) == 1, timeout=60)
    with daemon_away(chain.rv.box, "slurmdbd"):
        chain.rv("stop", chain.race.race_id)
        eventually(lambda: not mine(chain), timeout=60)
        stopped = chain.state()
    assert (stopped["state"], stopped["why"]) == ("CANCELLED", "stopped by you")
    assert chain.state()["state"] == "CANCELLED"
    assert len(chain.lines("starts")) == 1


@contextmanager
def daemon_away(box: sandbox.Sandbox, daemon: str) -> Iterator[None]:
    """Killed, and started again."""
    sandbox.stop_daemon(box, daemon)
    try:
        yield
    finally:
        sandbox.start_daemon(box, daemon)


def test_a_next_job_whose_dependency_was_removed_waits(
    chain: Chain, eventually: Eventually
) -> None:
    """The segment before still saves: it is not taken over, and nothing of it is lost."""
    following = time_is_up(chain, 1, eventually)
    chain.rv.slurm("scancel", "-n", "hog")
    chain.rv.slurm("scontrol", "update", f"jobid={following}", "dependency=")
    eventually(lambda: says_that_it_waits(chain), timeout=60)
    (chain.home / "go").touch()
    eventually(lambda: not mine(chain), timeout=90)
    assert chain.state()["state"] == "COMPLETED"
    assert [line.split()[1] for line in chain.lines("starts")] == ["1", "2"]
    ended, begun = (chain.race.directory / "segments" / name for name in ("1.ended", "2"))
    assert ended.stat().st_mtime <= begun.stat().st_mtime


def says_that_it_waits(chain: Chain) -> bool:
    """Whether a job of the race waits for the segment before."""
    logs = (chain.race.directory / "jobs").glob("*.log")
    return any("still runs the segment before" in path.read_text() for path in logs)


def test_a_chain_whose_jobs_were_renamed_goes_on(chain: Chain, eventually: Eventually) -> None:
    """A job's name is its user's to change: the one that saves, and the one that waits."""
    first, following = job_of(chain), time_is_up(chain, 1, eventually)
    for job in (first, following):
        chain.rv.slurm("scontrol", "update", f"jobid={job}", "name=mine")
    eventually(lambda: len(chain.lines("starts")) == 2, timeout=60)
    eventually(lambda: chain.race.claim["segment"] == "2")
    eventually(lambda: chain.state()["state"] == "RUNNING")
    (chain.home / "go").touch()
    eventually(lambda: chain.rv.job_state(following) == "COMPLETED", timeout=60)
    assert chain.state()["state"] == "COMPLETED"
    assert chain.ends() == ["again", "done"]
