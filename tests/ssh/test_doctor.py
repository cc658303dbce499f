"""`rv doctor` over a real sshd, on a real Slurm: each check finds its planted fault, and only it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rv import sandbox
from tests.ssh.conftest import Laptop
from tests.ssh.test_launch import eventually

CHECKS = [
    "connection", "login shell", "Slurm commands", "controller", "accounting", "account",
    "race root", "hard links", "space", "job", "race root from a node", "submission from a node",
    "python3 on a node", "torch", "clock", "python3", "tmux", "git here",
]  # fmt: skip
REAL = 'PATH=${PATH#"$(dirname "$0")":} exec "$(basename "$0")" "$@"'


@pytest.fixture
def home_there(laptop: Laptop) -> Path:
    """The home on the login node, with programs of its own, first on PATH."""
    away = laptop.home.parent / "away"
    (away / "bin").mkdir()
    plant(away, "tmux", "echo tmux 3")
    plant(away, "python3", f'case "$*" in *torch*) exit 0 ;; esac\n{REAL}')
    return away


@pytest.fixture(autouse=True)
def left_behind(laptop: Laptop, small: sandbox.Sandbox) -> Iterator[None]:
    """Nothing is, whatever the check found: no job, no file, no folder."""
    yield
    environ = os.environ | {"SLURM_CONF": str(small.slurm_conf)}
    eventually(lambda: not jobs(environ))
    away = laptop.home.parent / "away"
    assert sorted(path.name for path in away.iterdir() if path.name[:5] != ".bash") == ["bin"]


def jobs(environ: dict[str, str]) -> str:
    """rv's test jobs in the queue."""
    done = subprocess.run(
        ["squeue", "-h", "-t", "PD,R,S", "-o", "%j"], env=environ, capture_output=True, text=True
    )
    return "".join(line for line in done.stdout.split() if line.startswith("rv-doctor"))


def plant(away: Path, name: str, body: str) -> None:
    """Put a program before the real one; the real one can be called as `REAL`."""
    path = away / "bin" / name
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


def findings(laptop: Laptop, *words: str) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code, and what each check found."""
    done = laptop.rv("doctor", "--json", *words)
    assert "Traceback" not in done.stderr
    assert done.stdout, done.stderr
    return done.returncode, {each["check"]: each for each in json.loads(done.stdout)["checks"]}


def verdicts(found: dict[str, dict[str, str]]) -> dict[str, str]:
    """What is not well."""
    return {check: each["verdict"] for check, each in found.items() if each["verdict"] != "ok"}


def test_all_is_well_with_a_healthy_cluster(laptop: Laptop, home_there: Path) -> None:
    """Each link is checked, each in a line."""
    code, found = findings(laptop)
    assert (code, verdicts(found), list(found)) == (0, {}, CHECKS)
    assert found["connection"]["what"].startswith("openssh, shared: ")
    done = laptop.rv("doctor")
    assert done.returncode == 0
    assert [line[:3] for line in done.stdout.splitlines()] == ["ok "] * len(CHECKS)


FAULTS = {
    "a noisy shell": ("login shell", "WARN", "echo 'echo welcome' >> ~/.bash_profile"),
    "a noisy bashrc": ("login shell", "WARN", "echo 'echo welcome' > ~/.bashrc"),
    "a broken sbatch": ("Slurm commands", "FAIL", "sbatch=exit 1"),
    "a controller that is silent": ("controller", "FAIL", "scontrol=echo down >&2; exit 1"),
    "accounting that is silent": ("accounting", "WARN", "sacct=echo 'no database' >&2; exit 1"),
    "a database that is silent": ("accounting", "WARN", "sacctmgr=exit 1"),
    "no hard links": ("hard links", "FAIL", "ln=exit 1"),
    "a full disk": ("space", "WARN", "df=echo; echo x 9 9 9 9% /"),
    "few inodes": ("space", "WARN", f'df=[ "$2" = -i ] || {REAL}; echo; echo x 9 9 9 9% /'),
    "a used up quota": ("space", "WARN", "quota=echo over quota on /home"),
    "a job that does not start": ("job", "WARN", f'sbatch=set -- --begin=now+10minutes "$@"; {REAL}'),
    "a job that is refused": ("job", "FAIL", f'sbatch=[ "$1" = --version ] || set -- "${{@:1:$#-1}}" -p none "${{@: -1}}"; {REAL}'),
    "a node that may not submit": ("submission from a node", "WARN", f'sbatch=[ -z "$SLURM_JOB_ID" ] || {{ echo no >&2; exit 1; }}; {REAL}'),
    "a node that may not cancel": ("submission from a node", "WARN", f'scancel=[ -z "$SLURM_JOB_ID" ] || {{ echo no >&2; exit 1; }}; {REAL}'),
    "a clock that is wrong": ("clock", "WARN", f'date=set -- -d "1 hour" "$@"; {REAL}'),
    "no python3": ("python3", "WARN", f'python3=[ -n "$SLURM_JOB_ID" ] || exit 127; case "$*" in *torch*) exit 0 ;; esac; {REAL}'),
    "no python3 on the node": ("python3 on a node", "WARN", f'python3=[ -z "$SLURM_JOB_ID" ] || exit 127; {REAL}'),
    "no torch": ("torch", "WARN", f'python3=case "$*" in *torch*) exit 1 ;; esac; {REAL}'),
    "no tmux": ("tmux", "WARN", "tmux=exit 127"),
}  # fmt: skip
ALSO = {
    "a controller that is silent": set(),
    "a broken sbatch": {"job"},
}
"""What else is not well then, as it stands on the same thing."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_only_it(laptop: Laptop, home_there: Path, fault: str) -> None:
    """With a remedy; the exit code says whether anything failed."""
    check, verdict, what = FAULTS[fault]
    name, equals, body = what.partition("=")
    if equals and " " not in name:
        plant(home_there, name, body)
    else:
        subprocess.run(["bash", "-c", what], env=os.environ | {"HOME": str(home_there)}, check=True)
    code, found = findings(laptop, "--wait", "5s")
    assert verdicts(found) == {check: verdict} | dict.fromkeys(ALSO.get(fault, ()), "FAIL")
    assert all(found[each]["remedy"] for each in verdicts(found))
    assert code == (verdict == "FAIL")


