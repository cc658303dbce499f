"""A race as Python holds it: its state, its end, its output."""

import asyncio
import codecs
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import PurePosixPath
from typing import Final, Literal, Self

from rv.api.connection import LOG, connect
from rv.api.errors import FailedJobError, UncompletedJobError
from rv.errors import ErrorKind, RvError
from rv.models.race import Race as RaceRecord
from rv.models.race import RaceState, RaceStatus
from rv.race.directory import load_state_files
from rv.race.output import STREAMS, OutputReader
from rv.race.watch import WaitTimedOut
from rv.render.quote import shell
from rv.transport import require_answer
from rv.workflow.cluster import Cluster, Early
from rv.workflow.races import (
    exit_code,
    find_races,
    look_at,
    require_node,
    stop_races,
)
from rv.workflow.wait import wait_for_races

Timeout = float | timedelta | None
"""Seconds, or a timedelta; None for as long as it takes."""

Decoders = defaultdict[tuple[int, bool], codecs.IncrementalDecoder]

_DECODER: Final = partial(codecs.getincrementaldecoder("utf-8"), "replace")
_LAST_LINES: Final = 20
_ASKING_S: Final = 60.0
_AT_ONCE: Final = timedelta(seconds=1)
_SELDOM: Final = timedelta(seconds=30)
_LOOKS: Final = 20
_SETTLES_IN: Final = timedelta(seconds=10)
_LOOK_AGAIN_S: Final = 1.0


