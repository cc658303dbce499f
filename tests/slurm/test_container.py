"""The command in a container, through Pyxis and through Apptainer.

Neither runtime is a package here. `container_stand_in.c` is a SPANK plugin that gives the real srun
Pyxis's options, and a program with Apptainer's command line. Both really change the root folder, so
that what rv does not mount, or does not pass on, is not there.
"""

import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from rv import sandbox
from tests.slurm.launching import REPOSITORY, Rv, group, profile

Eventually = Callable[..., None]
NAME = "registry.example:5000/lab/deep:24.05"
TORCH = """
    import os
    import torch, torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    dist.barrier()
    where = open("/image/inside").read().strip()
    print(where, int(total), os.environ["NODE_RANK"] == os.environ["GROUP_RANK"], flush=True)
    dist.destroy_process_group()
    """
SAVING = """
    trap 'echo "saved by $RV_SEGMENT" >"$RV_CHECKPOINT_DIR/state"; exit 0' USR1
    trap 'echo "$RV_SEGMENT" >"$RV_OUTPUT_DIR/ended"; exit 3' TERM
    cat /image/inside >"begun-$RV_SEGMENT" || exit
    while :; do sleep 0.1; done
    """


def compiled(folder: Path, name: str, *options: str) -> Path:
    """Compile the stand-in."""
    made = folder / name
    source = Path(__file__).with_name("container_stand_in.c")
    subprocess.run(["gcc", *options, "-o", str(made), str(source)], check=True)
    return made


def make_image(folder: Path) -> Path:
    """Make an image with this machine's programs."""
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "inside").write_text("in the image\n")
    mounts = [f"mount {path}" for path in dict.fromkeys(("/usr", sys.base_prefix, sys.prefix))]
    variables = [f"env PATH={sys.prefix}/bin:/usr/bin", "env OMP_NUM_THREADS=99", "env MINE=image"]
    (folder / ".image").write_text("\n".join([*mounts, *variables]) + "\n")
    return folder


@pytest.fixture(scope="module")
def home(sandbox_home: Path) -> Path:
    """What the nodes see: the plugin, and the images."""
    folder = sandbox_home / "containers"
    folder.mkdir()
    make_image(folder / "deep")
    shutil.copytree(folder / "deep", folder / "images" / "registry.example_5000_lab_deep_24.05")
    plugin = compiled(folder, "pyxis.so", "-shared", "-fPIC", "-DPYXIS")
    stack = f"required {plugin} images={folder}/images\n"
    (folder / "plugstack.conf").write_text(stack)
    return folder


@pytest.fixture(scope="module")
def box(home: Path) -> Iterator[sandbox.Sandbox]:
    """Two nodes that have both runtimes."""
    path = home / "profile.yaml"
    settings = {"PlugStackConfig": str(home / "plugstack.conf")}
    nodes = [group("n", "a100", nodes=2, gpus=2)]
    path.write_text(yaml.safe_dump(profile(nodes, slurm_conf=settings)))
    made = sandbox.up("containers", path)
    compiled(made.directory / "bin", "apptainer")
    for image in home.rglob(".image"):  # a site's TaskProlog is to be in each of its images
        image.write_text(f"{image.read_text()}mount {made.directory / 'bin'}\n")
    yield made
    sandbox.down(made.name)


@pytest.fixture(params=["pyxis", "apptainer"])
def rv(request: pytest.FixtureRequest, box: sandbox.Sandbox, home: Path, tmp_path: Path) -> Rv:
    """`rv` whose images are run by one or the other: a folder is none for Pyxis."""
    config = tmp_path / "config" / "rv"
    config.mkdir(parents=True)
    image = NAME if request.param == "pyxis" else str(home / "deep")
    (config / "config.yaml").write_text(
        yaml.safe_dump({"defaults": {"container": image, "time": "5m"}})
    )
    (tmp_path / "project").mkdir()
    return Rv(box=box, home=tmp_path)


def script(rv: Rv, text: str) -> Path:
    """Write a program into the project."""
    path = rv.home / "project" / "program"
    path.write_text(textwrap.dedent(text))
    return path


