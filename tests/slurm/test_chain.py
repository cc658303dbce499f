"""Chains of segments on a real Slurm: every step once, one live command, an end for each of them.

All the chains run at once, on nodes of their own; each test waits for its own. RV_CHAIN_MINUTES=3
(2 unless told) is how long a segment's job may take.
"""

import json
import os
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rv import sandbox
from tests.slurm.launching import REPOSITORY, RaceFiles, Rv, group, profile

Eventually = Callable[..., None]
MINUTES = int(os.environ.get("RV_CHAIN_MINUTES", "2"))
STEPS = 100 * MINUTES
"""Seconds of work: more than two segments can do and less than three can."""

PATIENCE = 60 * (4 * MINUTES + 4)

COUNTING = (REPOSITORY / "examples" / "resume.py").read_text(encoding="utf-8")
CRASHING = """
    open("starts", "a").write("started\\n")
    import no_such_module
    """
DEAF = """
    import signal, time
    open("starts", "a").write("started\\n")
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    time.sleep(3600)
    """
ALIVE = """
    import os, time
    from pathlib import Path

    me = f"{os.environ['RV_ME']} {os.environ['RV_SEGMENT']} {os.environ['RV_TOTAL_ELAPSED']}"
    with open("starts", "a") as log:
        log.write(f"{me}\\n")
    kept = Path(os.environ["RV_CHECKPOINT_DIR"], "beat")
    while not Path("go").exists():
        kept.write_text(me)
        with open("beats", "a") as log:
            log.write(f"{time.time():.1f} {os.environ['RV_ME']}\\n")
        time.sleep(0.5)
    """
BY_WORD = """
    import os, sys
    from pathlib import Path

    here = Path(os.environ["RV_CHECKPOINT_DIR"])
    with open("starts", "a") as log:
        log.write(os.environ["RV_SEGMENT"] + "\\n")
    assert not (here / ".rv-next").exists() and not (here / ".rv-stop").exists()
    (here / "work").write_text(os.environ["RV_SEGMENT"])
    (here / ".rv-next").write_text("again" if os.environ["RV_SEGMENT"] != "3" else "done")
    sys.exit(int(os.environ["RV_SEGMENT"] != "3"))
    """
TWINS = """
    import os, time
    from pathlib import Path

    with open("starts", "a") as log:
        log.write(os.environ["RV_SEGMENT"] + "\\n")
    while not Path("go").exists():
        time.sleep(0.1)
    time.sleep(3)
    word = "again" if os.environ["RV_SEGMENT"] == "1" else "done"
    Path(os.environ["RV_CHECKPOINT_DIR"], ".rv-next").write_text(word)
    """


STOPPED_AS_IT_SAVED = """
    import os
    from pathlib import Path

    here = Path(os.environ["RV_CHECKPOINT_DIR"])
    with open("starts", "a") as log:
        log.write(os.environ["RV_SEGMENT"] + "\\n")
    if (here / "work").exists():
        (here / ".rv-next").write_text("done")
    else:
        (here / "work").touch()
        (here / ".rv-next").write_text("again")
        (here.parent / "stop").write_text("stopped by rv\\n")
    """


DONE_AT_THE_TERM = """
    import os, signal, sys, time
    from pathlib import Path

    def end(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path(os.environ["RV_CHECKPOINT_DIR"], ".rv-next").write_text("Done\\r\\n")
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    open("starts", "a").write("started\\n")
    time.sleep(3600)
    """


@dataclass(frozen=True, kw_only=True)
class Chain:
    """One launched chain: `rv` as it was called, its folder, and its race."""

    rv: Rv
    race: RaceFiles

    @property
    def home(self) -> Path:
        return self.rv.home

    def lines(self, name: str) -> list[str]:
        """The lines that the command wrote into a file of its own."""
        path = self.home / name
        return path.read_text().splitlines() if path.exists() else []

    def state(self) -> dict[str, Any]:
        """What `rv ps` says of it."""
        return self.rv.state()

    def ends(self) -> list[str]:
        """What each segment said comes next."""
        return [one["next"] for one in self.state()["chain"]["segments"]]


def spec() -> dict[str, Any]:
    """Nodes for each chain; jobs of `two`, `one` and `brain` may take MINUTES."""
    groups = [
        group("t", "a100", nodes=2, gpus=2),
        group("o", "a100", nodes=5, gpus=1),
        group("p", "a100", nodes=1, gpus=4),
        group("b", "a100", nodes=2, gpus=1),
        group("s", "a100", nodes=1, gpus=1),
    ]
    made = profile(
        groups,
        {"two": ["t"], "one": ["o"], "low": ["p"], "high": ["p"], "brain": ["b"], "stop": ["s"]},
        cred_expire=5,
        scheduler={"bf_interval": 2, "sched_interval": 2},
        # What still runs on a node that was set down must not bring it back.
        slurm_conf={
            "PreemptType": "preempt/partition_prio",
            "PreemptMode": "REQUEUE",
            "ReturnToService": 1,
        },
    )
    for partition in made["partitions"]:
        if partition["name"] in ("two", "one", "stop"):
            partition["max_time"] = str(MINUTES)
        partition["priority"] = 10 if partition["name"] == "high" else 1
        if partition["name"] != "low":
            partition["options"] = {"PreemptMode": "OFF"}
    return made


