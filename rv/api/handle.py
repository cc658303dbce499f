"""What `rv.Race` and `rv.Job` share of a race: how it stands and ends, its output and its files."""

import asyncio
import codecs
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import PurePosixPath
from typing import Final, Literal

from rv.api.connection import connect
from rv.api.errors import FailedJobError, UncompletedJobError
from rv.api.quiet import QUIET
from rv.api.watcher import watched
from rv.errors import ErrorKind, RvError
from rv.models.race import Race as RaceRecord
from rv.models.race import RaceState, RaceStatus
from rv.race.directory import load_state_files
from rv.race.output import STREAMS, OutputReader
from rv.race.watch import WaitTimedOut
from rv.render.quote import shell
from rv.transport import require_answer, require_end
from rv.workflow.cluster import Cluster, Early
from rv.workflow.races import exit_code, find_races, look_at, require_node, stop_races
from rv.workflow.wait import wait_for_races

Timeout = float | timedelta | None
"""Seconds, or a timedelta; None for as long as it takes."""

Stream = Literal["out", "err", "both"]
_Decoders = defaultdict[tuple[int, bool], codecs.IncrementalDecoder]

_DECODER: Final = partial(codecs.getincrementaldecoder("utf-8"), "replace")
_LAST_LINES: Final = 20
_ASKING_S: Final = 60.0
_AT_ONCE: Final = timedelta(seconds=1)
_SELDOM: Final = timedelta(seconds=30)
_LOOKS: Final = 20
_SETTLES_IN: Final = timedelta(seconds=10)
_LOOK_AGAIN_S: Final = 1.0


def find_handle(race: str, where: str) -> "Handle":
    """Find a race by a word for it. Raises `RvError(USAGE)` where the cluster has none."""
    cluster = connect(where, Early.RACES)
    (record,) = find_races([race], cluster)
    return Handle(record, cluster, where)


