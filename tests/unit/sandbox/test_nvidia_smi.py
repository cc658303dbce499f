"""The fake nvidia-smi, run as a node check would."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from rv.errors import RvError
from rv.sandbox import nvidia_smi, schema
from rv.sandbox.layout import Layout

PROFILE = """\
cluster: lab
nodes:
  - {prefix: a, gres: [{type: a100, count: 2, product: NVIDIA A100-SXM4-80GB, memory: 81920}]}
  - {prefix: m, gres: [{type: 1g.10gb, count: 9, product: NVIDIA A100-SXM4-80GB, memory: 81920, mig: 1g.10gb}]}
  - {prefix: c}
partitions: [{name: p, nodes: [a, m, c]}]
"""
QUERY = "--query-gpu=index,name,memory.total"
PLAIN = "--format=csv,noheader,nounits"


@pytest.fixture
def place(tmp_path: Path) -> Layout:
    made = Layout(directory=tmp_path / "box", run=tmp_path / "box" / "run")
    made.make()
    nvidia_smi.install(schema.parse(PROFILE, where="x"), made, "RV_SANDBOX=id")
    return made


def ask(place: Layout, node: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [place.bin / "nvidia-smi", *args],
        env={"SLURMD_NODENAME": node, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=5,
    )


def test_it_lists_the_gpus_of_its_node(place: Layout) -> None:
    """-L has one line a GPU, with a stable uuid."""
    lines = ask(place, "a1", "-L").stdout.splitlines()
    assert [line.split(" (UUID")[0] for line in lines] == [
        "GPU 0: NVIDIA A100-SXM4-80GB",
        "GPU 1: NVIDIA A100-SXM4-80GB",
    ]
    assert lines == ask(place, "a1", "-L").stdout.splitlines()


def test_it_answers_queries_field_by_field(place: Layout) -> None:
    """In the order asked, with header and units as the format says."""
    assert ask(place, "a1", QUERY, PLAIN).stdout == (
        "0, NVIDIA A100-SXM4-80GB, 81920\n1, NVIDIA A100-SXM4-80GB, 81920\n"
    )
    with_units = ask(place, "a1", "--query-gpu=memory.total,index", "--format=csv").stdout
    assert with_units == "memory.total, index\n81920 MiB, 0\n81920 MiB, 1\n"
    assert ask(place, "a1", QUERY, PLAIN, "-i", "1").stdout.startswith("1, ")


def test_an_unknown_field_is_an_error(place: Layout) -> None:
    """As with the real one."""
    done = ask(place, "a1", "--query-gpu=colour", PLAIN)
    assert done.returncode == 2
    assert "not a valid field" in done.stderr


def test_slices_are_listed_below_their_gpu(place: Layout) -> None:
    """Nine slices are cut from two GPUs: seven and two."""
    lines = ask(place, "m1", "-L").stdout.splitlines()
    assert [line[:5] for line in lines] == ["GPU 0", *["  MIG"] * 7, "GPU 1", *["  MIG"] * 2]
    assert lines[1].startswith("  MIG 1g.10gb      Device  0: (UUID: MIG-")
    assert len(set(lines)) == len(lines)


def test_the_table_names_the_gpus(place: Layout) -> None:
    """For people."""
    assert ask(place, "a1").stdout.count("NVIDIA A100-SXM4-80GB") == 2


def test_a_node_without_gpus_has_none(place: Layout) -> None:
    """And an unknown node has no driver."""
    assert ask(place, "c1", "-L").stdout == ""
    assert ask(place, "nowhere", "-L").returncode == 9


def test_a_wrong_model_is_a_k80(place: Layout) -> None:
    """Of 11441 MiB, on that node only."""
    nvidia_smi.set_fault(place, "a1", nvidia_smi.Fault.WRONG_MODEL)
    assert ask(place, "a1", QUERY, PLAIN).stdout == "0, Tesla K80, 11441\n1, Tesla K80, 11441\n"
    assert "MIG" in ask(place, "m1", "-L").stdout
    nvidia_smi.set_fault(place, "m1", nvidia_smi.Fault.WRONG_MODEL)
    assert "MIG" not in ask(place, "m1", "-L").stdout


def test_a_missing_gpu_is_one_fewer_until_cleared(place: Layout) -> None:
    """Faults come and go at once."""
    nvidia_smi.set_fault(place, "a1", nvidia_smi.Fault.MISSING_GPU)
    assert len(ask(place, "a1", "-L").stdout.splitlines()) == 1
    assert nvidia_smi.faults(place) == {"a1": "missing-gpu"}
    nvidia_smi.set_fault(place, "a1", None)
    assert len(ask(place, "a1", "-L").stdout.splitlines()) == 2
    assert nvidia_smi.faults(place) == {}


def test_an_error_is_a_driver_mismatch(place: Layout) -> None:
    """Exit code 9 whatever is asked."""
    nvidia_smi.set_fault(place, "a1", nvidia_smi.Fault.ERROR)
    done = ask(place, "a1", "-L")
    assert (done.returncode, "version mismatch" in done.stdout) == (9, True)


def test_a_hanging_one_does_not_answer(place: Layout) -> None:
    """It sleeps for ever; here for half a second."""
    nvidia_smi.set_fault(place, "a1", nvidia_smi.Fault.HANG)
    process = subprocess.Popen(
        [place.bin / "nvidia-smi", "-L"],
        env={"SLURMD_NODENAME": "a1", "PATH": "/usr/bin:/bin"},
        start_new_session=True,
    )
    with process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        os.killpg(process.pid, signal.SIGKILL)


def test_an_unknown_node_cannot_be_faulty(place: Layout) -> None:
    """The nodes are named."""
    with pytest.raises(RvError) as caught:
        nvidia_smi.set_fault(place, "zz9", nvidia_smi.Fault.HANG)
    assert caught.value.hint == "nodes: a1, c1, m1"
