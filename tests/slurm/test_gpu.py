"""How jobs use their GPUs: sampled by the job itself, told at its end, and asked for while it runs."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rv import sandbox
from tests.slurm.launching import Rv, group, profile

Eventually = Callable[..., None]


@pytest.fixture(scope="module")
def box(sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sandbox.Sandbox]:
    """Two nodes with four large cards each, one with a small card."""
    spec = profile([group("a", "a100", nodes=2), group("b", "a10", gpus=1)])
    path = tmp_path_factory.mktemp("gpu") / "gpu.yaml"
    path.write_text(json.dumps(spec))
    yield sandbox.up("gpu-use", path)
    sandbox.down("gpu-use")


@pytest.fixture
def rv(box: sandbox.Sandbox, tmp_path: Path) -> Iterator[Rv]:
    """`rv` there; what the GPUs pretend is forgotten afterwards."""
    yield Rv(box=box, home=tmp_path)
    for kind in ("use", "processes", "fault"):
        for path in (box.directory / "nodes").glob(f"*/{kind}"):
            path.unlink()


def pretend(rv: Rv, node: str, kind: str, *lines: str) -> None:
    """Write what a node's nvidia-smi says of use or processes."""
    (rv.box.directory / "nodes" / node / kind).write_text("".join(f"{line}\n" for line in lines))


def run(rv: Rv, command: str, *options: str) -> "tuple[str, dict[str, object]]":
    """Run a command on large cards; what rv said, and its JSON."""
    done = rv("run", "--type", "a100", "--time", "5m", "--json", *options, command)
    assert done.returncode == 0, done.stderr
    return done.stderr, json.loads(done.stdout)


def test_a_race_tells_how_it_used_its_gpus(rv: Rv) -> None:
    """Only its own: the other GPUs of its node are as busy as can be."""
    full = "99|80000|400.0|80"
    for node in ("a1", "a2"):
        pretend(rv, node, "use", "0|12|9216|90.5|41", *(f"{index}|{full}" for index in (1, 2, 3)))
    said, document = run(rv, "sleep 6", "--gpu", "1")
    assert "GPU use 12 %, 9 of 80 GB: a 24 GB card would do\n" in said
    use = {"gpus": 1, "samples": 1, "utilization": 12.0, "peak_mib": 9216, "card_mib": 81920}
    assert document["gpu_use"] == use | {"smaller_card_mib": 23028}
    assert rv.state()["gpu_use"] == document["gpu_use"]


def test_each_node_samples_its_own(rv: Rv) -> None:
    """The mean is over all of them, the peak that of the fullest: no smaller card would hold it."""
    pretend(rv, "a1", "use", *(f"{index}|10|1024|90|41" for index in range(4)))
    pretend(rv, "a2", "use", *(f"{index}|30|40000|90|41" for index in range(4)))
    said, document = run(rv, "torchrun() { sleep 8; }; torchrun", "--gpu", "8", "--multi-node")
    assert "GPU use 20 %, 39 of 80 GB\n" in said
    assert document["gpu_use"]["gpus"] == 8  # type: ignore[index]


def test_a_short_command_says_nothing(rv: Rv) -> None:
    """It was over before the first sample, and waited for none."""
    said, document = run(rv, "true", "--gpu", "1")
    assert "GPU use" not in said
    assert document["gpu_use"] is None


def test_one_that_hangs_keeps_nobody(rv: Rv, eventually: Eventually) -> None:
    """The command ends as it would, and nothing of the sampling stays."""
    launched = rv.launch("run", "--type", "a100", "--gpu", "1", "--time", "5m", "sleep 7; echo end")
    with launched as process:
        eventually(lambda: rv.files() and rv.last().claim)
        for node in ("a1", "a2"):
            pretend(rv, node, "fault", "hang")
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "end\n"), err
    assert "GPU use" not in err
    assert "ran 7s" in err or "ran 8s" in err, err
    assert not [name for name in rv.last().names("gpus") if not name.startswith(".")]


def test_the_command_finds_nothing_of_it(rv: Rv) -> None:
    """No function, no variable and no child more: a program may wait for all that it has."""
    seen = "env | grep -c -e ^BASH_FUNC_rv_s[al] -e ^RV_NODE_PATH=; pgrep -P $$ -c -f tail; true"
    done = rv("run", "--gpu", "8", "--type", "a100", "--multi-node", "--time", "5m", seen)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", *["[node0] 0"] * 2, *["[node1] 0"] * 2]
