"""The layout reaches the command: torchrun on 1x4 and 2x2, and the facts each node's task finds."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from rv import bundle, sandbox
from tests.slurm.launching import REPOSITORY, Rv, group, profile

Eventually = Callable[..., None]
Facts = list[dict[str, str]]
TRAIN = ("--gpu", "4", "--time", "10m", "--run", "torchrun train.py")


@pytest.fixture(scope="module")
def box(sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sandbox.Sandbox]:
    """One node of four GPUs, two nodes of two."""
    spec = profile(
        [group("w", "a100"), group("p", "a40", nodes=2, gpus=2)], {"wide": ["w"], "pairs": ["p"]}
    )
    path = tmp_path_factory.mktemp("profile") / "layouts.yaml"
    path.write_text(yaml.safe_dump(spec))
    yield sandbox.up("layouts", path)
    sandbox.down("layouts")


@pytest.fixture
def rv(box: sandbox.Sandbox, tmp_path: Path) -> Iterator[Rv]:
    rv = Rv(box=box, home=tmp_path)
    rv.wait_for_idle_nodes()
    yield rv
    rv.slurm("scancel", "--user=root")


def trained(rv: Rv) -> str:
    """Run the example; what it printed."""
    done = rv(*("up", *TRAIN), cwd=REPOSITORY / "examples")
    assert done.returncode == 0, done.stderr + done.stdout + rv.last().logs()
    return done.stdout


def test_torchrun_on_one_node_of_four(rv: Rv) -> None:
    """Every rank is there once."""
    said = trained(rv)
    assert "[TRAIN] world=4 ranks counted=4" in said
    assert [f"rank {rank}/4 " in said for rank in range(4)] == [True] * 4
    assert rv.state()["winner"]["strategy"].startswith("a100/1x4")


def test_torchrun_on_two_nodes_of_two_when_only_that_fits(rv: Rv, eventually: Eventually) -> None:
    """The wide node is busy; ranks 0 and 1 run on the first node, 2 and 3 on the second."""
    filler = rv.fill("w1", 4)
    eventually(lambda: rv.job_state(filler) == "RUNNING")
    said = trained(rv)
    assert "[TRAIN] world=4 ranks counted=4" in said
    assert rv.state()["winner"]["strategy"].startswith("a40/2x2")
    output = rv.last().directory / "output"
    first, second = ((output / f"node{node}.out").read_text() for node in (0, 1))
    assert "rank 0/4 " in first
    assert "rank 1/4 " in first
    assert "rank 2/4 " in second
    assert "rank 3/4 " in second


def facts(rv: Rv) -> Facts:
    """The environment of the command on each of two nodes, as a real job printed it."""
    options = ("--gpu", "4", "--time", "10m", "-p", "pairs", "--multi-node", "--cpus", "8")
    done = rv("up", *options, "--run", "env -0 | tr '\\n\\0' ' \\n'")
    race = rv.last()
    assert done.returncode == 0, done.stderr + race.logs()
    texts = [(race.directory / "output" / f"node{node}.out").read_text() for node in (0, 1)]
    return [dict(line.split("=", 1) for line in text.splitlines() if "=" in line) for text in texts]


def omp_num_threads(found: Facts) -> bool:
    """Eight CPUs a node over two ranks on it."""
    return [fact.get("OMP_NUM_THREADS") for fact in found] == ["4", "4"]


def tokenizers_parallelism(found: Facts) -> bool:
    return [fact.get("TOKENIZERS_PARALLELISM") for fact in found] == ["false", "false"]


def node_rank_per_task(found: Facts) -> bool:
    """Each task its own, for torchrun too."""
    ranks = [fact.get("NODE_RANK") for fact in found]
    return ranks == ["0", "1"] == [fact.get("PET_NODE_RANK") for fact in found]


def one_master(found: Facts) -> bool:
    """The same address and port everywhere."""
    masters = {(fact.get("MASTER_ADDR"), fact.get("MASTER_PORT")) for fact in found}
    theirs = {(fact.get("PET_MASTER_ADDR"), fact.get("PET_MASTER_PORT")) for fact in found}
    return len(masters) == 1 and masters == theirs and all(masters.copy().pop())


def torchruns_layout(found: Facts) -> bool:
    layout = [(fact.get("PET_NNODES"), fact.get("PET_NPROC_PER_NODE")) for fact in found]
    return layout == [("2", "2")] * 2 and all(fact.get("NNODES") == "2" for fact in found)


def no_world_size(found: Facts) -> bool:
    """It would make plain python wait for ranks; rv's own name for it is there."""
    return not any("WORLD_SIZE" in fact for fact in found) and found[0]["RV_WORLD_SIZE"] == "4"


