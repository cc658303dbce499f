"""What a command will ask a login node, sent with its first question so that it costs no time."""

import gzip
import os
import shlex
import time
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from rv.dataclass import dataclass
from rv.race.file_names import RECORD, STATE_FILES, VERDICT, payload_shelf
from rv.slurm.cache import SnapshotCache
from rv.slurm.script import new_sentinel
from rv.slurm.squeue_scripts import squeue_own_script
from rv.transport import LOST, ScriptResult, why_unknown
from rv.transport.query_retry import RETRY_FOR_S
from rv.transport.read_ahead import Listing
from rv.transport.remote import separate, unpacked
from rv.transport.remote_shell import Question, RemoteShell, as_result
from rv.workflow.cluster import Early

if TYPE_CHECKING:
    from rv.models.snapshot import Snapshot

_QUEUE_S: Final = 25.0
_LIST_S: Final = 60.0
_MOST_BYTES: Final = 256 << 20
_FILES: Final = (RECORD, VERDICT, *STATE_FILES)


def ask(early: Early, root: str, shell: RemoteShell, cache: SnapshotCache) -> "EarlyQuestions":
    """Send the questions; `root` is the bash text that sets `root` to where races lie there."""
    queue = None
    if early is Early.RACES_AND_QUEUE:  # first, since files that are read later say more
        sentinel = new_sentinel()
        queue = sentinel, shell.ask(squeue_own_script(sentinel), timeout_s=_QUEUE_S)
    races = early in (Early.RACES, Early.RACES_AND_QUEUE)
    return EarlyQuestions(
        shell=shell,
        cache=cache,
        queue=queue,
        races=_ask_races(root, shell) if races else None,
        snapshot=_ask_plan(shell, cache) if early is Early.PLAN else None,
    )


def _ask_plan(shell: RemoteShell, cache: SnapshotCache) -> "Callable[[], Snapshot] | None":
    from rv.slurm.probe import ask_early  # the questions of rv ps are sent sooner without

    def send(script: str, timeout_s: float) -> Callable[[], ScriptResult]:
        question = shell.ask(script, timeout_s=timeout_s)
        return lambda: as_result(shell.wait(question))

    return ask_early(cache, send)


def _ask_races(root: str, shell: RemoteShell) -> tuple[str, Question]:
    """Ask for all in one script: a login node starts several processes for each that it is sent."""
    mark = new_sentinel()
    patterns = shlex.join(f"*/{name}" for name in _FILES)
    below = f'"$root"/{shlex.quote(payload_shelf("", os.geteuid()).lstrip("/"))}'
    script = f"""\
. "$RV_FILES"
{root}worst=0
part() {{
  printf %s {mark}
  "$@"
  local code=$?
  [ "$code" -le "$worst" ] || worst=$code
}}
read_races() {{
  set -o pipefail
  read_tree "$root" {patterns} | gzip -1
}}
part printf %s "$root"
part list_names "$root"
part list_directories "$root"
part list_names {below}
part read_races
exit "$worst"
"""
    return mark, shell.ask(script, timeout_s=_LIST_S)


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlyQuestions:
    """Questions that were sent; `answers` waits for what they bring."""

    shell: RemoteShell
    cache: SnapshotCache
    queue: tuple[str, Question] | None
    races: tuple[str, Question] | None
    snapshot: "Callable[[], Snapshot] | None"

    def listing(self) -> Listing | None:
        """Return the files of the races, and keep the queue's answer; None where none came."""
        if self.queue:
            self._keep_queue(*self.queue)
        if not self.races:
            return None
        mark, question = self.races
        answer = self.shell.wait(question)
        if why_unknown(answer[0], ""):  # 1: there is no such folder yet
            return None
        _, place, names, directories, payloads, archive = answer[1].split(mark.encode())
        root = str(PurePosixPath(place.decode("utf-8", "surrogateescape")))
        try:
            files = unpacked(_decompressed(archive))
        except (OSError, EOFError):
            return None
        own = separate(directories)
        return Listing(
            root=root,
            patterns=frozenset(_FILES),
            directories=own,
            names={root: separate(names), payload_shelf(root, os.geteuid()): separate(payloads)},
            files={path: data for path, data in files.items() if path.split("/")[0] in own},
            at_s=time.monotonic(),
        )

    def _keep_queue(self, sentinel: str, question: Question) -> None:
        """Keep the queue's answer; that there was none for long is one too."""
        from rv.slurm.squeue import keep_own  # not before the question is sent

        began_s = time.monotonic()
        result = as_result(self.shell.wait(question))
        is_kept = keep_own(result.stdout, sentinel, self.cache)
        waited_s = time.monotonic() - began_s
        if not is_kept and result.returncode != LOST and waited_s >= RETRY_FOR_S:
            self.cache.store("queue", "", sentinel)


def _decompressed(data: bytes) -> bytes:
    return gzip.decompress(data) if data else b""
