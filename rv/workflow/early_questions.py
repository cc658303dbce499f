"""What a command will ask a login node, sent with its first question so that it costs no time."""

import gzip
import os
import shlex
import time
import zlib
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

from rv.dataclass import dataclass
from rv.race.file_names import RECORD, STATE_FILES, VERDICT, payload_shelf
from rv.slurm.cache import SnapshotCache
from rv.slurm.script import new_sentinel
from rv.slurm.squeue_scripts import squeue_own_script
from rv.transport import LOST, TIMED_OUT, ScriptResult, why_unknown
from rv.transport.joined_scripts import Part, joined, parted
from rv.transport.query_retry import RETRY_FOR_S
from rv.transport.read_ahead import Listing
from rv.transport.remote import separate, unpacked
from rv.transport.remote_shell import Answer, Question, RemoteShell, as_result, new_mark
from rv.workflow.cluster import Early

if TYPE_CHECKING:
    from rv.models.snapshot import Snapshot

_MOST_S: Final = 60.0
_FILES: Final = (RECORD, VERDICT, *STATE_FILES)
_QUIET: Final = "exec 2>/dev/null\n"
"""Errors are those of the script about the login."""


def ask(
    early: Early, root: str, shell: RemoteShell, marks: "Marks", about: str = ""
) -> "EarlyQuestions":
    """Send the questions; `root` is the bash text that sets `root` to where races lie there.

    `about` is a script that is run first.
    """
    scripts = {"about": about} if about else {}
    if early is Early.RACES_AND_QUEUE:  # first, since files that are read later say more
        scripts["queue"] = _QUIET + squeue_own_script(marks.queue)
    if early in (Early.RACES, Early.RACES_AND_QUEUE):
        scripts["races"] = _QUIET + _races_script(root, marks.races)
    return EarlyQuestions(
        shell=shell,
        marks=marks,
        names=tuple(scripts),
        question=shell.ask(joined(tuple(scripts.values()), marks.parts), timeout_s=_MOST_S),
    )


def ask_snapshot(shell: RemoteShell, cache: SnapshotCache) -> "Callable[[], Snapshot] | None":
    """Send the questions of a snapshot, and return what waits for it; None where one is kept."""
    from rv.slurm.probe import ask_early  # the questions of rv ps are sent sooner without

    def send(script: str, timeout_s: float) -> Callable[[], ScriptResult]:
        question = shell.ask(script, timeout_s=timeout_s)
        return lambda: as_result(shell.wait(question))

    return ask_early(cache, send)


def _races_script(root: str, mark: str) -> str:
    """Return the script that prints where races lie, three lists of names and the files."""
    patterns = shlex.join(f"*/{name}" for name in _FILES)
    below = f'"$root"/{shlex.quote(payload_shelf("", os.geteuid()).lstrip("/"))}'
    return f"""\
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


class Marks(NamedTuple):
    """What separates answers, the parts of one, the rows of the queue, and the lists of races."""

    answers: str
    parts: str
    queue: str
    races: str


def draw_marks() -> Marks:
    """Draw marks that no answer holds."""
    return Marks(new_mark(), *(new_sentinel() for _ in Marks._fields[1:]))


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlyQuestions:
    """Questions that were sent, some as one script; each method waits for what they bring."""

    shell: RemoteShell
    marks: Marks
    names: tuple[str, ...]
    question: Question

    def about(self) -> Answer:
        """Return what the first script came to."""
        answer = self.shell.wait(self.question)
        part = self._parts(answer)["about"]
        return part.code, part.out, answer[2]

    def listing(self, cache: SnapshotCache) -> Listing | None:
        """Return the files of the races, and keep the queue's answer; None where none came."""
        parts = self._parts(self.shell.wait(self.question))
        if "queue" in parts:
            self._keep_queue(parts["queue"], cache)
        races = parts.get("races")
        if races is None or why_unknown(races.code, ""):
            return None
        _, place, names, directories, payloads, archive = races.out.split(self.marks.races.encode())
        root = str(PurePosixPath(place.decode("utf-8", "surrogateescape")))
        try:
            files = unpacked(_decompressed(archive))
        except (OSError, EOFError, zlib.error):
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

    def _parts(self, answer: Answer) -> dict[str, Part]:
        parts = parted(answer, self.marks.parts, len(self.names))
        return dict(zip(self.names, parts, strict=True))

    def _keep_queue(self, part: Part, cache: SnapshotCache) -> None:
        """Keep the queue's answer; that there was none for long is one too."""
        from rv.slurm.squeue import keep_own  # not before the question is sent

        is_kept = keep_own(part.out.decode("utf-8", "replace"), self.marks.queue, cache)
        is_silent = part.seconds >= RETRY_FOR_S or part.code == TIMED_OUT
        if not is_kept and part.code != LOST and is_silent:
            cache.store("queue", "", self.marks.queue)


def _decompressed(data: bytes) -> bytes:
    return gzip.decompress(data) if data else b""