@pytest.fixture(scope="module")
def box(sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sandbox.Sandbox]:
    """One cluster for all the chains."""
    path = tmp_path_factory.mktemp("profile") / "chains.yaml"
    path.write_text(json.dumps(spec()), encoding="utf-8")
    yield sandbox.up("chains", path)
    sandbox.down("chains")


@pytest.fixture(scope="module")
def start(box: sandbox.Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Chain]:
    """Start a chain of a program, detached, in a folder of its own."""

    def launch(name: str, program: str, command: str, *options: str, template: str = "") -> Chain:
        rv = Rv(box=box, home=tmp_path_factory.mktemp(name))
        return launch_chain(rv, program, command, *options, template=template)

    return launch


def launch_chain(rv: Rv, program: str, command: str, *options: str, template: str = "") -> Chain:
    """Start a chain of a program, detached, in the home of `rv`."""
    home = rv.home
    (home / "work.py").write_text(textwrap.dedent(program), encoding="utf-8")
    families = home / "config" / "rv" / "strategies"
    families.mkdir(parents=True)
    (families / "checkpoint.yaml").write_text(
        "{name: checkpoint, serves: checkpoint, defaults: {min_usable: 30s}}"
    )
    if template:
        (home / "config" / "rv" / "templates").mkdir()
        (home / "config" / "rv" / "templates" / "_chain.sh.j2").write_text(template)
    total = f"{4 * MINUTES + 4}m"
    words = ("--checkpoint", "--checkpoint-buffer", "20s", "--time", total, "-d")
    done = rv("up", "--run", command, *words, *options)
    assert done.returncode == 0, done.stderr
    return Chain(rv=rv, race=rv.last())


@pytest.fixture(scope="module", autouse=True)
def chains(start: Callable[..., Chain]) -> dict[str, Chain]:
    """Start those that take long together."""
    ranks = f"torchrun work.py {STEPS}"
    chain = (REPOSITORY / "templates" / "_chain.sh.j2").read_text(encoding="utf-8")
    assert "timeout 30 sbatch" in chain
    forbidden = chain.replace("timeout 30 sbatch", "timeout 30 false")
    return {
        "ranks": start("ranks", COUNTING, ranks, "--gpu", "4", "-p", "two"),
        "deaf": start("deaf", DEAF, "python3 work.py", "-p", "one"),
        "requeued": start(
            "requeued", COUNTING, f"exec python3 work.py {STEPS // 2 + STEPS // 4}", "-p", "one",
            template=forbidden,
        ),
        "again": start(
            "again", BY_WORD.replace('!= "3"', '!= "8"'), "python3 work.py", "-p", "one",
            template=forbidden,
        ),
        "later": start(
            "later", BY_WORD, "python3 work.py", "-p", "one", "--sbatch", "hold",
            "--sbatch", "begin=now+3",
        ),
        "stopped": start("stopped", COUNTING, f"python3 work.py {STEPS}", "-p", "stop"),
    }  # fmt: skip


def finished(chain: Chain, eventually: Eventually, timeout: float = PATIENCE) -> dict[str, Any]:
    """Wait for the end of a chain; nothing of it is left in the queue."""
    eventually((chain.race.directory / "ended").exists, timeout=timeout)
    eventually(lambda: not mine(chain))
    return chain.state()


def mine(chain: Chain) -> list[str]:
    """The jobs of a chain that Slurm still has."""
    return [name for name in chain.rv.queue() if chain.race.race_id in name]


def test_one_that_waits_for_its_time_waits_once(
    chains: dict[str, Chain], eventually: Eventually
) -> None:
    """Neither a hold nor a start time is asked for again with the next segments."""
    chain = chains["later"]
    (job,) = chain.race.submitted[1]
    chain.rv.slurm("scontrol", "release", str(job))
    said = finished(chain, eventually)

    assert (said["state"], chain.lines("starts")) == ("COMPLETED", ["1", "2", "3"])
    first, following = ((chain.race.directory / f"jobs/{n}.sh").read_text() for n in (1, 0))
    for directive in ("\n#SBATCH --hold\n", "\n#SBATCH --begin="):
        assert directive in first
        assert directive not in following


