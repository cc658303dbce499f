"""A shell in the allocation: held by a lease that rv renews, released on exit.

No process on the node tells whether somebody sits at the shell: it outlives srun and the terminal
where the login node crashes. rv lives as long as the terminal does.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import FrameType
from typing import Final

from rv.errors import RvError
from rv.models.race import Claim, Race, RaceState, RaceStatus
from rv.race.watch import Sink
from rv.render.quote import shell as quoted
from rv.transport import Transport
from rv.workflow.cluster import Cluster
from rv.workflow.launch import Launch
from rv.workflow.start import watch

_RENEW_S: Final = 30.0
_ENDING: Final = (signal.SIGHUP, signal.SIGTERM)
_SHELL: Final = """cd {directory} && [ -O . ] || exit 1
for _ in {{1..100}}; do [ -e shell.env ] && break; sleep 0.1; done
unset LC_ALL SLURM_TIME_FORMAT
. ./shell.env
cd {workdir}
exec "${{SHELL:-/bin/bash}}" -i"""


class HungUp(BaseException):
    """SIGHUP or SIGTERM came: the terminal was closed, or rv is told to end."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


@contextmanager
def hang_up_raised() -> Iterator[None]:
    """Raise `HungUp` for the first SIGHUP or SIGTERM, and ignore others on the way out.

    A signal that rv was started to ignore, as under nohup, stays ignored.
    """

    def hang_up(signal_number: int, _frame: FrameType | None) -> None:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        raise HungUp(signal_number)

    before = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, hang_up)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def lease_renewed(race: Race, transport: Transport) -> Iterator[None]:
    """Tell the job again and again that its client is there."""
    done = threading.Event()
    _renew(race, transport)
    keeper = threading.Thread(target=_keep, args=(race, transport, done), name="lease", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        done.set()


def hold_shell(race: Race, launch: Launch, cluster: Cluster, sink: Sink) -> RaceStatus:
    """Wait for a winner, open a shell on its first node, and release the allocation on exit.

    However this ends, no job of the race holds GPUs for longer. The exit code of the status is the
    shell's.
    """
    try:
        with lease_renewed(race, cluster.transport):
            status = watch(race, launch, cluster, sink, until_claim=True)
            if status.claim is None:
                return status
            code = _open_shell(race, status.claim, launch, cluster)
    finally:
        with suppress(RvError):  # then the lease ends by itself
            cluster.transport.write(f"{race.directory}/release", b"")
    status = watch(race, launch, cluster, sink, until_claim=False)
    return replace(status, exit_code=code) if status.state is RaceState.COMPLETED else status


def _open_shell(race: Race, claim: Claim, launch: Launch, cluster: Cluster) -> int:
    """Hand the terminal to a shell on the winner's first node, and return its exit code."""
    script = _SHELL.format(directory=quoted(race.directory), workdir=quoted(launch.context.workdir))
    return cluster.transport.interactive(
        [
            "srun",
            f"--jobid={claim.job_id}",
            f"--nodelist={claim.host}",
            "--nodes=1",
            "--ntasks=1",
            "--overlap",
            "--pty",
            "/bin/bash",
            "-c",
            script,
        ]
    )


def _keep(race: Race, transport: Transport, done: threading.Event) -> None:
    while not done.wait(_RENEW_S):
        _renew(race, transport)


def _renew(race: Race, transport: Transport) -> None:
    """A renewal that fails is made up for by the next: the lease lasts ten of them."""
    with suppress(RvError):
        transport.write(f"{race.directory}/lease", f"{time.time():.0f}\n".encode())
