"""A shell in the allocation: held by a lease that the client renews, released on exit."""

import threading
import time
from contextlib import suppress
from dataclasses import replace

from rv.errors import RvError
from rv.models.race import Claim, Race, RaceState, RaceStatus
from rv.race.watch import Sink
from rv.render.quote import shell as quoted
from rv.transport import Transport
from rv.workflow.cluster import Cluster
from rv.workflow.launch import Launch
from rv.workflow.start import watch

_RENEW_S = 60.0
# The heartbeat is the shell's own: it holds the allocation when the client has died under it.
_SHELL = """cd {directory} && [ -O . ] || exit 1
(while kill -0 $$ 2>/dev/null; do date +%s >.shell.$$ && mv -T .shell.$$ shell; sleep 30; done) &
for _ in {{1..100}}; do [ -e shell.env ] && break; sleep 0.1; done
unset LC_ALL SLURM_TIME_FORMAT
. ./shell.env
cd {workdir}
exec "${{SHELL:-/bin/bash}}" -i"""


def hold_shell(race: Race, launch: Launch, cluster: Cluster, sink: Sink) -> RaceStatus:
    """Wait for a winner, open a shell on its first node, and release the allocation on exit.

    The exit code of the status is the shell's.
    """
    done = threading.Event()
    _renew(race, cluster.transport)
    keeper = threading.Thread(
        target=_keep, args=(race, cluster.transport, done), name="lease", daemon=True
    )
    keeper.start()
    try:
        status = watch(race, launch, cluster, sink, until_claim=True)
        if status.claim is None:
            return status
        code = _open_shell(race, status.claim, launch, cluster)
    finally:
        done.set()
    status = watch(race, launch, cluster, sink, until_claim=False)
    return replace(status, exit_code=code) if status.state is RaceState.COMPLETED else status


def _open_shell(race: Race, claim: Claim, launch: Launch, cluster: Cluster) -> int:
    """Hand the terminal to a shell on the winner's first node, then let the allocation go.

    Return the shell's exit code.
    """
    script = _SHELL.format(directory=quoted(race.directory), workdir=quoted(launch.context.workdir))
    try:
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
    finally:
        cluster.transport.write(f"{race.directory}/release", b"")


def _keep(race: Race, transport: Transport, done: threading.Event) -> None:
    while not done.wait(_RENEW_S):
        _renew(race, transport)


def _renew(race: Race, transport: Transport) -> None:
    """A renewal that fails is made up for by the next: the lease lasts ten of them."""
    with suppress(RvError):
        transport.write(f"{race.directory}/lease", f"{time.time():.0f}\n".encode())