def test_one_that_crashes_on_import_runs_once(
    start: Callable[..., Chain], eventually: Eventually
) -> None:
    """No checkpoint, so that nothing would be different the next time."""
    chain = start("crash", CRASHING, "python3 work.py", "-p", "one")
    said = finished(chain, eventually, 60)
    assert (said["state"], said["exit_code"]) == ("FAILED", 1)
    assert chain.lines("starts") == ["started"]
    assert chain.ends() == ["crashed"]


def test_the_commands_own_word_counts(start: Callable[..., Chain], eventually: Eventually) -> None:
    """Exit code 1 with `again` goes on, as torchrun's code always is 1; `done` ends it."""
    chain = start("word", BY_WORD, "python3 work.py", "-p", "one")
    said = finished(chain, eventually, 90)
    assert (said["state"], said["exit_code"]) == ("COMPLETED", 0)
    assert chain.lines("starts") == ["1", "2", "3"]
    assert chain.ends() == ["again", "again", "done"]


def test_duplicates_of_a_segment_run_it_once(
    start: Callable[..., Chain], eventually: Eventually
) -> None:
    """As after an sbatch that timed out and had been accepted all the same."""
    chain = start("twins", TWINS, "python3 work.py", "-p", "low", "--time", "10m")
    eventually(lambda: chain.lines("starts"), timeout=60)
    job = chain.race.claim["owner"].partition(".")[0]
    script = str(chain.race.directory / "jobs" / "1.sh")
    name = f"--job-name=rv-{chain.race.race_id}-next"
    for _ in range(3):
        chain.rv.slurm("sbatch", name, f"--dependency=afterany:{job}", script, job)
    (chain.home / "go").touch()
    said = finished(chain, eventually, 90)
    assert said["state"] == "COMPLETED"
    assert chain.lines("starts") == ["1", "2"]


def test_a_preempted_one_resumes(start: Callable[..., Chain], eventually: Eventually) -> None:
    """Slurm puts it back, and it goes on with a new segment when the node is free again."""
    chain = start("preempted", ALIVE, "python3 work.py", "-p", "low", "--time", "10m")
    eventually(lambda: chain.lines("beats"), timeout=60)
    other = chain.rv.fill("p1", 4, "-p", "high")
    eventually(lambda: chain.rv.job_state(other) == "RUNNING", timeout=60)
    eventually(lambda: chain.state()["state"] == "PENDING")
    assert "segment 2 waits" in chain.state()["why"]
    chain.rv.slurm("scancel", other)
    eventually(lambda: len(chain.lines("starts")) == 2, timeout=90)
    (chain.home / "go").touch()
    said = finished(chain, eventually)
    assert said["state"] == "COMPLETED"
    assert [line.split()[1] for line in chain.lines("starts")] == ["1", "2"]
    assert len(chain.lines("starts")) == 2


def test_a_term_that_is_no_cancel_goes_on(
    start: Callable[..., Chain], eventually: Eventually
) -> None:
    """Slurm calls the job FAILED and does not put it back: the next rv command sends the segment."""
    chain = start("told", ALIVE, "python3 work.py", "-p", "low", "--time", "10m")
    eventually(lambda: chain.lines("beats"), timeout=60)
    job = chain.race.claim["owner"].partition(".")[0]
    chain.rv.slurm("scancel", "--batch", "--signal=TERM", job)
    eventually(lambda: chain.state() and len(chain.lines("starts")) == 2, timeout=90)
    (chain.home / "go").touch()
    assert finished(chain, eventually)["state"] == "COMPLETED"
    assert [line.split()[1] for line in chain.lines("starts")] == ["1", "2"]


