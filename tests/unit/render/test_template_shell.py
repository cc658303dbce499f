"""Shell that the templates are made of, run as it stands: clocks that disagree, signals."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

TEMPLATES = Path(__file__).parents[3] / "templates"


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("_chain*.j2")), ids=lambda path: path.name)
def test_a_chain_substitutes_no_command(path: Path) -> None:
    """A signal that comes during one takes its output away, and chains live on signals."""
    text = re.sub(r"\{%#.*?#%\}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    found = [line for line in lines if re.search(r"\$\((?!\()|`|<\(", line)]
    assert found == []


def test_a_lease_holds_whatever_the_clock_that_wrote_it(tmp_path: Path) -> None:
    """The client's is an hour behind the node's; and the allocation ends when nobody renews."""
    text = (TEMPLATES / "_hold.sh.j2").read_text(encoding="utf-8")
    script = re.sub(r"\{%#.*?#%\}\n?", "", text).replace("{{ lease_seconds }}", "5")
    with subprocess.Popen(
        ["bash", "-c", script],
        env={"PATH": "/usr/bin:/bin", "RV_RACE_DIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    ) as holder:
        begun = time.monotonic()
        while time.monotonic() - begun < 7:
            assert holder.poll() is None, "given up although the lease was renewed"
            (tmp_path / "new").write_text(f"{time.time() - 3600:.2f}\n")
            (tmp_path / "new").rename(tmp_path / "lease")
            time.sleep(0.2)
        _, said = holder.communicate(timeout=60)
    assert "nobody has held this shell" in said


@pytest.mark.parametrize(
    ("claim", "is_lost"),
    [
        ("11.0.aaaaaaaa\nsubmission=1\n", True),
        ("11.0.aaaaaaaa\nsubmission=2\n", False),
        ("12.0.aaaaaaaa\nsubmission=1\n", False),
    ],
    ids=["its own", "of another submission with its id", "of another job"],
)
def test_only_a_restarted_winner_says_that_it_was_restarted(
    tmp_path: Path, claim: str, is_lost: bool
) -> None:
    """A controller that lost its state gives the winner's id to another job of the race."""
    golden = TEMPLATES.parent / "tests" / "golden" / "single_node.sh"
    script = re.sub(
        r"^RV_RACE_DIR=.*",
        f"RV_RACE_DIR={tmp_path}",
        golden.read_text(encoding="utf-8"),
        flags=re.M,
    )
    (tmp_path / "claim").write_text(claim)
    job = {"SLURM_JOB_ID": "11", "SLURM_RESTART_COUNT": "1", "SLURMD_NODENAME": "a1"}
    done = subprocess.run(["bash", "-c", script], env={"PATH": "/usr/bin:/bin", **job}, timeout=60)
    assert (done.returncode, (tmp_path / "lost").exists()) == (int(is_lost), is_lost)


def turn(folder: Path, turns: dict[str, str], *, claim_after_s: float = 9) -> float:
    """How long the job of rank 3 waits, in seconds."""
    text = (TEMPLATES / "_turn.sh.j2").read_text(encoding="utf-8")
    (folder / "turns").mkdir()
    for name, state in turns.items():
        (folder / "turns" / name).write_text(state)
    helpers = 'rv_state_file() { echo "$2" >"$1"; }\nrv_exists() { { : <"$1"; } 2>/dev/null; }\nRV_RANK=3\n'
    claim = f"{{ sleep {claim_after_s}; echo 1.0 >claim; }} >/dev/null 2>&1 &\n"
    began = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", f"{helpers}{claim}{text}\nrv_wait_for_better; kill $! 2>/dev/null"],
        cwd=folder, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stderr == ""
    assert (folder / "turns" / "3").read_text() == "ready\n"
    return time.monotonic() - began


@pytest.mark.parametrize(
    "turns",
    [{}, {"4": "checking\n", "10": "ready\n"}, {"1": "", "2": "gone\n", "x": "ready\n"}],
    ids=["alone", "beside worse ones", "beside nonsense"],
)
def test_the_best_job_that_is_there_waits_for_nobody(tmp_path: Path, turns: dict[str, str]) -> None:
    """Neither alone nor beside jobs that are worse."""
    assert turn(tmp_path, turns) < 0.5


@pytest.mark.parametrize(
    ("turns", "least", "most"),
    [
        ({"1": "checking\n"}, 0.8, 1.9),
        ({"0": "checking\n", "2": "ready\n"}, 1.7, 2.9),
    ],
    ids=["that checks", "about to claim"],
)
def test_a_better_job_is_waited_for_a_moment(
    tmp_path: Path, turns: dict[str, str], least: float, most: float
) -> None:
    """One whose check hangs for a second, one that is about to claim for two; then no longer."""
    assert least < turn(tmp_path, turns) < most


def test_nobody_waits_once_the_race_is_decided(tmp_path: Path) -> None:
    """The better one has claimed."""
    assert turn(tmp_path, {"2": "ready\n"}, claim_after_s=0.3) < 1.2


def test_a_checkpoint_may_lie_behind_links(tmp_path: Path) -> None:
    """Home is small: the directory leads to a larger disk, or what is in it does."""
    golden = (TEMPLATES.parent / "tests" / "golden" / "checkpoint.sh").read_text(encoding="utf-8")
    (line,) = [each for each in golden.splitlines() if each.startswith("rv_is_fresh()")]
    (tmp_path / "scratch").mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / "claim").touch()
    (tmp_path / "directory").symlink_to(tmp_path / "scratch")
    (tmp_path / "kept" / "latest").symlink_to(tmp_path / "scratch" / "step.pt")

    def is_fresh(folder: str) -> bool:
        check = f"{line}\nrv_is_fresh {folder} claim"
        return subprocess.run(["bash", "-c", check], cwd=tmp_path, check=False).returncode == 0

    for folder in ("directory", "kept"):
        assert not is_fresh(folder)
    saved = tmp_path / "scratch" / "step.pt"
    saved.touch()
    later_s = (tmp_path / "claim").stat().st_mtime + 5
    os.utime(saved, (later_s, later_s))
    for folder in ("directory", "kept"):
        assert is_fresh(folder)
