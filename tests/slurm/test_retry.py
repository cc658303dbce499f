"""`--retry N`: a race whose node was lost is raced again elsewhere, at most so often."""

import json
from collections.abc import Callable

import pytest

from rv import sandbox
from rv.models.job import JobState
from rv.models.race import RaceState, RaceStatus
from rv.race.sources import Sources
from rv.race.status import resolve
from rv.workflow.follow import failed_nodes, may_retry
from tests.slurm.launching import RaceFiles, Rv, group, profile
from tests.slurm.test_lost import Eventually, lose
from tests.unit.race.test_status import CLAIM, RACE, SENT, WON, record


@pytest.fixture
def rv(fresh_sandbox: Callable[..., sandbox.Sandbox], tmp_path) -> Rv:
    """Three nodes that can do the same."""
    return Rv(box=fresh_sandbox(profile([group("n", "a100", nodes=3)])), home=tmp_path)


def lose_winner(rv: Rv, eventually: Eventually) -> RaceFiles:
    """The node under the latest race goes down."""
    race = rv.last()
    job_id = race.claim["owner"].partition(".")[0]
    eventually(lambda: rv.job_state(job_id) == "RUNNING")
    lose(rv, race.claim["nodes"])
    return race


def test_a_lost_race_is_raced_again_on_other_nodes(rv: Rv, eventually: Eventually) -> None:
    """A new race each time, at most twice; the code is the last one's, and each starts once."""
    command = (
        f'{rv.count_starts}; [ "$(wc -l <{rv.starts_file})" -lt 3 ] || exit 7; exec sleep 3600'
    )
    words = ("up", "--gpu", "4", "--time", "10m", "--retry", "5", "--json", "--run", command)
    with rv.launch(*words) as client:
        for turn in (1, 2):
            eventually(lambda turn=turn: len(rv.starts) == turn, timeout=90)
            lose_winner(rv, eventually)
        out, err = client.communicate(timeout=240)
    assert client.returncode == 7, err
    first, second, third = rv.files()
    assert rv.starts == {race.race_id: 1 for race in (first, second, third)}
    nodes = [race.claim["nodes"] for race in (first, second, third)]
    assert len(set(nodes)) == 3, "what failed is left out"
    assert f"racing again (1 of 5) without {nodes[0]}: race {second.race_id}" in err
    assert f"racing again (2 of 5) without {nodes[1]}: race {third.race_id}" in err
    assert f"race {first.race_id} LOST" in err
    said = json.loads(out)
    assert (said["race"], said["state"], said["exit_code"]) == (third.race_id, "FAILED", 7)
    states = {race: (row["state"], row["retry_of"]) for race, row in rv.states().items()}
    assert states == {
        first.race_id: ("LOST", None),
        second.race_id: ("LOST", first.race_id),
        third.race_id: ("FAILED", second.race_id),
    }
    assert f"retries {second.race_id}" in rv("ps").stdout
    eventually(lambda: not rv.queue(), timeout=60)


CHAIN = """
import os, signal, sys, time
from pathlib import Path

kept = Path(os.environ["RV_CHECKPOINT_DIR"], "kept")


def end(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(4)
    kept.with_name("new").write_text("the last")
    kept.with_name("new").rename(kept)
    sys.exit(1)


if kept.exists():
    print("from", kept.read_text())
else:
    signal.signal(signal.SIGTERM, end)
    kept.write_text("the first")
    time.sleep(3600)
"""


def test_a_lost_chain_that_is_raced_again_goes_on(rv: Rv, eventually: Eventually) -> None:
    """What it saves when it sees the stop, on a node out of touch, is what the next begins with."""
    (rv.home / "chain.py").write_text(CHAIN)
    words = ("run", "--gpu", "4", "--checkpoint", "--time", "20m", "--retry", "1")
    with rv.launch(*words, "python chain.py") as client:
        eventually(lambda: list(rv.home.glob("races/*/checkpoints/kept")), timeout=90)
        race = rv.last()
        job_id = race.claim["owner"].partition(".")[0]
        eventually(lambda: rv.job_state(job_id) == "RUNNING")
        rv.slurm("scontrol", "update", f"jobid={job_id}", "requeue=0")
        lose(rv, race.claim["nodes"])
        out, err = client.communicate(timeout=240)
    assert client.returncode == 0, err
    assert f"race {race.race_id} LOST" in err
    assert "from the last" in out
    assert "wrote no end: its node has 45 s to stop what it may run" in err
    assert rv.state()["resumes"] == race.race_id


def test_without_another_node_the_loss_is_the_end(rv: Rv, eventually: Eventually) -> None:
    """It says what is in the way, and the code is that of the race that ran."""
    command = f"{rv.count_starts}; exec sleep 3600"
    rest = "n2,n3"
    words = ("up", "--gpu", "4", "--time", "10m", "--retry", "1", "-x", rest, "--run", command)
    with rv.launch(*words) as client:
        eventually(lambda: rv.starts, timeout=90)
        race = lose_winner(rv, eventually)
        _, err = client.communicate(timeout=240)
    assert client.returncode == 1
    assert "not raced again: " in err.splitlines()[-1]
    assert rv.starts == {race.race_id: 1}


@pytest.mark.parametrize("more", [("-d", "--run", "true"), ()], ids=["detached", "shell"])
def test_retry_needs_somebody_who_watches(on_small, tmp_path, more: tuple[str, ...]) -> None:
    """Nothing is submitted."""
    rv = Rv(box=on_small, home=tmp_path)
    done = rv("up", "--json", "--retry", "1", *more)
    assert done.returncode == 2, done.stderr
    assert json.loads(done.stdout)["error"]["kind"] == "usage"
    assert rv.files() == []


def ended(state: RaceState, *words: str, claimed: bool = False) -> RaceStatus:
    """A race that is over, with these words of Slurm for its jobs."""
    rows = [record(word, n, nodes=f"a{n}") for n, word in enumerate(words, 1)]
    files = WON if claimed else SENT
    status = resolve(
        RACE, files, Sources(records=rows, now_s=CLAIM.started_at + 9, queue_answered=True)
    )
    assert status.state is state
    return status


def test_only_a_node_is_reason_enough() -> None:
    """Not what the command did, nor what a person did; and the nodes are those that failed."""
    lost = ended(RaceState.LOST, "NODE_FAIL", claimed=True)
    assert (may_retry(lost), failed_nodes(lost)) == (True, ("a1",))
    broken = ended(RaceState.FAILED, "BOOT_FAIL", "FAILED")
    assert (may_retry(broken), failed_nodes(broken)) == (True, ("a1",))
    assert JobState.BOOT_FAIL.name in broken.why
    assert not may_retry(ended(RaceState.FAILED, "FAILED", "FAILED"))
    assert not may_retry(ended(RaceState.FAILED, "FAILED", claimed=True))
    assert not may_retry(ended(RaceState.CANCELLED, "CANCELLED", "CANCELLED"))
    assert not may_retry(ended(RaceState.TIMEOUT, "TIMEOUT", claimed=True))
