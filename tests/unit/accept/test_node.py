"""The program that runs an acceptance run's payloads on a node, each a fork of it."""

import compileall
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    for name in ("_acceptance", "_processes", "_harness", "contract"):
        (folder / name).symlink_to(Path(node.__file__).parents[1] / name)
    return folder


IMPATIENT = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from _acceptance import node
node.GRACE_S, node.IMPORT_WITHIN_S = 0.5, 2.0
node.main(sys.argv[1:])
"""
"""The program, with less patience."""


def run(
    scripts: Path,
    *turns: str,
    env: Mapping[str, str] | None = None,
    impatient: bool = False,
    stdout: Any = subprocess.PIPE,
) -> subprocess.CompletedProcess[str]:
    """Run these turns as a job does."""
    own = {"PATH": os.environ["PATH"], "PYTHONPATH": str(scripts), "SLURMD_NODENAME": "n7"}
    own |= {"RV_OUTPUT_DIR": str(scripts.parent / "results")}
    program = [str(scripts / "_acceptance" / "node.py")]
    return subprocess.run(
        [sys.executable, *(["-c", IMPATIENT, str(scripts)] if impatient else program), *turns],
        env=own | dict(env or {}), stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60,
    )  # fmt: skip


COMPILED = """
import os, sys, torch
file = torch.__spec__.cached
number = os.stat(file).st_ino if os.path.exists(file) else None
print("compiled", number, sys.pycache_prefix or "beside")
"""
"""A payload that tells which torch's compiled file is, and where."""


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
    env = {"MASTER_PORT": "15000", "NODE_RANK": "1", "NNODES": "2"}
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


def test_no_payload_takes_the_port_of_the_next_job(scripts: Path) -> None:
    """MASTER_PORT of two jobs whose ids follow each other are seven apart."""
    (scripts / "one.py").write_text("import os\nprint('port', os.environ['MASTER_PORT'])\n")
    env = {"MASTER_PORT": "15000", "NNODES": "2"}
    done = run(scripts, *["python one 20"] * 8, env=env)

    ports = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("port")]
    assert ports == [*range(15001, 15007), 15001, 15002]


def test_a_port_that_somebody_has_taken_is_left_to_them(scripts: Path) -> None:
    """On one node: over several each has to know it."""
    (scripts / "one.py").write_text("import os\nprint('port', os.environ['MASTER_PORT'])\n")
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = [
            run(scripts, "python one 20", env={"MASTER_PORT": str(port - 1), "NNODES": nodes})
            for nodes in ("1", "2")
        ]

    alone, together = (int(each.stdout.partition("port ")[2].split()[0]) for each in done)
    assert (alone != port, together == port) == (True, True)


@pytest.mark.parametrize(("nodes", "code"), [("1", 124), ("2", 0)])
def test_ranks_have_their_time_from_when_all_nodes_are_there(
    scripts: Path, nodes: str, code: int
) -> None:
    """A node may be a payload behind: torchrun begins no rank without it."""
    (scripts / "one.py").write_text("import time\ntime.sleep(2)\n")
    run(scripts, "torchrun one 0.5", env={"NNODES": nodes})

    assert code_of(scripts, "one") == code


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


@pytest.mark.parametrize("ignores", [False, True])
def test_when_its_time_is_over_a_payload_ends_with_what_it_started(
    scripts: Path, tmp_path: Path, ignores: bool
) -> None:
    """By SIGTERM, and where it ignores that by SIGKILL."""
    child = tmp_path / "child"
    (scripts / "one.py").write_text(f"""
import pathlib, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if {ignores} else signal.SIG_DFL)
child = subprocess.Popen(["sleep", "600"])
pathlib.Path({str(child)!r}).write_text(str(child.pid))
time.sleep(600)
""")
    run(scripts, "python one 2", impatient=True)

    assert code_of(scripts, "one") == 124
    assert is_gone(int(child.read_text()))


@pytest.mark.parametrize("end", ["os._exit(0)", "time.sleep(600)"])
def test_nothing_that_a_payload_started_runs_beside_the_next(
    scripts: Path, tmp_path: Path, end: str
) -> None:
    """Not in a session of its own, as torchrun's ranks, and ignoring SIGTERM; however it ended."""
    child = tmp_path / "child"
    (scripts / "one.py").write_text(f"""
import os, pathlib, subprocess, time
child = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 600"], start_new_session=True)
pathlib.Path({str(child)!r}).write_text(str(child.pid))
{end}
""")
    (scripts / "two.py").write_text(f"""
import pathlib
stat = pathlib.Path("/proc", pathlib.Path({str(child)!r}).read_text(), "stat")
print("it is", "there" if stat.exists() else "gone")
""")
    done = run(scripts, "python one 2", "python two 20", impatient=True)

    assert "it is gone" in done.stdout


def test_a_payload_that_kill_does_not_end_keeps_the_next_one_waiting_for_seconds(
    scripts: Path,
) -> None:
    """As where it waits for a device: here a tracer keeps its end from its parent."""
    (scripts / "one.py").write_text("""
import ctypes, os, subprocess, sys, time
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER, any
seize = "import ctypes, sys, time; print(ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), 0, 0), flush=True); time.sleep(600)"
tracer = subprocess.Popen([sys.executable, "-c", seize, str(os.getpid())], start_new_session=True, stdout=-1)
print("seized", tracer.stdout.readline().decode().strip(), flush=True)
time.sleep(600)
""")
    (scripts / "two.py").write_text("print('the next one')")
    done = run(scripts, "python one 3", "python two 20", impatient=True)

    assert "seized 0" in done.stdout
    assert "the next one" in done.stdout
    assert code_of(scripts, "one") == 124