def test_a_server_that_is_gone_is_the_one_finding(laptop: Laptop, home_there: Path) -> None:
    """Nothing else can be checked."""
    laptop.server.stop()
    code, found = findings(laptop)
    assert (code, verdicts(found), list(found)) == (1, {"connection": "FAIL"}, ["connection"])
    assert found["connection"]["remedy"]


def test_a_user_without_an_account_is_named(laptop: Laptop, home_there: Path) -> None:
    """Where the cluster asks for one."""
    plant(home_there, "sacctmgr", f"{REAL} | head -n 1".replace("exec ", ""))
    plant(home_there, "scontrol", f'{REAL} | sed "s/^AccountingStorageEnforce.*/AccountingStorageEnforce = associations/"'.replace("exec ", ""))  # fmt: skip
    _, found = findings(laptop, "--wait", "5s")
    assert found["account"]["verdict"] == "FAIL"
    assert "administrators" in found["account"]["remedy"]


@pytest.mark.parametrize("root", ["/proc/rv", "/dev/null/rv", "open to all"])
def test_a_race_root_that_cannot_be_used_is_found(
    laptop: Laptop, home_there: Path, root: str
) -> None:
    """Not writable, or others could change what lies there; no job is sent."""
    if root == "open to all":
        folder = home_there.parent / "open"
        folder.mkdir()
        folder.chmod(0o777)
        root = str(folder)
    with (home_there / ".bash_profile").open("a") as profile:
        profile.write(f"export RV_RACE_ROOT={root}\n")
    code, found = findings(laptop)
    assert (code, verdicts(found)) == (1, {"race root": "FAIL"})
    assert "job" not in found
    assert found["race root"]["remedy"]


def test_a_race_root_of_the_login_node_alone_is_found(laptop: Laptop, home_there: Path) -> None:
    """By the job that runs and neither reads nor writes there."""
    script = f'[ "${{*: -1}}" = --version ] || sed -i "s#^folder=[^ ]*#folder=/nowhere#" "${{*: -1}}"; {REAL}'
    plant(home_there, "sbatch", script)
    code, found = findings(laptop)
    assert (code, verdicts(found)) == (1, {"race root from a node": "FAIL"})
    assert "shared disk" in found["race root from a node"]["remedy"]


def test_a_laptop_without_git_is_told(laptop: Laptop, home_there: Path, tmp_path: Path) -> None:
    """Its own programs are looked for too."""
    for name in ("ssh", "sh"):
        found = laptop.server.path / "bin" / "ssh" if name == "ssh" else Path("/bin/sh")
        (tmp_path / name).symlink_to(found)
    environment = laptop.environment | {"PATH": str(tmp_path)}
    process = subprocess.run(
        [sys.executable, "-m", "rv", "doctor", "--json"], env=environment, cwd=laptop.home,
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    checks = {each["check"]: each for each in json.loads(process.stdout)["checks"]}
    assert verdicts(checks) == {"git here": "WARN"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_after_an_interrupt(
    laptop: Laptop, home_there: Path, small: sandbox.Sandbox, number: signal.Signals
) -> None:
    """While the job waits for its start."""
    plant(home_there, "sbatch", f'set -- --begin=now+10minutes "$@"; {REAL}')
    environ = os.environ | {"SLURM_CONF": str(small.slurm_conf)}
    with laptop.start("doctor") as process:
        eventually(lambda: jobs(environ))
        time.sleep(0.2)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
