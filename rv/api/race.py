"""A race as Python holds it: its state, its end, its output."""

import asyncio
from collections.abc import Iterator

from rv.api.handle import Handle, Stream, Timeout, find_handle
from rv.models.race import RaceState


class Race:
    """A race that was launched, here or anywhere. Its methods may be called from any thread.

    `race` is its id, the beginning of that, its name or the id of one of its jobs. Raises
    `RvError(USAGE)` for one that the cluster does not have.
    """

    def __init__(self, race: str, *, cluster: str = "") -> None:
        self._handle = find_handle(race, cluster)

    @property
    def id(self) -> str:
        """The eight letters and digits by which every command of rv knows it."""
        return self._handle.record.race_id

    @property
    def name(self) -> str:
        """The name that it was given, "" for none."""
        return self._handle.record.name

    @property
    def directory(self) -> str:
        """Its directory on the cluster's shared disk."""
        return self._handle.record.directory

    @property
    def state(self) -> RaceState:
        """What is known of it now; Slurm is asked seldom, for all races together."""
        return self._handle.look().state

    @property
    def exit_code(self) -> int | None:
        """The command's own; 1 where Slurm ended it without a code. None before its end."""
        return self._handle.code()

    def done(self) -> bool:
        """Whether it is over."""
        return self.state.is_over

    def wait(self, timeout: Timeout = None) -> RaceState:
        """Wait for its end and return how it ended; no failure raises anything.

        Raises `TimeoutError`, and lets Ctrl-C through: the race goes on. `cancel` ends it.
        """
        self._handle.wait(timeout)
        return self.state

    async def wait_async(self, timeout: Timeout = None) -> RaceState:
        """Do what `wait` does, without keeping the event loop waiting; it can be cancelled."""
        await self._handle.wait_async(timeout)
        return self.state

    def result(self, timeout: Timeout = None) -> str:
        """Wait for its end and return what the command wrote to stdout.

        Raises `FailedJobError` where it ended with another code than 0, `UncompletedJobError` where
        it did not end by itself, `TimeoutError`.
        """
        self._handle.wait(timeout)
        return self._output()

    async def result_async(self, timeout: Timeout = None) -> str:
        """Do what `result` does, without keeping the event loop waiting."""
        await self._handle.wait_async(timeout)
        return await asyncio.to_thread(self._output)

    def _output(self) -> str:
        if self._handle.code():
            raise self._handle.failure()
        return self._handle.read("out")

    def logs(
        self, stream: Stream = "both", *, node: int | None = None, tail: int | None = None
    ) -> str:
        """Return what its command has written, of all nodes or one; the last lines, or all."""
        return self._handle.read(stream, node, tail)

    def follow(self, stream: Stream = "both") -> Iterator[str]:
        """Yield what its command writes as it comes, until the race is over."""
        return self._handle.follow(stream)

    def cancel(self) -> None:
        """Cancel it whole. Raises `RvError(UNREACHABLE)` where nobody confirms it."""
        self._handle.cancel()

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<rv.Race {self.id}{name}>"


def race_of(handle: Handle) -> Race:
    """Hold a race that is at hand already."""
    race = Race.__new__(Race)
    race._handle = handle  # noqa: SLF001 - made here
    return race
