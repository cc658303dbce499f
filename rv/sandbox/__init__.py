"""A real Slurm cluster on this machine: the embedded default, and what the tests run on.

from rv import sandbox
box = sandbox.up(profile="small")
# SLURM_CONF=box.slurm_conf sinfo
sandbox.down(box.name)
"""

from rv.sandbox.api import (
    DaemonStatus,
    Sandbox,
    SandboxStatus,
    down,
    find,
    list_all,
    load,
    set_fault,
    start_daemon,
    start_node,
    status,
    stop_daemon,
    stop_load,
    stop_node,
    up,
)

__all__ = [
    "DaemonStatus",
    "Sandbox",
    "SandboxStatus",
    "down",
    "find",
    "list_all",
    "load",
    "set_fault",
    "start_daemon",
    "start_node",
    "status",
    "stop_daemon",
    "stop_load",
    "stop_node",
    "up",
]
