"""The program that runs an acceptance run's payloads on a node, each a fork of it."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from rv.payloads._acceptance import node

TORCHRUN = """
import os, runpy, sys
if __name__ == "__main__":
    print("torchrun", os.path.basename(sys.argv[1]), *sys.argv[2:], os.environ["PET_MASTER_PORT"])
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""What stands for torchrun: it runs the script in its own process."""


@pytest.fixture(name="scripts")
def _scripts(tmp_path: Path) -> Path:
    """A folder of payloads, with a torch of its own."""
    folder = tmp_path / "payloads"
    (folder / "torch" / "distributed").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("import os\nIMPORTED_BY = os.getpid()\n")
    (folder / "torch" / "distributed" / "run.py").write_text(TORCHRUN)
    (folder / "_acceptance").symlink_to(Path(node.__file__).parent)
    return folder


def run(
    scripts: Path, *turns: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run these turns as a job does."""
    own = {"PATH": os.environ["PATH"], "PYTHONPATH": str(scripts), "SLURMD_NODENAME": "n7"}
    own |= {"RV_OUTPUT_DIR": str(scripts.parent / "results")}
    return subprocess.run(
        [sys.executable, str(scripts / "_acceptance" / "node.py"), *turns],
        env=own | dict(env or {}), capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def code_of(scripts: Path, name: str) -> int:
    """What a payload's node noted of its end."""
    return int((scripts.parent / "results" / name / "node0.exit").read_text())


def test_torch_is_imported_once_for_all(scripts: Path) -> None:
    """By the process that all payloads are forks of."""
    script = "import os, torch\nprint('own' if torch.IMPORTED_BY == os.getpid() else 'parent')\n"
    for name in ("one", "two"):
        (scripts / f"{name}.py").write_text(script)
    done = run(scripts, "python one 20", "torchrun two 20")

    assert [line for line in done.stdout.splitlines() if line in ("own", "parent")] == [
        "parent"
    ] * 2
    assert done.stderr == ""


def test_each_payload_has_its_own_arguments_folder_port_and_word(scripts: Path) -> None:
    """Ranks share a folder, and a payload without ranks has one for each node."""
    script = """
import os, sys
names = "RV_OUTPUT_DIR", "MASTER_PORT", "RV_RESULT_TOKEN"
print("ran", sys.argv[1:], *(os.environ[name] for name in names), sys.path[0])
"""
    for name in ("one", "two"):
        (scripts / f"{name}.py").write_text(script)
    env = {"MASTER_PORT": "15000", "NODE_RANK": "1"}
    done = run(scripts, "python one 20 --a 'b c'", "torchrun two 20 --quick", env=env)

    results = scripts.parent / "results"
    tokens = [
        (results / name / "node1.begun").read_text().splitlines()[1] for name in ("one", "two")
    ]
    assert tokens[0] != tokens[1]
    ran = [line for line in done.stdout.splitlines() if line.startswith("ran")]
    assert ran == [
        f"ran ['--a', 'b c'] {results}/one/node1 15001 {tokens[0]} {scripts}",
        f"ran ['--quick'] {results}/two 15002 {tokens[1]} {scripts}",
    ]
    assert "torchrun two.py --quick 15002" in done.stdout


def test_without_torch_a_payload_of_ranks_runs_as_one_and_says_what_is_wrong(scripts: Path) -> None:
    """Where torchrun cannot be imported nobody else could say it."""
    (scripts / "torch" / "__init__.py").write_text("raise RuntimeError('libcudart is missing')\n")
    script = (
        "import os\ntry:\n import torch\nexcept RuntimeError as error:\n print('told', error)\n"
    )
    (scripts / "one.py").write_text(script)
    done = run(scripts, "torchrun one 20")

    assert "told libcudart is missing" in done.stdout
    assert "torchrun" not in done.stdout


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("raise SystemExit(7)", 7),
        ("raise SystemExit('why')", 1),
        ("1 / 0", 1),
        ("pass", 0),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 139),
        ("import os; os._exit(5)", 5),
    ],
)
def test_the_exit_code_is_noted_and_the_next_one_runs(
    scripts: Path, script: str, code: int
) -> None:
    """However a payload ends."""
    (scripts / "one.py").write_text(script)
    (scripts / "two.py").write_text("print('the next one')")
    done = run(scripts, "python one 20", "python two 20")

    assert done.returncode == 0
    assert (code_of(scripts, "one"), code_of(scripts, "two")) == (code, 0)
    assert done.stdout.splitlines()[-2:] == ["the next one", "[ACCEPT] two ended with exit code 0"]


def test_when_its_time_is_over_a_payload_ends_with_what_it_started(
    scripts: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By TERM, and where it will not by KILL."""
    script = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if {deaf} else signal.SIG_DFL)
child = subprocess.Popen(["sleep", "600"], preexec_fn=lambda: signal.signal(15, signal.SIG_DFL))
pathlib.Path({path!r}).write_text(str(child.pid))
time.sleep(600)
"""
    monkeypatch.setattr(node, "PAYLOADS", scripts)
    monkeypatch.setattr(node, "GRACE_S", 0.5)
    monkeypatch.setenv("RV_OUTPUT_DIR", str(tmp_path / "results"))
    codes = {}
    for name, deaf in (("hears", False), ("deaf", True)):
        child = tmp_path / f"{name}.child"
        (scripts / f"{name}.py").write_text(script.format(deaf=deaf, path=str(child)))
        codes[name] = node.run(node.turn_of(f"python {name} 2"), 15000, torchrun=False)
        assert is_gone(int(child.read_text()))
    assert codes == {"hears": 124, "deaf": 137}


def is_gone(pid: int) -> bool:
    """Whether a process ends within some seconds; a zombie has."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_a_payload_may_start_fresh_interpreters(scripts: Path) -> None:
    """Spawned processes find the payload's own functions, as those of a program do."""
    (scripts / "one.py").write_text("""
import multiprocessing
def double(number):
    return 2 * number
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print("doubled", pool.map(double, [21]), multiprocessing.current_process().name)
""")
    done = run(scripts, "python one 40")

    assert "doubled [42] MainProcess" in done.stdout, done.stderr


def test_a_folder_that_cannot_be_made_is_said(scripts: Path) -> None:
    """The payload runs: what it prints is kept."""
    (scripts / "one.py").write_text("print('ran')")
    (scripts.parent / "results").write_text("a file")
    done = run(scripts, "python one 20")

    assert "[ACCEPT] no folder for results: " in done.stdout
    assert "ran\n" in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("asked", "ranks", "most"), [("1000", "1", 1), ("1000", "4", 4), ("", "1", 0)]
)
def test_threads_are_capped_at_the_processors_of_a_rank(
    monkeypatch: pytest.MonkeyPatch, asked: str, ranks: str, most: int
) -> None:
    """More threads than processors only wait for each other."""
    cpus = len(os.sched_getaffinity(0))
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    monkeypatch.setenv("PET_NPROC_PER_NODE", ranks)
    node.cap_threads()

    assert os.environ["OMP_NUM_THREADS"] == (str(max(1, cpus // most)) if most else "")
