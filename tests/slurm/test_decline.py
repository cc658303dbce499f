"""Nodes that are not what Slurm says: the race passes over them, names them, and goes on."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from rv import sandbox
from tests.slurm.launching import Rv, group, profile

Eventually = Callable[..., None]
BAD = ("b1", "b2", "b3")


@pytest.fixture(scope="module")
def box(sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sandbox.Sandbox]:
    """Slurm prefers the nodes b1, b2, b3 to g1; o1 says it is another model; p1-p3 have two GPUs."""
    odd = group("o", "h100")
    odd["gres"][0]["type"] = "a100"
    spec = profile(
        [
            group("b", "a100", nodes=3),
            group("g", "a100", weight=50),
            odd,
            group("p", "a100", nodes=3, gpus=2),
        ],
        {"main": ["b", "g"], "odd": ["o"], "pairs": ["p"]},
    )
    path = tmp_path_factory.mktemp("profile") / "liars.yaml"
    path.write_text(yaml.safe_dump(spec))
    yield sandbox.up("liars", path)
    sandbox.down("liars")


@pytest.fixture
def rv(box: sandbox.Sandbox, tmp_path: Path) -> Iterator[Rv]:
    """The sandbox with honest, idle nodes, before and after."""
    rv = Rv(box=box, home=tmp_path)
    rv.wait_for_idle_nodes()
    yield rv
    rv.slurm("scancel", "--user=root")
    for node in (*BAD, "g1", "o1", "p1", "p2", "p3"):
        sandbox.set_fault(box, node, None)
    (box.directory / "bin" / "scontrol").unlink(missing_ok=True)


def test_bad_nodes_are_passed_over_and_named(rv: Rv, eventually: Eventually) -> None:
    """One broken, one hanging, one with another model: Slurm prefers each to the good one."""
    for node, fault in zip(BAD, ("error", "hang", "wrong-model"), strict=True):
        sandbox.set_fault(rv.box, node, fault)
    done = rv("up", "--gpu", "4", "--time", "10m", "-p", "main", "--run", rv.count_starts)
    race = rv.last()
    assert done.returncode == 0, done.stderr + race.logs()
    assert race.claim["nodes"] == "g1"
    assert rv.starts == {race.race_id: 1}
    assert "b1: nvidia-smi failed: Failed to initialize NVML" in done.stderr
    assert "b2: nvidia-smi does not answer" in done.stderr
    assert "b3: GPU 0 is a Tesla K80 with 11441 MiB" in done.stderr
    assert race.submitted == {1: [int(race.claim["owner"].partition(".")[0])]}
    said = rv.state()
    assert said["state"] == "COMPLETED"
    assert {warning.partition(":")[0] for warning in said["warnings"]} == set(BAD)
    eventually(lambda: not rv.queue())


@pytest.mark.parametrize("fault", ["error", "missing-gpu"])
def test_the_same_job_runs_elsewhere_when_a_node_frees(
    rv: Rv, eventually: Eventually, fault: str
) -> None:
    """The bad node is the only free one; a good one frees later."""
    sandbox.set_fault(rv.box, "b1", fault)
    filler = rv.fill("g1", 4)
    eventually(lambda: rv.job_state(filler) == "RUNNING")
    options = ("--gpu", "4", "--time", "10m", "-p", "main", "-x", "b2,b3")
    with rv.launch("up", *options, "--run", rv.count_starts) as client:
        eventually(lambda: rv.files() and rv.last().names("declined") == ["b1"], timeout=60)
        race = rv.last()
        (job,) = race.submitted[1]
        eventually(lambda: rv.job_state(job) == "PENDING")
        freed = time.time()
        rv.slurm("scancel", filler)
        out, err = client.communicate(timeout=60)
    assert client.returncode == 0, out + err
    assert race.claim["owner"].startswith(f"{job}.")
    assert race.claim["nodes"] == "g1"
    assert float(race.claim["started"]) - freed < 10
    assert rv.starts == {race.race_id: 1}
    assert race.submitted == {1: [job]}
    assert "node check: b1" in err


def test_a_node_with_a_missing_gpu_is_rejected(rv: Rv) -> None:
    """Slurm gave four, three are there."""
    sandbox.set_fault(rv.box, "b1", "missing-gpu")
    options = ("--gpu", "4", "--time", "10m", "-p", "main", "-x", "b2,b3")
    done = rv("up", *options, "--run", rv.count_starts)
    assert done.returncode == 0, done.stderr
    assert "b1: only 3 of 4 GPUs are there" in done.stderr
    assert rv.last().claim["nodes"] == "g1"


def test_where_all_nodes_are_bad_the_race_ends_and_names_them(
    rv: Rv, eventually: Eventually
) -> None:
    """Exit code 1, no start, no job left."""
    for node in (*BAD, "g1"):
        sandbox.set_fault(rv.box, node, "error")
    options = ("--gpu", "4", "--time", "10m", "-p", "main", "--json")
    done = rv("up", *options, "--run", rv.count_starts)
    assert done.returncode == 1, done.stderr + rv.last().logs()
    said = rv.state()
    assert said["state"] == "DECLINED"
    assert said["winner"] is None
    for node in (*BAD, "g1"):
        assert f"{node}: nvidia-smi failed" in said["why"]
        assert node in done.stderr
    assert not rv.starts
    eventually(lambda: not rv.queue())


@pytest.mark.parametrize("strict", [False, True], ids=["warned", "strict"])
def test_another_model_with_enough_memory(rv: Rv, strict: bool) -> None:
    """It is taken with a warning, unless the user asked otherwise."""
    options = ("--gpu", "4", "--time", "10m", "-p", "odd", *(["--strict-gpu"] if strict else []))
    done = rv("up", *options, "--run", rv.count_starts)
    assert "is a NVIDIA H100 80GB HBM3; a100 was promised" in done.stderr
    assert done.returncode == int(strict)
    assert rv.starts.total() == int(not strict)
    assert rv.state()["state"] == ("DECLINED" if strict else "COMPLETED")


def test_one_bad_node_of_a_pair_sends_the_job_to_another_pair(rv: Rv) -> None:
    """Two nodes of three are good."""
    sandbox.set_fault(rv.box, "p1", "error")
    command = f'echo "$RV_RACE $SLURMD_NODENAME" >> {rv.starts_file}'
    options = ("--gpu", "4", "--time", "10m", "-p", "pairs", "--multi-node")
    done = rv("up", *options, "--run", command)
    race = rv.last()
    assert done.returncode == 0, done.stderr + race.logs()
    assert sorted(rv.starts_file.read_text().split()[1::2]) == ["p2", "p3"]
    assert "p1: nvidia-smi failed" in done.stderr
    assert race.names("declined") == ["p1"]
    assert race.submitted == {1: [int(race.claim["owner"].partition(".")[0])]}


def test_the_node_is_blamed_on_which_nothing_could_begin(rv: Rv, eventually: Eventually) -> None:
    """Its slurmd is gone, and Slurm has not noticed: srun fails on the first node, which is sound."""
    sandbox.stop_node(rv.box, "p2")
    try:
        rv(
            "up",
            "--gpu",
            "4",
            "--time",
            "10m",
            "-p",
            "pairs",
            "--multi-node",
            "-d",
            "--run",
            "true",
        )
        race = rv.last()
        eventually(lambda: race.names("declined") or race.claim, timeout=90)
        assert race.names("declined") == ["p2"]
    finally:
        rv("stop")
        sandbox.start_node(rv.box, "p2")


def test_a_node_whose_gpus_somebody_uses_is_rejected_unless_that_is_allowed(rv: Rv) -> None:
    """The process, its user and its memory are named; it is no fault of the node's hardware."""
    sandbox.set_fault(rv.box, "b1", "busy")
    options = ("--gpu", "4", "--time", "10m", "-p", "main", "-x", "b2,b3")
    done = rv("up", *options, "--run", rv.count_starts)
    assert done.returncode == 0, done.stderr
    said = "b1: GPU 0 is in use: python of root (process 1, 40960 MiB; GPU 100 % busy)"
    assert said in done.stderr
    assert rv.last().claim["nodes"] == "g1"
    command = "echo busy GPUs: $RV_ALLOW_BUSY_GPUS"
    allowed = rv("up", *options, "--allow-busy-gpus", "--run", command)
    assert (allowed.returncode, "busy GPUs: 1" in allowed.stdout) == (0, True), allowed.stderr
    assert rv.last().claim["nodes"] == "b1"


