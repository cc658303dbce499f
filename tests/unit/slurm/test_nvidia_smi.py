"""What nvidia-smi says of a job's GPUs, read from its answers to rv's own queries."""

from pathlib import Path

import pytest

from rv.models.gpu_use import GpuNow, GpuProcess
from rv.slurm.nvidia_smi import NodeGpus, gpus_script, parse_gpus

DATA = Path(__file__).parents[2] / "data" / "nvidia_smi"
S = "rv0123456789abcdef"
UUID = "GPU-8c5ad8d4-2b2a-6c1f-1c5a-1f0f3f6e7a01"


def answer(of: str, node: str = "a1", own: str = "0,1,2,3,4,5,6,7") -> str:
    """What a node's script prints where nvidia-smi says this; users are looked up there."""
    gpus = (DATA / f"{of}.gpus.csv").read_text().splitlines()
    processes = []
    for line in (DATA / f"{of}.processes.csv").read_text().splitlines():
        uuid, pid, used, name = line.split(", ", 3)
        processes.append(f"{uuid}, {pid}, {used}, ada, {name}")
    lines = [f"own {own}", *(f"gpu {row}" for row in gpus), *(f"process {p}" for p in processes)]
    return "".join(f"{S} {node} {line}\n" for line in lines)


@pytest.mark.parametrize("path", sorted(DATA.glob("*.gpus.csv")), ids=lambda path: path.name)
def test_every_row_of_a_capture_is_a_gpu(path: Path) -> None:
    """With its model and its memory."""
    (node,) = parse_gpus(answer(path.name.partition(".")[0]), S)
    assert [gpu.index for gpu in node.gpus] == list(range(len(path.read_text().splitlines())))
    assert all(gpu.model.startswith("NVIDIA") and gpu.total_mib for gpu in node.gpus)


def test_what_a_card_does_not_tell_is_none() -> None:
    """And no zero, which would be a number."""
    (node,) = parse_gpus(answer("documented"), S)
    first, second, third = node.gpus
    assert first == GpuNow(
        node="a1",
        index=0,
        model="NVIDIA A100-SXM4-80GB",
        utilization=12,
        memory_mib=9216,
        total_mib=81920,
        power_w=90.5,
        temperature_c=41,
        processes=(
            GpuProcess(pid=4711, user="ada", name="python", memory_mib=9000),
            GpuProcess(pid=4712, user="ada", name="/opt/my tools/train, v2"),
        ),
    )
    assert (second.utilization, second.power_w, second.memory_mib) == (None, None, 512)
    assert (third.memory_mib, third.utilization, third.processes) == (None, None, ())


@pytest.mark.parametrize(
    ("own", "indices"),
    [("0,1,2", [0, 1, 2]), ("1", [1]), ("2,0", [0, 2]), (UUID, [0]), ("", []), ("MIG-x", [])],
)
def test_only_the_jobs_own_are_shown(own: str, indices: list[int]) -> None:
    """By number or UUID, where the site shows those of other jobs too."""
    (node,) = parse_gpus(answer("documented", own=own), S)
    assert [gpu.index for gpu in node.gpus] == indices


def test_lines_of_several_nodes_may_be_mixed() -> None:
    """Each says whose it is; a node may fail alone."""
    lines = [*answer("documented", "b2").splitlines(), *answer("documented", "a1").splitlines()]
    mixed = [*lines[::2], f"{S} c3 own 0", *lines[1::2], f"{S} c3 failed has no nvidia-smi", "x y"]
    a1, b2, c3 = parse_gpus("\n".join(mixed), S)
    assert [len(node.gpus) for node in (a1, b2, c3)] == [3, 3, 0]
    assert c3 == NodeGpus(node="c3", failure="has no nvidia-smi")


def test_a_row_of_one_field_more_is_not_read_as_another() -> None:
    """Such as of a later nvidia-smi that says more than it was asked for."""
    text = f"{S} a1 own 0\n{S} a1 gpu 0, GPU-x, 1, 2, 3, 4, 5, 6, NVIDIA\n"
    assert parse_gpus(text, S) == (NodeGpus(node="a1"),)


def test_all_nodes_are_asked_by_one_srun() -> None:
    """Whatever their names hold; it ends by itself."""
    script = gpus_script(7, ["a1", "b$(x)"], S)
    assert script.startswith("timeout ")
    assert script.count("srun ") == 1
    assert "--nodelist='a1,b$(x)'" in script