def test_the_command_is_inside_with_what_it_was_promised(rv: Rv) -> None:
    """Its folders, variables over those of the image, code and umask; of the node nothing else."""
    hidden = rv.home / "hidden"
    hidden.write_text("")
    data = rv.home / "data"
    data.mkdir()
    (data / "file").write_text("mounted\n")
    script(
        rv,
        f"""
        cat /image/inside; pwd; umask
        echo "$OMP_NUM_THREADS $MINE $PYTHONPATH" $MASTER_ADDR $PET_NPROC_PER_NODE $NNODES $NODE_RANK
        echo "$LATER"
        [ -e {hidden} ] || echo hidden
        cat /opt/data/file; touch /opt/data/file 2>/dev/null || echo read-only
        echo kept >"$RV_OUTPUT_DIR/result"
        command -v "$RV_PYTHON"
        exit 7
        """,
    )
    inside = {**rv.more, "PYTHONPATH": f"{REPOSITORY}:/nowhere"}
    told = Rv(box=rv.box, home=rv.home, more=inside)
    done = told(
        "run", "-g", "2", "--cpus", "6", "--env", "MINE=a 'b' $c", "--setup", "export LATER=$MINE",
        "--container-mounts", f"{data}:/opt/data:ro", "bash program", cwd=rv.home / "project",
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    assert done.stdout.splitlines() == [
        "in the image", str(rv.home / "project"), "0022", "3 a 'b' $c  127.0.0.1 2 1 0",
        "a 'b' $c", "hidden", "mounted", "read-only",
        f"{sys.prefix}/bin/python",
    ]  # fmt: skip
    assert (rv.last().directory / "results" / "result").read_text() == "kept\n"


def test_each_node_knows_its_rank(rv: Rv) -> None:
    """And all the same address, inside; the code is the worst of them.

    The second node ends last: a node that fails ends the others, and their SIGTERM would be worse.
    """
    tell = "cat /image/inside; echo $NODE_RANK $PET_NODE_RANK $NNODES $MASTER_ADDR"
    wait = "until [ -e first ]; do sleep 0.2; done; sleep 3"
    done = rv(
        "run", "-g", "2", "--multi-node",
        f"{tell}; if [ $NODE_RANK = 0 ]; then touch first; else {wait}; exit 1; fi",
        cwd=rv.home / "project",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "node0| 0 0 2 127.0.0.1", "node0| in the image",
        "node1| 1 1 2 127.0.0.1", "node1| in the image",
    ]  # fmt: skip


@pytest.mark.parametrize("rv", ["pyxis"], indirect=True)
def test_torchrun_finds_its_peers_on_two_nodes(rv: Rv) -> None:
    """The rendezvous works from each node's inside."""
    script(rv, TORCH)
    done = rv(
        "run", "-g", "2", "--multi-node", "torchrun program", cwd=rv.home / "project", timeout=400
    )
    assert done.returncode == 0, done.stderr
    lines = [line.partition("| ")[2] for line in done.stdout.splitlines()]
    assert lines == ["in the image 2 True"] * 2


def test_signals_reach_the_command(rv: Rv, eventually: Eventually) -> None:
    """That of a chain: it saves and goes on in another job. And that of a stop: it may still write."""
    script(rv, SAVING)
    begun, again = (rv.home / "project" / f"begun-{segment}" for segment in (1, 2))
    running = rv.launch(
        "run", "--checkpoint", "--time", "20m", "bash program", cwd=rv.home / "project"
    )
    eventually(lambda: running.poll() is not None or begun.exists(), 60)
    rv.slurm("scancel", "--batch", "--signal=USR1", rv.last().claim["owner"].partition(".")[0])
    eventually(lambda: running.poll() is not None or again.exists(), 100)
    assert (rv.last().directory / "checkpoints" / "state").read_text() == "saved by 1\n"
    assert rv("stop").returncode == 0
    _, err = running.communicate(timeout=120)
    assert (rv.last().directory / "results" / "ended").read_text() == "2\n", err
    eventually(lambda: not rv.queue())


@pytest.mark.parametrize("rv", ["apptainer"], indirect=True)
def test_a_payload_of_rvs_runs_inside(rv: Rv) -> None:
    """Its folder is mounted, and Python is that of the image."""
    done = rv("run", "check.py --help && cat /image/inside", cwd=rv.home / "project")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: check.py")
    assert done.stdout.endswith("in the image\n")


def test_a_node_that_runs_no_containers_is_rejected(
    small: sandbox.Sandbox, home: Path, tmp_path: Path
) -> None:
    """With the reason, and what would help; nothing starts."""
    rv = Rv(box=small, home=tmp_path)
    done = rv("run", "--time", "5m", "--container", "ubuntu:24.04", rv.count_starts)
    assert done.returncode == 1
    assert "no apptainer, no singularity, no Pyxis; --modules NAME loads one" in done.stderr
    assert rv.state()["state"] == "DECLINED"
    assert not rv.starts


def test_a_module_may_bring_apptainer(small: sandbox.Sandbox, home: Path, tmp_path: Path) -> None:
    """It is looked for once that is loaded; the path is relative to the folder of the call."""
    compiled(tmp_path, "singularity")
    (tmp_path / "modules").mkdir()
    text = f"#%Module1.0\nprepend-path PATH {tmp_path}\n"
    (tmp_path / "modules" / "containers").write_text(text)
    (tmp_path / "deep").symlink_to(home / "deep")
    rv = Rv(box=small, home=tmp_path, more={"MODULEPATH": str(tmp_path / "modules")})
    words = ("run", "--time", "5m", "--modules", "containers", "--container", "./deep")
    done = rv(*words, "cat /image/inside; echo $STAND_IN_NV")
    assert (done.returncode, done.stdout) == (0, "in the image\n1\n"), done.stderr
    missing = rv("run", "--container", "./other.sif", "true")
    assert missing.returncode == 125
    assert f"no image {tmp_path}/other.sif on the cluster" in missing.stderr
