"""The node check's question who else is on the GPUs, as a job asks it: the shell, run as it stands."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.render.test_golden import rendered

SMI = """\
#!/bin/sh
echo "$1" >>"$CALLS"
case "$1" in
  --query-gpu=*) /bin/cat "$ROWS" ;;
  --query-compute-apps=*) /bin/cat "$PROCESSES" ;;
esac
"""
IDLE = "{index}, GPU-{index}, 4, 81920, 0, 50.0, 30, NVIDIA A100-SXM4-80GB"
FULL = "{index}, GPU-{index}, 70000, 81920, 98, 400.0, 60, NVIDIA A100-SXM4-80GB"
OLD_DRIVER = "{index}, GPU-{index}, 620, 81920, 0, 50.0, 30, NVIDIA A100-SXM4-80GB"
SLICED = "{index}, GPU-{index}, 70000, 81920, [N/A], 400.0, 60, NVIDIA A100-SXM4-80GB"


def check(
    tmp_path: Path, rows: list[str], processes: str = "", **environment: str
) -> tuple[int, str, list[str]]:
    """Run the check of four GPUs; give its code, why it rejected the node, and what it asked."""
    script = rendered("single_node")
    function = script[script.index("rv_check_node() {") : script.index("\nexport -f rv_check_node")]
    race = "/home/ada/.local/state/rv/races/abcd2345"
    nonce = "0123456789abcdef0123456789abcdef"
    (tmp_path / "nonce").write_text(f"{nonce}\n")
    (tmp_path / "declined").mkdir()
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI)
    program.chmod(0o755)
    (tmp_path / "rows").write_text("".join(f"{row}\n" for row in rows))
    (tmp_path / "processes").write_text(processes)
    assert race in script
    state_file = 'rv_state_file() { printf %s "$2" >"$RV_RACE_DIR/$1"; }\n'
    done = subprocess.run(
        ["bash", "-c", f"{state_file}{function}\nrv_check_node"],
        env={
            "PATH": f"{tmp_path}:/usr/bin:/bin", "RV_RACE_DIR": str(tmp_path),
            "SLURMD_NODENAME": "a1", "SLURM_JOB_ID": "7", "ROWS": str(tmp_path / "rows"),
            "PROCESSES": str(tmp_path / "processes"), "CALLS": str(tmp_path / "calls"),
            **environment,
        },
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    declined = tmp_path / "declined" / "a1"
    calls = (tmp_path / "calls").read_text().split()
    return done.returncode, declined.read_text() if declined.exists() else "", calls


def gpus(*kinds: str) -> list[str]:
    """Rows of GPUs, numbered."""
    return [kind.format(index=index) for index, kind in enumerate(kinds)]


MINE = f"GPU-2, {os.getpid()}, 69000, /usr/bin/python3 x\n"


def test_on_idle_gpus_nobody_is_asked_for(tmp_path: Path) -> None:
    """Where no context can be, the check asks no more than it did: one call."""
    code, why, calls = check(tmp_path, gpus(*[IDLE] * 4), MINE)
    assert (code, why, len(calls)) == (0, "", 1)


def test_a_process_is_named_with_user_memory_and_load(tmp_path: Path) -> None:
    """In one call more; letters that no terminal should get are not in it."""
    row = MINE.replace("python3", "py\x1b[2Jthon3")
    code, why, calls = check(tmp_path, gpus(IDLE, IDLE, FULL, IDLE), row)
    user = Path(f"/proc/{os.getpid()}").owner()
    assert (code, len(calls)) == (9, 2)
    assert why.startswith(
        f"GPU 2 is in use: /usr/bin/py?[2Jthon3 x of {user} (process {os.getpid()}"
    )
    assert ", 69000 MiB; GPU 98 % busy); --allow-busy-gpus" in why


def test_memory_is_somebodys_though_nobody_is_seen(tmp_path: Path) -> None:
    """A container hides the process that holds it: its number is of another world."""
    hidden = "GPU-2, 4194303, 69000, [Not Found]\n"
    code, why, _ = check(tmp_path, gpus(IDLE, IDLE, FULL, IDLE), hidden)
    assert code == 9
    assert why.startswith("GPU 2 has 70000 MiB in use by nobody who can be seen (GPU 98 % busy)")


@pytest.mark.parametrize(
    ("rows", "processes"),
    [
        (gpus(*[OLD_DRIVER] * 4), ""),
        (gpus(*[OLD_DRIVER] * 4), "GPU-2, 4194303, 300, [Not Found]\n"),
        (gpus(SLICED, IDLE, IDLE, IDLE), MINE.replace("GPU-2", "GPU-0")),
        (gpus(FULL, IDLE, IDLE, IDLE), "GPU-0, 1, 30, nvidia-cuda-mps-server\n" + MINE),
        (gpus(OLD_DRIVER, IDLE, IDLE, IDLE), MINE.replace("GPU-2", "GPU-of-another-job")),
        (gpus(*[FULL] * 5), MINE),
    ],
    ids=["driver's own", "hidden and small", "mig", "mps", "another's gpu", "whose is not told"],
)
def test_what_cannot_be_told_rejects_no_node(
    tmp_path: Path, rows: list[str], processes: str
) -> None:
    """Each of these is usual somewhere."""
    assert check(tmp_path, rows, processes)[:2] == (0, "")


def test_of_more_gpus_only_the_jobs_own_count(tmp_path: Path) -> None:
    """Where the site does not hide those of others."""
    rows = gpus(*[IDLE] * 4, FULL, FULL)
    assert check(tmp_path, rows, MINE, CUDA_VISIBLE_DEVICES="0,1,2,3")[:2] == (0, "")
    tmp_path = tmp_path / "own"
    tmp_path.mkdir()
    code, why, _ = check(tmp_path, rows, "", CUDA_VISIBLE_DEVICES="0,1,2,4")
    assert (code, why[:5]) == (9, "GPU 4")


def test_an_idle_node_is_checked_by_nvidia_smi_alone(tmp_path: Path) -> None:
    """Each further process costs milliseconds before the command, many on a busy node."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "timeout"):
        (programs / name).symlink_to(f"/usr/bin/{name}")
    path = f"{programs}:{tmp_path}"
    assert check(tmp_path, gpus(IDLE, IDLE, IDLE, IDLE), PATH=path)[:2] == (0, "")


@pytest.mark.parametrize("name", ["nvidia a100-sxm4-80gb", "NVIDIA A100 80GB PCIe", "Tesla V100"])
def test_a_name_is_what_it_is_in_any_case(tmp_path: Path, name: str) -> None:
    """Another one than was promised is a warning, here of each GPU."""
    (tmp_path / "warnings").mkdir()
    row = IDLE.replace("NVIDIA A100-SXM4-80GB", name)
    assert check(tmp_path, gpus(row, row, row, row))[0] == 0
    assert (tmp_path / "warnings" / "a1").exists() == ("V100" in name)