# The check, the template, its line as it is, and with the bug of the findings put back.
FINDINGS = [
    (
        omp_num_threads,
        "_environment.sh.j2",
        'export OMP_NUM_THREADS="${OMP_NUM_THREADS-{{ omp_threads }}}"\n',
        "",
    ),
    (
        tokenizers_parallelism,
        "_environment.sh.j2",
        ' TOKENIZERS_PARALLELISM="${TOKENIZERS_PARALLELISM-false}"',
        "",
    ),
    (node_rank_per_task, "_on_every_node.sh.j2", "NODE_RANK=$SLURM_PROCID", "NODE_RANK=0"),
    (one_master, "_on_every_node.sh.j2", " PET_MASTER_ADDR=$MASTER_ADDR", ""),
    (torchruns_layout, "_environment.sh.j2", " PET_NPROC_PER_NODE=", " NPROC_PER_NODE="),
    (no_world_size, "_environment.sh.j2", " RV_WORLD_SIZE=", " WORLD_SIZE=4 RV_WORLD_SIZE="),
]


def test_what_each_of_two_nodes_finds_in_its_environment(rv: Rv) -> None:
    """OMP_NUM_THREADS, TOKENIZERS_PARALLELISM, NODE_RANK per task, one master, torchrun's layout."""
    found = facts(rv)
    assert {check.__name__: check(found) for check, *_ in FINDINGS} == {
        check.__name__: True for check, *_ in FINDINGS
    }


@pytest.mark.parametrize(
    ("check", "template", "line", "bug"), FINDINGS, ids=[check.__name__ for check, *_ in FINDINGS]
)
def test_the_check_fails_when_the_bug_is_put_back(
    rv: Rv, check: Callable[[Facts], bool], template: str, line: str, bug: str
) -> None:
    """By a template of the user's own, so the same job runs without that line."""
    text = (bundle.bundled(bundle.Kind.TEMPLATES) / template).read_text(encoding="utf-8")
    assert line in text
    own = rv.home / "config" / "rv" / "templates"
    own.mkdir(parents=True)
    (own / template).write_text(text.replace(line, bug))
    assert not check(facts(rv))


def test_slurm_sees_few_variables_and_runs_no_login_shell(rv: Rv) -> None:
    """The command has the caller's own, which Slurm never had."""
    rv = replace(rv, more={"API_TOKEN": "hush", "LC_ALL": "C.UTF-8"})
    shell = "/proc/$(cut -d' ' -f4 /proc/$PPID/stat)/environ"
    program = f"env; echo =====; tr '\\0' '\\n' <{shell}"
    own, seen = rv("up", "--time", "5m", "--run", program).stdout.split("=====\n")
    assert {"API_TOKEN=hush", "LC_ALL=C.UTF-8"} <= set(own.splitlines())
    assert "SLURM_JOB_ID" in seen
    for name in ("API_TOKEN", "SLURM_GET_USER_ENV"):
        assert name not in seen


def test_rv_run_check_on_a_mig_slice(campus: sandbox.Sandbox, tmp_path: Path) -> None:
    """One CPU, 16 G at most, within the limits of the QOS."""
    rv = Rv(box=campus, home=tmp_path)
    done = rv("run", "check.py", "--mig", "--time", "10m")
    assert done.returncode == 0, done.stderr + done.stdout + rv.last().logs()
    assert "without device: sandbox: 1 fake GPU(s), checked on CPU" in done.stdout
    assert "[RESULT] PASS: the CPU: environment" in done.stdout
    claim = rv.last().claim
    script = (rv.last().directory / "jobs" / f"{claim['submission']}.sh").read_text()
    assert "#SBATCH --cpus-per-task=1\n" in script
    job = claim["owner"].partition(".")[0]
    rows = rv.slurm("sacct", "-n", "-X", "-P", "-j", job, "-o", "AllocTRES").strip()
    given = dict(item.split("=") for item in rows.split(","))
    assert given["cpu"] == "1"
    assert given["gres/gpu"] == "1"
    assert in_mib(given["mem"]) <= 16 * 1024


def in_mib(text: str) -> float:
    return float(text[:-1]) * {"M": 1, "G": 1024}[text[-1]]


@pytest.mark.parametrize(
    "bug", ["--cpus-per-task=2", "--mem=16G"], ids=["MIG CPU limit", "MIG memory"]
)
def test_mig_findings_put_back_wait_for_ever(
    campus: sandbox.Sandbox, tmp_path: Path, eventually: Eventually, bug: str
) -> None:
    """The very script of a slice starts; with the findings' request Slurm holds it back."""
    rv = Rv(box=campus, home=tmp_path)
    assert rv("run", "check.py", "--mig", "--time", "10m").returncode == 0
    script = str(rv.last().directory / "jobs" / "1.sh")
    job = rv.slurm("sbatch", "--parsable", bug, script).strip()
    try:
        eventually(
            lambda: (
                rv.slurm("squeue", "-h", "-j", job, "-o", "%r").strip() == "QOSMaxCpuPerJobLimit"
            )
        )
    finally:
        rv.slurm("scancel", job)