def forbid_scontrol(rv: Rv) -> None:
    """As where nodes may not call it."""
    program = rv.box.directory / "bin" / "scontrol"  # first in the PATH of jobs only
    program.write_text("#!/bin/sh\necho 'scontrol: error: Access/permission denied' >&2\nexit 1\n")
    program.chmod(0o755)


def test_a_pair_with_a_bad_node_is_given_up_without_scontrol_too(
    rv: Rv, eventually: Eventually
) -> None:
    """Which names only Slurm could list, the check itself has said."""
    forbid_scontrol(rv)
    sandbox.set_fault(rv.box, "p1", "error")
    options = ("--gpu", "4", "--time", "10m", "-p", "pairs", "--multi-node", "-d")
    assert rv("up", *options, "--run", rv.count_starts).returncode == 0
    race = rv.last()
    eventually(lambda: race.names("again") == ["1"] and not rv.queue(), timeout=60)
    assert race.names("declined") == ["p1"]
    rv.states()
    eventually(lambda: race.claim and not rv.queue(), timeout=60)
    assert race.claim["nodes"] == "p[2-3]"
    assert rv.state()["state"] == "COMPLETED"


def test_where_nodes_may_not_call_scontrol_rv_submits_again(rv: Rv, eventually: Eventually) -> None:
    """The job leaves its mark and ends; the next rv command sends it to another node."""
    forbid_scontrol(rv)
    sandbox.set_fault(rv.box, "b1", "error")
    options = ("--gpu", "4", "--time", "10m", "-p", "main", "-d")
    assert rv("up", *options, "--run", rv.count_starts).returncode == 0
    race = rv.last()
    eventually(lambda: race.names("again") == ["1"] and not rv.queue(), timeout=60)
    assert race.names("declined") == ["b1"]
    rv.states()
    eventually(lambda: race.claim and not rv.queue(), timeout=60)
    assert race.claim["nodes"] != "b1"
    assert len(race.submitted[1]) == 2
    assert rv.starts == {race.race_id: 1}
    assert rv.state()["state"] == "COMPLETED"


