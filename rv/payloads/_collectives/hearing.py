"""Have NCCL write its log to a file of this rank, and read it; see the node's ports for RDMA."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .nccl_log import MOST_CHARACTERS
from .transport import Port

if TYPE_CHECKING:
    from collections.abc import Iterator

SYSTEMS = "INIT,ENV,GRAPH,NET,P2P,SHM"
"""What NCCL is to tell of: once for each connection, not for each collective."""
PORTS = Path("/sys/class/infiniband")
_MOST_PORTS = 64


@contextlib.contextmanager
def nccl_log_file() -> Iterator[Path]:
    """Have NCCL log to a file for the block, before it is first used; the user's own file stays."""
    own = os.environ.get("NCCL_DEBUG_FILE", "")
    if own and own != "/dev/null":
        os.environ.update(_variables(own))
        here = {"%h": socket.gethostname().partition(".")[0], "%p": str(os.getpid()), "%%": "%"}
        yield Path(re.sub("%[hp%]", lambda found: here[found[0]], own))
        return
    with tempfile.TemporaryDirectory(prefix="rv-nccl-") as folder:
        path = Path(folder) / "log"
        os.environ.update(_variables(str(path)))
        yield path


def _variables(file: str) -> dict[str, str]:
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": SYSTEMS, "NCCL_DEBUG_FILE": file}


def read_log(path: Path) -> str:
    """Return a log's beginning; "" where there is none."""
    try:
        with path.open("rb") as file:
            return file.read(MOST_CHARACTERS).decode(errors="replace")
    except OSError:
        return ""


def active_ports(root: Path = PORTS) -> tuple[Port, ...]:
    """Return the active ports of the node's RDMA cards, as the kernel has them."""
    folders = sorted(root.glob("*/ports/*"))[:_MOST_PORTS]
    return tuple(_port(folder) for folder in folders if "ACTIVE" in _word(folder / "state"))


def _port(folder: Path) -> Port:
    rate = re.match(r"\d+(\.\d+)?", _word(folder / "rate"))
    name = f"{folder.parents[1].name}:{folder.name}"
    return Port(name, _word(folder / "link_layer"), float(rate[0]) if rate else 0.0)


def _word(path: Path) -> str:
    """Return the first line of a file of the kernel's; "" where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(80).decode(errors="replace").strip()
    except OSError:
        return ""