def test_split_brain_leaves_one_live_command(
    start: Callable[..., Chain], eventually: Eventually
) -> None:
    """The node is out of touch and its command goes on; the twin elsewhere makes it stop."""
    chain = start("brain", ALIVE, "python3 work.py", "-p", "brain", "--time", "10m")
    eventually(lambda: chain.lines("beats"), timeout=60)
    first, node = chain.race.claim["owner"], chain.race.claim["nodes"]
    job = first.partition(".")[0]
    sandbox.stop_node(chain.rv.box, node)
    chain.rv.slurm("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    eventually(lambda: len(chain.lines("starts")) == 2, timeout=90)
    last = {me: float(at) for at, me in (line.split() for line in chain.lines("beats"))}
    second = chain.race.claim["owner"]
    assert second.startswith(f"{job}.1.")
    eventually(lambda: beats_after(chain, second, 5))
    assert last[first] < first_beat(chain, second), "both ran at once"
    chain.rv.slurm("scontrol", "update", f"nodename={node}", "state=resume")
    sandbox.start_node(chain.rv.box, node)
    (chain.home / "go").touch()
    assert finished(chain, eventually)["state"] == "COMPLETED"
    assert len(chain.lines("starts")) == 2


def beats_after(chain: Chain, owner: str, count: int) -> bool:
    """Whether an instance has run for a while, alone."""
    return Counter(line.split()[1] for line in chain.lines("beats"))[owner] >= count


def first_beat(chain: Chain, owner: str) -> float:
    """When an instance began."""
    return min(
        float(at) for at, me in (line.split() for line in chain.lines("beats")) if me == owner
    )


def test_one_that_ignores_the_signal_is_ended(
    chains: dict[str, Chain], eventually: Eventually
) -> None:
    """It left no checkpoint, so that another segment would do the same."""
    chain = chains["deaf"]
    said = finished(chain, eventually)
    assert said["state"] == "TIMEOUT"
    assert "did not stop on SIGUSR1 and left no checkpoint" in said["why"]
    assert chain.lines("starts") == ["started"]
    assert said["exit_code"] != 0


def test_stop_ends_a_chain_whole(chains: dict[str, Chain], eventually: Eventually) -> None:
    """The segment that runs and the one that waits."""
    chain = chains["stopped"]
    eventually(lambda: chain.state()["chain"]["segment"] == 2, timeout=PATIENCE)
    assert chain.state()["chain"]["last_checkpoint"]
    done = chain.rv("stop", chain.race.race_id)
    assert done.returncode == 0, done.stderr
    eventually(lambda: not mine(chain))
    assert chain.state()["state"] == "CANCELLED"
    steps = chain.lines("steps")
    eventually(lambda: not mine(chain))
    assert chain.lines("steps") == steps


def test_one_that_was_stopped_as_it_saved_goes_on_when_raced_again(
    start: Callable[..., Chain], eventually: Eventually
) -> None:
    """Its segment ended with code 0 before Slurm's SIGTERM came; its command has not ended."""
    chain = start("saved", STOPPED_AS_IT_SAVED, "python3 work.py", "-p", "one")
    said = finished(chain, eventually, 60)
    assert (said["state"], said["why"]) == ("CANCELLED", "stopped by you")
    again = chain.rv("rerun", chain.race.race_id)
    assert again.returncode == 0, again.stderr
    assert "goes on from race" in again.stderr
    assert chain.lines("starts") == ["1", "1"]


@pytest.mark.parametrize("how", ["stop", "scancel"])
def test_one_that_says_done_as_it_is_ended_is_done(
    start: Callable[..., Chain], eventually: Eventually, how: str
) -> None:
    """Its work was done when the SIGTERM came, or then: it is not to be done again."""
    chain = start(f"done-{how}", DONE_AT_THE_TERM, "python3 work.py", "-p", "one")
    eventually(lambda: chain.lines("starts"), timeout=60)
    if how == "stop":
        assert chain.rv("stop", chain.race.race_id).returncode == 0
    else:
        chain.rv.slurm("scancel", chain.race.claim["owner"].partition(".")[0])
    said = finished(chain, eventually, 60)
    assert (said["state"], said["exit_code"]) == ("COMPLETED", 0)
    assert chain.ends() == ["done"]


def test_a_torchrun_of_three_segments_runs_every_step_once(
    chains: dict[str, Chain], eventually: Eventually
) -> None:
    """Two nodes, four ranks: all of them are told to save, and torchrun's agents live on."""
    chain = chains["ranks"]
    said = finished(chain, eventually)
    assert (said["state"], said["exit_code"]) == ("COMPLETED", 0), chain.race.logs()
    assert sorted(map(int, chain.lines("steps"))) == list(range(1, STEPS + 1))
    assert chain.ends() == ["again", "again", "done"]
    written = (chain.race.directory / "output" / "node1.out").read_text()
    assert "segment 3 rank 3 from step" in written


def test_where_nodes_may_not_submit_the_job_runs_again(
    chains: dict[str, Chain], eventually: Eventually
) -> None:
    """By requeue: the same job id, a new segment."""
    chain = chains["requeued"]
    said = finished(chain, eventually)
    assert (said["state"], said["exit_code"]) == ("COMPLETED", 0), chain.race.logs()
    steps = STEPS // 2 + STEPS // 4
    assert sorted(map(int, chain.lines("steps"))) == list(range(1, steps + 1))
    assert len({one["job_id"] for one in said["chain"]["segments"]}) == 1
    assert chain.ends()[:-1] == ["again"] * (len(chain.ends()) - 1)


def test_a_job_that_runs_again_is_not_too_early_for_its_own_node(
    chains: dict[str, Chain], eventually: Eventually
) -> None:
    """A node refuses the same job within the second: "credential revoked", and Slurm fails it."""
    chain = chains["again"]
    said = finished(chain, eventually)
    assert said["state"] == "COMPLETED"
    assert chain.lines("starts") == [str(number) for number in range(1, 9)]
    assert len({one["job_id"] for one in said["chain"]["segments"]}) == 1
