"""`ssh rv-NAME`: to an sshd in a step of the race's job, with its host key checked."""

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ssh.conftest import Laptop
from tests.ssh.test_forward import steps
from tests.ssh.test_launch import eventually, races

__all__ = ["steps"]


@pytest.fixture
def race(laptop: Laptop) -> Iterator[str]:
    """The id of a race, named demo, that runs until the test is over."""
    done = laptop.rv("ssh-config", "--install")
    assert done.returncode == 0, done.stderr
    words = ("-n", "demo", "--gpu", "1", "--time", "10m", "exec sleep 600")
    assert laptop.rv("run", "-d", *words).returncode == 0
    eventually(lambda: races(laptop)[0]["state"] == "RUNNING")
    yield str(races(laptop)[0]["race"])
    laptop.rv("stop", "--all")


def ssh(
    laptop: Laptop, *words: str, folder: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run the plain ssh: the home of the test is not the one that it looks for its files in."""
    command = ["/usr/bin/ssh", "-F", str(laptop.home / ".ssh" / "config"), *words]
    return subprocess.run(
        command, env=laptop.environment, cwd=folder or laptop.home,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_modules_of_the_folder_are_not_imported(laptop: Laptop, race: str, tmp_path: Path) -> None:
    """ssh starts rv in the folder that it is typed in, such as a repository of somebody else's."""
    (tmp_path / "rv").mkdir()
    for name in ("rv/__init__.py", "rv/__main__.py", "types.py"):
        (tmp_path / name).write_text("raise SystemExit('code of the folder ran')\n")
    done = ssh(laptop, f"rv-{race}", "echo came", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "came\n"), done.stderr


@pytest.mark.parametrize("kind", ["openssh", "paramiko"])
def test_a_login_to_the_node(
    laptop: Laptop, race: str, steps: Callable[[], list[str]], tmp_path: Path, kind: str
) -> None:
    """In the job, with its GPUs and the race's environment; rsync works; nothing stays."""
    laptop = replace(laptop, ssh=kind)
    seen = 'echo "$SLURM_JOB_ID $ONLY_ON_THE_CLUSTER $PWD $CUDA_VISIBLE_DEVICES"; exit 7'
    done = ssh(laptop, "rv-demo", seen)
    job = races(laptop)[0]["winner"]
    assert isinstance(job, dict)
    assert done.returncode == 7, done.stderr
    words = done.stdout.split()
    assert words[:3] == [str(job["job_id"]), "yes", str(laptop.home.parent / "away")]
    assert len(words) == 4
    terminal = ssh(laptop, "-tt", f"rv-{race}", "tty; echo $TERM")
    assert "/dev/pts/" in terminal.stdout, terminal.stderr
    (laptop.home / "sent").write_bytes(os.urandom(3_000_000))
    shell = f"/usr/bin/ssh -F {laptop.home}/.ssh/config"
    subprocess.run(
        ["rsync", "-e", shell, str(laptop.home / "sent"), f"rv-demo:{tmp_path}/came"],
        env=laptop.environment, check=True, timeout=120,
    )  # fmt: skip
    assert (tmp_path / "came").read_bytes() == (laptop.home / "sent").read_bytes()
    eventually(lambda: not steps())


def test_another_host_key_is_refused(laptop: Laptop, race: str) -> None:
    """ssh checks the key, and expects that of this race alone."""
    assert ssh(laptop, "rv-demo", "true").returncode == 0
    known = laptop.home / ".ssh" / "rv_known_hosts"
    assert known.read_text().startswith("rv-demo ssh-ed25519 ")
    ours = laptop.home.parent / "away/.local/state/rv/races" / race / "ssh"
    assert stat.S_IMODE((ours / "host_key").stat().st_mode) == 0o600
    other = ours / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    # An sshd that is another's has another key than the one the race directory tells.
    script = laptop.home.parent / "away" / "bin"
    script.mkdir(exist_ok=True)
    real = "/usr/sbin/sshd"
    (script / "sshd").write_text(f'#!/bin/bash\nexec {real} -h {other} "$@"\n')
    (script / "sshd").chmod(0o755)
    text = (ours / "config").read_text()
    assert "host_key" in text
    done = ssh(laptop, "rv-demo", "true")
    assert (done.returncode, "Host key verification failed" in done.stderr) == (255, True), done


def test_what_cannot_be_is_said(laptop: Laptop, race: str) -> None:
    """By ssh's own error output: an unknown race, one that waits, one that is over, no sshd."""
    assert "'nothere' is no race here" in ssh(laptop, "rv-nothere", "true").stderr
    waits = ("run", "-d", "-n", "later", "--sbatch", "begin=now+1hour", "--time", "5m", "true")
    assert laptop.rv(*waits).returncode == 0
    assert "has not started yet" in ssh(laptop, "rv-later", "true").stderr
    away = laptop.home.parent / "away"
    (away / "bin").mkdir(exist_ok=True)
    (away / "bin" / "sshd").write_text("#!/bin/bash\necho 'sshd: no such thing' >&2; exit 1\n")
    (away / "bin" / "sshd").chmod(0o755)
    assert "no login to a1: sshd: no such thing" in ssh(laptop, "rv-demo", "true").stderr
    assert laptop.rv("stop", "--all").returncode == 0
    done = ssh(laptop, "rv-demo", "true")
    assert f"race {race} is over: CANCELLED" in done.stderr
    assert (done.returncode, "Traceback" in done.stderr) == (255, False)


def test_installing(laptop: Laptop) -> None:
    """One line at the top of the user's file, once; the rest and its mode stay."""
    own = laptop.home / ".ssh" / "config"
    before = own.read_text()
    own.chmod(0o640)
    shown = laptop.rv("ssh-config")
    assert own.read_text() == before
    assert "Host rv-*\n" in shown.stdout
    for _ in range(2):
        done = laptop.rv("ssh-config", "--install")
        assert done.returncode == 0, done.stderr
    assert "nothing to change" in done.stderr
    folder = laptop.home / ".ssh"
    assert own.read_text() == f"Include {folder}/rv_config\n{before}"
    assert (folder / "rv_config").read_text() == shown.stdout
    modes = [
        stat.S_IMODE((folder / name).stat().st_mode) for name in ("config", "rv_config", "rv_key")
    ]
    assert modes == [0o640, 0o600, 0o600]
    assert laptop.rv("ps").returncode == 0  # rv's own connection reads the file too
    own.chmod(0o666)
    done = laptop.rv("ssh-config", "--install")
    assert (done.returncode, "is not yours alone" in done.stderr) == (125, True), done.stderr