IN_TWO = (
    'echo "$RV_SEGMENT" >>{home}/segments; [ "$RV_SEGMENT" = 2 ] || {{ touch {home}/begun;'
    ' until [ -e {home}/go ]; do sleep 0.1; done; echo x >"$RV_CHECKPOINT_DIR/x";'
    ' echo again >"$RV_CHECKPOINT_DIR/.rv-next"; }}'
)
"""A command of two segments, the first of which waits for a word."""


def start_chain(rv: Rv, eventually: Eventually, *options: str) -> None:
    """Start one, and wait until its first segment runs."""
    words = ("--gpu", "4", "--time", "20m", "--checkpoint", "-d", *options)
    done = rv("up", *words, "--run", IN_TWO.format(home=rv.home))
    assert done.returncode == 0, done.stderr
    eventually((rv.home / "begun").exists, timeout=60)


def test_the_next_segment_goes_elsewhere_where_its_node_is_bad(
    rv: Rv, eventually: Eventually
) -> None:
    """Nodes may not call scontrol: its job leaves a mark, and says COMPLETED to Slurm."""
    forbid_scontrol(rv)
    start_chain(rv, eventually, "-p", "main")
    node = rv.last().claim["nodes"]
    sandbox.set_fault(rv.box, node, "error")
    (rv.home / "go").touch()
    eventually(lambda: rv.last().names("again") == ["1"] and not rv.queue(), timeout=60)
    assert rv.state()["state"] == "PENDING"

    eventually(lambda: rv.state()["state"] == "COMPLETED", timeout=90)

    assert (rv.home / "segments").read_text().split() == ["1", "2"]
    assert rv.last().claim["nodes"] != node
    assert rv.last().names("again") == []


def test_a_chain_without_a_good_node_is_declined(rv: Rv, eventually: Eventually) -> None:
    """Its second job ends with code 0 on the only node: the command never ended."""
    start_chain(rv, eventually, "-p", "odd", "--type", "a100")
    sandbox.set_fault(rv.box, "o1", "error")
    (rv.home / "go").touch()

    eventually(lambda: rv.state()["state"] == "DECLINED", timeout=90)

    assert "o1: nvidia-smi failed" in str(rv.state()["why"])
