"""A sandbox for a benchmark, in folders of its own, and rv's view of it."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rv import sandbox
from rv.workflow.cluster import Cluster
from rv.workflow.locate import locate

RV = [sys.executable, "-m", "rv"]


@contextmanager
def cluster(profile: str) -> Iterator[Cluster]:
    """Bring a sandbox up, and take it and all its traces away again."""
    home = Path(tempfile.mkdtemp(prefix="rvb-", dir="/tmp"))
    home.chmod(0o755)  # jobs of other users run in here
    for kind in ("STATE", "CACHE", "CONFIG"):
        os.environ[f"XDG_{kind}_HOME"] = str(home / kind.lower())
    try:
        box = sandbox.up("bench", profile)
        os.environ["SLURM_CONF"] = str(box.slurm_conf)
        yield locate("", dict(os.environ))
    finally:
        sandbox.down("bench")
        shutil.rmtree(home, ignore_errors=True)


def rv(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the rv command."""
    return subprocess.run([*RV, *arguments], capture_output=True, text=True, check=False)


def rpc_counts(target: Cluster) -> dict[str, int]:
    """Read the controller's RPC counters by message type, as sdiag prints them."""
    printed = target.transport.run("sdiag", timeout_s=30).stdout
    section = printed.split("Remote Procedure Call statistics by message type")[1]
    counts = {}
    for line in section.split("Remote Procedure Call statistics by user")[0].splitlines():
        words = line.split()
        if len(words) > 3 and "count:" in line:
            counts[words[0]] = int(line.split("count:")[1].split()[0])
    return counts
