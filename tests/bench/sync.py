"""Sync of a work tree over ssh beside rsync: first time, and with one file changed.

Wanted: with 5,000 files at most twice rsync's time; with 100,000 at most 200 MiB. Root only: the
login node has an empty /etc/profile.d, whose scripts rv's login shells run and rsync's do not.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
ROUNDS = 5

from tests.ssh.server import HOST, SshServer  # noqa: E402 - it lies beside the package

_PUSH = """
import sys
from rv.transport.openssh import OpenSsh
from rv.transport.remote import RemoteTransport
from rv.transport.remote_shell import RemoteShell
from rv.workflow.send_code import Destination, send
from rv.workflow.work_tree import read_work_tree
from pathlib import Path
import resource
top, store, memory, program = sys.argv[1:]
ssh = OpenSsh("cluster", program)
transport = RemoteTransport(RemoteShell(ssh.connect, "SLURM_.*"), ssh)
work = read_work_tree(top, top, (), Path(memory) / "trees")
sent = send(work, Destination(store=store, memory=Path(memory) / "sent"), transport, lambda n: None)
print(sent.files, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def main() -> None:
    """Print a line for each size."""
    with tempfile.TemporaryDirectory(prefix="rvb", dir="/tmp") as name:
        folder = Path(name)
        os.environ["XDG_RUNTIME_DIR"] = name
        profiles = folder / "profiles"
        profiles.mkdir()
        server = SshServer(path=folder / "s", binds={"/etc/profile.d": profiles})
        server.start()
        try:
            for count in (5_000, 100_000):
                _measure(count, folder / str(count), server)
        finally:
            server.stop()


def _measure(count: int, folder: Path, server: SshServer) -> None:
    top = folder / "top"
    for number in range(count):
        path = top / f"d{number // 100}" / f"f{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"value = {number}\n" * 20)
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    subprocess.run(["git", "-C", str(top), "add", "."], check=True)
    time.sleep(3)  # files that changed just now are hashed again
    program = str(server.path / "bin" / "ssh")
    subprocess.run([program, HOST, "true"], check=True)
    first_s, _, most_mib = _push(folder, program)
    rsync_first_s = _rsync(folder, program)
    print(f"sync, {count} files: first {first_s:.2f} s (rsync {rsync_first_s:.2f} s)", end="")
    again, by_rsync = [], []
    for turn in range(ROUNDS):
        (top / "d0" / "f0.py").write_text(f"changed = {turn}\n")
        second_s, files, again_mib = _push(folder, program)
        most_mib = max(most_mib, again_mib)
        again.append(second_s)
        by_rsync.append(_rsync(folder, program))
    second_s, rsync_second_s = median(again), median(by_rsync)
    print(
        f", one changed {second_s:.2f} s (rsync {rsync_second_s:.2f} s, ratio"
        f" {second_s / rsync_second_s:.2f}), sent {files}, {most_mib} MiB"
    )
    shutil.rmtree(folder)


def _push(folder: Path, program: str) -> tuple[float, int, int]:
    words = [folder / "top", folder / "store", folder / "memory", program]
    began_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _PUSH, *map(str, words)], check=True, capture_output=True, text=True
    )
    files, mib = map(int, done.stdout.split())
    return time.monotonic() - began_s, files, mib


def _rsync(folder: Path, program: str) -> float:
    began_s = time.monotonic()
    subprocess.run(
        ["rsync", "-a", "--delete", "-e", program, f"{folder}/top/", f"{HOST}:{folder}/copy"],
        check=True,
    )
    return time.monotonic() - began_s


if __name__ == "__main__":
    main()