class Handle:
    """One race; `where` is what the user called its cluster. Any thread may use it."""

    def __init__(self, record: RaceRecord, cluster: Cluster, where: str) -> None:
        self.record, self.cluster, self._where = record, cluster, where
        self._end: RaceStatus | None = None  # once known it does not change any more

    @property
    def is_here(self) -> bool:
        """Whether the cluster's commands, and so its disk, are this machine's."""
        return self.cluster.login is None

    def look(self) -> RaceStatus:
        """Return how it stands; Slurm is asked seldom, for all races together."""
        if self._end is not None:
            return self._end
        now_s = time.time()
        status, _ = look_at(self.record, self.cluster, now_s, self._queue_may_be(now_s))
        if not status.state.is_over:
            return status
        with suppress(WaitTimedOut):  # what Slurm says of its end may be a moment later
            return self._await(_SETTLES_IN)
        return status

    def _queue_may_be(self, now_s: float) -> timedelta:
        """How old Slurm's answer may be: its directory tells of a start and of an end at once."""
        files = load_state_files(self.record, self.cluster.transport)
        if files.ended or files.stopped or files.lost:
            return _AT_ONCE
        age = timedelta(seconds=now_s - self.record.submitted_at)
        return max(_AT_ONCE, min(_SELDOM, age / _LOOKS))

    def code(self) -> int | None:
        """Return the command's exit code; None before its end."""
        status = self.look()
        return exit_code(status, self.cluster.transport) if status.state.is_over else None

    def wait(self, timeout: Timeout) -> None:
        """Wait for its end. Raises `TimeoutError`, and lets Ctrl-C through."""
        if self._end is not None:
            return
        seconds = _seconds(timeout)
        try:
            self._await(None if seconds is None else timedelta(seconds=seconds))
        except WaitTimedOut:
            message = f"race {self.record.race_id} is not over after {timeout} s"
            raise TimeoutError(message) from None

    def _await(self, limit: timedelta | None) -> RaceStatus:
        (end,) = wait_for_races([self.record], self.cluster, QUIET, limit)
        self._end = end
        return end

    async def wait_async(self, timeout: Timeout) -> None:
        """Do the same without keeping the event loop waiting; it can be cancelled."""
        await asyncio.wait_for(asyncio.wrap_future(self.future()), _seconds(timeout))

    def future(self) -> "Future[RaceStatus]":
        """Return its end as a future, for which one thread waits."""
        if self._end is None:
            future = watched(self.record, self.cluster)
            future.add_done_callback(self._keep)
        else:
            future = Future()
            future.set_result(self._end)
        return future

    def _keep(self, future: "Future[RaceStatus]") -> None:
        if not future.exception():
            self._end = future.result()

    def cancel(self) -> None:
        """Cancel it whole. Raises `RvError(UNREACHABLE)` where nobody confirms it."""
        if self._end is not None:
            return
        for stopped in stop_races([self.record], self.cluster):
            if stopped.unconfirmed:
                hint = "again, or rv stop"
                raise RvError(ErrorKind.UNREACHABLE, stopped.unconfirmed, hint=hint)

    def failure(self) -> UncompletedJobError:
        """Say how a race ended that did not succeed, with the last that it wrote."""
        status, race_id = self.look(), self.record.race_id
        why = f": {status.why}" if status.why else ""
        code = f" with code {status.exit_code}" if status.exit_code is not None else ""
        last = self.read("err", tail=_LAST_LINES) or self.read("out", tail=_LAST_LINES)
        message = f"race {race_id} ended as {status.state}{code}{why}"
        kind = FailedJobError if status.state is RaceState.FAILED else UncompletedJobError
        return kind(f"{message}\n{last}".rstrip(), hint=f"rv logs {race_id}")

    def read(self, stream: Stream, node: int | None = None, tail: int | None = None) -> str:
        """Return what its command has written; the last lines, or all."""
        require_node(self.record, node)
        reader = self._reader(stream, node)
        if tail is not None:
            reader.skip_to_last(tail)
        return "".join(_pieces(reader, defaultdict(_DECODER)))

    def follow(self, stream: Stream) -> Iterator[str]:
        """Yield what its command writes as it comes, until it is over."""
        reader = self._reader(stream, None)
        decoders: _Decoders = defaultdict(_DECODER)
        while True:
            is_over = self.look().state.is_over  # before it is read: nothing comes after it
            yield from _pieces(reader, decoders)
            if is_over:
                return
            time.sleep(_LOOK_AGAIN_S)

    def _reader(self, stream: Stream, node: int | None) -> OutputReader:
        if stream not in (*STREAMS, "both"):
            raise RvError(ErrorKind.USAGE, f"{stream!r} is no stream", hint="out, err or both")
        streams: Sequence[str] = STREAMS if stream == "both" else (stream,)
        return OutputReader(self.record, self.cluster.transport, node, streams)

    def read_own(self, name: str, *, limit: int = -1) -> bytes | None:
        """Read a file below its directory; None where there is none, or another user's."""
        directory, transport = self.record.directory, self.cluster.transport
        file = shell(f"{directory}/{name}")
        folder = shell(str(PurePosixPath(directory, name).parent))
        test = f"cd {shell(directory)} && [ -O . ] && [ -O {folder} ] && [ ! -L {folder} ]"
        done = transport.run(f"{test} && [ -O {file} ] && [ ! -L {file} ]", timeout_s=_ASKING_S)
        require_end(done, f"{name} of race {self.record.race_id} cannot be looked for")
        if done.returncode:
            return None
        return transport.read(f"{directory}/{name}", limit=limit)

    def interrupt(self, *, timeout: bool) -> None:
        """Do to the job that runs what the end of its time does, or a preemption."""
        claim = self.look().claim
        if claim is None:
            message = f"race {self.record.race_id} does not run"
            raise RvError(ErrorKind.USAGE, message, hint="wait for its start")
        how = "scancel --batch --signal=USR1" if timeout else "scontrol requeue"
        script = f"{how} {claim.job_id}"
        require_answer(self.cluster.transport.run(script, timeout_s=_ASKING_S))

    def __reduce__(self) -> tuple[object, ...]:
        return find_handle, (self.record.race_id, self._where)


def _seconds(timeout: Timeout) -> float | None:
    """Return a timeout as plain seconds, whatever kind of number it is; None for no limit."""
    if timeout is None or timeout == math.inf:
        return None
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)


def _pieces(reader: OutputReader, decoders: _Decoders) -> Iterator[str]:
    """Read what is new; a character that came in half is whole with the next piece."""
    while chunks := reader.read():
        for chunk in chunks:
            yield decoders[chunk.node, chunk.is_error].decode(chunk.data)