class Race:
    """A race that was launched, here or anywhere. Its methods may be called from any thread.

    `race` is its id, the beginning of that, its name or the id of one of its jobs. Raises
    `RvError(USAGE)` for one that the cluster does not have.
    """

    def __init__(self, race: str, *, cluster: str = "") -> None:
        place = connect(cluster, Early.RACES)
        (record,) = find_races([race], place)
        self._begin(record, place, cluster)

    @classmethod
    def of(cls, record: RaceRecord, place: Cluster, where: str) -> Self:
        """Hold a race whose record is at hand; `where` is what the user called the cluster."""
        race = cls.__new__(cls)
        race._begin(record, place, where)  # noqa: SLF001 - its own
        return race

    def _begin(self, record: RaceRecord, place: Cluster, where: str) -> None:
        self._record, self._cluster, self._where = record, place, where
        self._end: RaceStatus | None = None

    @property
    def id(self) -> str:
        """The eight letters and digits by which every command of rv knows it."""
        return self._record.race_id

    @property
    def name(self) -> str:
        """The name that it was given, "" for none."""
        return self._record.name

    @property
    def directory(self) -> str:
        """Its directory on the cluster's shared disk."""
        return self._record.directory

    @property
    def state(self) -> RaceState:
        """What is known of it now; Slurm is asked seldom, for all races together."""
        return self._look().state

    @property
    def exit_code(self) -> int | None:
        """The command's own; 1 where Slurm ended it without a code. None before its end."""
        status = self._look()
        return exit_code(status, self._cluster.transport) if status.state.is_over else None

    def done(self) -> bool:
        """Whether it is over."""
        return self.state.is_over

    def wait(self, timeout: Timeout = None) -> RaceState:
        """Wait for its end and return how it ended; no failure raises anything.

        Raises `TimeoutError`, and lets Ctrl-C through: the race goes on. `cancel` ends it.
        """
        if self._end is None:
            limit = timedelta(seconds=timeout) if isinstance(timeout, int | float) else timeout
            try:
                wait_for_races([self._record], self._cluster, self, limit)
            except WaitTimedOut:
                raise TimeoutError(f"race {self.id} is not over after {timeout} s") from None
        return self._look().state

    async def wait_async(self, timeout: Timeout = None) -> RaceState:
        """Do what `wait` does, without keeping the event loop waiting; it can be cancelled."""
        from rv.api.watcher import watched

        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if self._end is None:
            future = asyncio.wrap_future(watched(self._record, self._cluster))
            self.ended(await asyncio.wait_for(future, seconds))
        return self._look().state

    def result(self, timeout: Timeout = None) -> str:
        """Wait for its end and return what the command wrote to stdout.

        Raises `FailedJobError` where it ended with another code than 0, `UncompletedJobError` where
        it did not end by itself, `TimeoutError`.
        """
        self.wait(timeout)
        return self._output()

    async def result_async(self, timeout: Timeout = None) -> str:
        """Do what `result` does, without keeping the event loop waiting."""
        await self.wait_async(timeout)
        return await asyncio.to_thread(self._output)

    def _output(self) -> str:
        status = self._look()
        if exit_code(status, self._cluster.transport):
            raise self.failure()
        return self.logs("out")

    def failure(self) -> UncompletedJobError:
        """Say how a race ended that did not succeed, with the last that it wrote."""
        status = self._look()
        why = f": {status.why}" if status.why else ""
        code = f" with code {status.exit_code}" if status.exit_code is not None else ""
        last = self.logs("err", tail=_LAST_LINES) or self.logs("out", tail=_LAST_LINES)
        message = f"race {self.id} ended as {status.state}{code}{why}"
        kind = FailedJobError if status.state is RaceState.FAILED else UncompletedJobError
        return kind(f"{message}\n{last}".rstrip(), hint=f"rv logs {self.id}")

    def logs(
        self,
        stream: Literal["out", "err", "both"] = "both",
        *,
        node: int | None = None,
        tail: int | None = None,
    ) -> str:
        """Return what its command has written, of all nodes or one; the last lines, or all."""
        if stream not in (*STREAMS, "both"):
            raise RvError(ErrorKind.USAGE, f"{stream!r} is no stream", hint="out, err or both")
        require_node(self._record, node)
        streams = STREAMS if stream == "both" else (stream,)
        reader = OutputReader(self._record, self._cluster.transport, node, streams)
        if tail is not None:
            reader.skip_to_last(tail)
        return "".join(_pieces(reader, defaultdict(_DECODER)))

    def follow(self, stream: Literal["out", "err", "both"] = "both") -> Iterator[str]:
        """Yield what its command writes as it comes, until the race is over."""
        streams = STREAMS if stream == "both" else (stream,)
        reader = OutputReader(self._record, self._cluster.transport, None, streams)
        decoders: Decoders = defaultdict(_DECODER)
        while True:
            is_over = self.done()  # before the output is read: nothing comes after it
            yield from _pieces(reader, decoders)
            if is_over:
                return
            time.sleep(_LOOK_AGAIN_S)

    def cancel(self) -> None:
        """Cancel it whole. Raises `RvError(UNREACHABLE)` where nobody confirms it."""
        for stopped in stop_races([self._record], self._cluster):
            if stopped.unconfirmed:
                hint = "again, or rv stop"
                raise RvError(ErrorKind.UNREACHABLE, stopped.unconfirmed, hint=hint)

    @property
    def is_here(self) -> bool:
        """Whether the cluster's commands, and so its disk, are this machine's."""
        return self._cluster.login is None

    @property
    def parts(self) -> tuple[RaceRecord, Cluster]:
        """What a watcher needs to know of it."""
        return self._record, self._cluster

    def read_own(self, name: str, *, limit: int = -1) -> bytes | None:
        """Read a file below its directory; None where there is none, or another user's."""
        transport = self._cluster.transport
        file = shell(f"{self.directory}/{name}")
        folder = shell(str(PurePosixPath(self.directory, name).parent))
        test = f"cd {shell(self.directory)} && [ -O . ] && [ -O {folder} ] && [ ! -L {folder} ]"
        done = transport.run(f"{test} && [ -O {file} ] && [ ! -L {file} ]", timeout_s=_ASKING_S)
        require_answer(done)
        if done.returncode:
            return None
        return transport.read(f"{self.directory}/{name}", limit=limit)

    def interrupt(self, *, timeout: bool) -> None:
        """Do to the job that runs what the end of its time does, or a preemption."""
        claim = self._look().claim
        if claim is None:
            hint = "wait for its start"
            raise RvError(ErrorKind.USAGE, f"race {self.id} does not run", hint=hint)
        how = "scancel --batch --signal=USR1" if timeout else "scontrol requeue"
        script = f"{how} {claim.job_id}"
        require_answer(self._cluster.transport.run(script, timeout_s=_ASKING_S))

    def ended(self, status: RaceStatus) -> None:
        """Keep how it ended: nothing changes any more."""
        self._end = status

    def say(self, text: str) -> None:
        """Hear what a wait says."""
        LOG.info(text)

    def _look(self) -> RaceStatus:
        if self._end is not None:
            return self._end
        now_s = time.time()
        status, _ = look_at(self._record, self._cluster, now_s, self._queue_may_be(now_s))
        if not status.state.is_over:
            return status
        with suppress(WaitTimedOut):  # what Slurm says of its end may be a moment later
            wait_for_races([self._record], self._cluster, self, _SETTLES_IN)
        settled: RaceStatus | None = self._end
        return settled or status

    def _queue_may_be(self, now_s: float) -> timedelta:
        """How old Slurm's answer may be: its directory tells of a start and of an end at once."""
        files = load_state_files(self._record, self._cluster.transport)
        if files.ended or files.stopped or files.lost:
            return _AT_ONCE
        age = timedelta(seconds=now_s - self._record.submitted_at)
        return max(_AT_ONCE, min(_SELDOM, age / _LOOKS))

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<rv.Race {self.id}{name}>"

    def __reduce__(self) -> tuple[object, ...]:
        return _find, (type(self), self.id, self._where)


def _find(kind: type[Race], race_id: str, where: str) -> Race:
    return kind(race_id, cluster=where)


def _pieces(reader: OutputReader, decoders: Decoders) -> Iterator[str]:
    """Read what is new; a character that came in half is whole with the next piece."""
    while chunks := reader.read():
        for chunk in chunks:
            yield decoders[chunk.node, chunk.is_error].decode(chunk.data)