@pytest.mark.parametrize(
    ("torch", "code"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 139),
        ("raise SystemExit(3)", 3),
        ("import time; time.sleep(600)", 124),
    ],
)
def test_a_torch_that_ends_or_stops_who_imports_it_costs_no_other_payload(
    scripts: Path, torch: str, code: int
) -> None:
    """Each tries for itself, within its own time."""
    (scripts / "torch" / "__init__.py").write_text(torch)
    (scripts / "one.py").write_text("import torch")
    (scripts / "two.py").write_text("print('the next one')")
    done = run(scripts, "python one 2", "python two 20", impatient=True)

    assert (code_of(scripts, "one"), code_of(scripts, "two")) == (code, 0)
    assert "the next one" in done.stdout


def test_what_is_wrong_with_torch_is_what_its_first_import_says(scripts: Path) -> None:
    """A second one, of a module that is half there, complains of that."""
    (scripts / "torch" / "__init__.py").write_text("""
import sys
first = not hasattr(sys, "tried")
sys.tried = True
raise RuntimeError("libcudart is missing" if first else "only a single library can be registered")
""")
    (scripts / "one.py").write_text("import torch")
    done = run(scripts, "python one 20")

    assert "libcudart is missing" in done.stderr


def test_a_full_disk_under_its_own_words_ends_nothing(scripts: Path) -> None:
    """Nor does one under those of a payload."""
    for name in ("one", "two"):
        (scripts / f"{name}.py").write_text(
            "import os; os.mkdir(os.environ['RV_OUTPUT_DIR'] + '/x')"
        )
    with Path("/dev/full").open("w") as full:
        done = run(scripts, "python one 20", "python two 20", stdout=full)

    assert done.returncode == 0
    assert (code_of(scripts, "one"), code_of(scripts, "two")) == (0, 0)


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
    ("asked", "ranks", "most"), [("1000", "1", 1), ("1000", "4", 4), ("4,2", "1", 1), ("", "1", 0)]
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


@pytest.mark.parametrize("starts", ["python", "torchrun"])
def test_modules_are_compiled_once_where_torch_has_no_compiled_files(
    scripts: Path, starts: str
) -> None:
    """As in an image that was made with PYTHONDONTWRITEBYTECODE: each rank compiled all, anew."""
    (scripts / "one.py").write_text(COMPILED)
    turns = [f"{starts} one 20"] * 3
    done = run(scripts, *turns, env={"PYTHONDONTWRITEBYTECODE": "1"})
    said = [line.split() for line in done.stdout.splitlines() if line.startswith("compiled")]

    assert len(said) == 3
    ((_, number, folder),) = {tuple(words) for words in said}
    assert number != "None"
    assert "rv-pyc-" in folder
    assert not Path(folder).exists()  # taken away at the end
    assert not list(scripts.glob("torch/__pycache__"))


BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}


def test_compiled_files_that_came_with_torch_are_used(scripts: Path) -> None:
    """Nothing is compiled again beside them."""
    compileall.compile_dir(scripts / "torch", quiet=2)
    number = next(scripts.glob("torch/__pycache__/__init__*.pyc")).stat().st_ino
    (scripts / "one.py").write_text(COMPILED)

    assert f"compiled {number} beside" in run(scripts, "python one 20", env=BYTECODE).stdout


def test_python_keeps_compiled_files_beside_torch_where_it_may(scripts: Path) -> None:
    """For all runs to come."""
    (scripts / "one.py").write_text(COMPILED)
    done = run(scripts, "python one 20")
    number = next(scripts.glob("torch/__pycache__/__init__*.pyc")).stat().st_ino

    assert f"compiled {number} beside" in done.stdout


def test_a_folder_of_the_users_own_for_compiled_files_is_used(scripts: Path) -> None:
    """It is there for all runs."""
    (scripts / "one.py").write_text(COMPILED)
    own = scripts.parent / "own"
    done = run(scripts, "python one 20", env=BYTECODE | {"PYTHONPYCACHEPREFIX": str(own)})

    assert f"compiled None {own}" in done.stdout


UNREADABLE = """
import errno, pathlib
def exists(path): raise PermissionError(errno.EACCES, "no")
pathlib.Path.exists = exists
"""


@pytest.mark.parametrize(
    "change",
    [
        "import tempfile; tempfile.gettempdir = lambda: '/nowhere'",
        "import shutil; shutil.disk_usage = lambda path: shutil._ntuple_diskusage(9, 8, 1)",
        UNREADABLE,
    ],
    ids=["no folder", "no room", "unreadable"],
)
def test_without_a_folder_for_compiled_files(scripts: Path, change: str) -> None:
    """The payloads run all the same."""
    (scripts / "one.py").write_text(COMPILED)
    (scripts / "sitecustomize.py").write_text(f"{change}\n")
    folders = set(Path(tempfile.gettempdir()).glob("rv-pyc-*"))
    done = run(scripts, "python one 20", env=BYTECODE)

    assert "compiled None beside" in done.stdout
    assert set(Path(tempfile.gettempdir()).glob("rv-pyc-*")) == folders
