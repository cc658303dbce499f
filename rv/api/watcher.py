"""One thread a cluster waits for all races of which somebody holds a future."""

import os
import threading
from concurrent.futures import Future
from typing import Final

from rv.api.quiet import LOG
from rv.models.race import Race as RaceRecord
from rv.models.race import RaceStatus
from rv.race.wait import Wait
from rv.workflow.cluster import Cluster


class _Joined(Exception):  # noqa: N818 - news, not an error
    """Another race is to be waited for as well."""


class Watcher:
    """Waits for the races of one cluster; its thread ends with the last of them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._joined = threading.Event()
        self._open: dict[str, tuple[RaceRecord, Future[RaceStatus]]] = {}
        self._is_running = False

    def future(self, record: RaceRecord) -> "Future[RaceStatus]":
        """Return the future of a race's end; it cannot be cancelled, for the race goes on."""
        with self._lock:
            if record.race_id in self._open:
                return self._open[record.race_id][1]
            future: Future[RaceStatus] = Future()
            future.set_running_or_notify_cancel()
            self._open[record.race_id] = (record, future)
            self._joined.set()
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="rv-watcher", daemon=True).start()
            return future

    def ended(self, status: RaceStatus) -> None:
        """Give a race's end to its future."""
        with self._lock:
            _, future = self._open.pop(status.race.race_id)
        future.set_result(status)

    def say(self, text: str) -> None:
        """Hear what a wait says."""
        LOG.info(text)

    def _run(self) -> None:
        while races := self._next():
            try:
                Wait(races=races, queue=self._cluster.queue, sink=self, sleep=self._nap).run()
            except _Joined:
                continue
            except BaseException as failure:  # noqa: BLE001 - raised where it is waited for
                self._fail(failure)

    def _next(self) -> list[RaceRecord]:
        """Return the races to wait for; where there are none the thread ends."""
        with self._lock:
            self._joined.clear()
            self._is_running = bool(self._open)
            return [record for record, _ in self._open.values()]

    def _nap(self, seconds: float) -> None:
        """Sleep, but for the arrival of another race."""
        if self._joined.wait(seconds):
            raise _Joined

    def _fail(self, failure: BaseException) -> None:
        with self._lock:
            left = [future for _, future in self._open.values()]
            self._open.clear()
        for future in left:
            future.set_exception(failure)


class _Watchers:
    """Watchers by cluster; a child process has none of its parent's threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.known: dict[str, Watcher] = {}


_watchers: Final = _Watchers()
os.register_at_fork(after_in_child=_watchers.__init__)  # type: ignore[misc]


def watched(record: RaceRecord, cluster: Cluster) -> "Future[RaceStatus]":
    """Return the future of a race's end."""
    with _watchers.lock:
        watcher = _watchers.known.setdefault(cluster.key, Watcher(cluster))
    return watcher.future(record)
