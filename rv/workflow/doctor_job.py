"""A tiny job that says what a node sees: submitted, waited for, and always taken away again."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from typing import Final

from rv.dataclass import dataclass
from rv.errors import RvError
from rv.models.plan import Strategy
from rv.render.quote import shell, words
from rv.slurm.printable import last_line, printable
from rv.workflow.cluster import Cluster
from rv.workflow.script_records import parse_records, script

_CALL_S: Final = 40.0
_FIRST_PAUSE_S: Final = 0.3
_MOST_PAUSE_S: Final = 2.0
_GRACE_S: Final = 6.0
"""For how long after its job an answer may still come: network disks show a file late."""

_SUBMIT: Final = r"""
kept=()
for name in PATH HOME USER LOGNAME SHELL LD_LIBRARY_PATH SLURM_CONF; do
  [ -z "${!name+set}" ] || kept+=("$name=${!name}")
done
cd / && env -i "${kept[@]}" sbatch --export=ALL --parsable -J %(name)s -t 2 \
  --deadline=now+15minutes %(options)s %(folder)s/job.sh
"""
_LOOK: Final = """\
: <%(folder)s/answer && cat %(folder)s/answer && exit 0
squeue -h -t all -n %(name)s -o '%%T %%r' 2>/dev/null | head -n 1
exit 1
"""
# An sbatch that was interrupted may still arrive: it is looked for once more.
_CLEAN: Final = """\
for turn in 1 2 3 4 5 6 7 8; do
  scancel -Q -n %(name)s -u "$(id -un)" 2>/dev/null
  left=$(squeue -h -n %(name)s -t PENDING,RUNNING,SUSPENDED -o %%A 2>/dev/null)
  [ -n "$left" ] || [ $turn -lt %(least)s ] || break
  sleep 0.5
done
rm -rf -- %(folder)s
below=%(root)s
while [ "$below" != %(above)s ] && [ "$below" != / ] && rmdir -- "$below" 2>/dev/null; do
  below=$(dirname -- "$below")
done
[ -z "$left" ] && [ ! -e %(folder)s ]
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeAnswer:
    """What became of the job: its facts by name, else `state` in Slurm's words, and the reason.

    `refused` is Slurm's message where it took no job. `seconds` passed until the answer.
    """

    facts: dict[str, str] = field(default_factory=dict)
    state: str = ""
    refused: str = ""
    seconds: float = 0.0


class ProbeFolder:
    """A folder of rv's own in the race root, for one check; a job of its name may run in it.

    Its name is that of a race that was not staged to its end: if this process is killed outright,
    rv ps removes it after an hour, and Slurm the job after fifteen minutes.
    """

    def __init__(self, cluster: Cluster, above: str, now_s: float) -> None:
        token = secrets.token_hex(4)
        self._transport = cluster.transport
        self._root = cluster.race_root
        self._above = above
        self.path = f"{self._root}/.{token}.{now_s:.0f}.doctor"
        self.job_name = f"rv-doctor-{token}"
        self._nonce = token
        self._path_there = cluster.login.environ.get("PATH", "") if cluster.login else ""
        self._slurm_path = cluster.slurm_path
        self._has_job = False

    def make(self) -> None:
        """Write the folder. Raises `RvError(STAGE)` where it cannot be, or is not safe."""
        self._transport.create_tree(self.path, {"nonce": self._nonce.encode()})

    def why_no_links(self) -> str:
        """Return why there are no hard links, "" where there are."""
        made = self._transport.run(
            f"cd {shell(self.path)} && : >a && ln -T a b && [ a -ef b ]", timeout_s=_CALL_S
        )
        return "" if made.returncode == 0 else last_line(made.stderr) or "no link was made"

    def run_job(self, form: Strategy, limit_s: float) -> NodeAnswer:
        """Run the job, waiting at most `limit_s` seconds for it to start and to answer."""
        began_s = time.monotonic()
        options = _options(form)
        self._transport.write(f"{self.path}/job.sh", self._script(options).encode())
        self._has_job = True
        line = _SUBMIT % {
            "name": shell(self.job_name), "options": words(options), "folder": shell(self.path)
        }  # fmt: skip
        sent = self._transport.run(line, timeout_s=_CALL_S)
        if sent.returncode:
            return NodeAnswer(refused=last_line(sent.stderr) or f"exit code {sent.returncode}")
        return self._wait(began_s, limit_s)

    def _script(self, options: list[str]) -> str:
        first, _, rest = script("doctor_node.sh").partition("unset SLURM_EXPORT_ENV")
        path = self._path_there or "${PATH:-}"
        search = f"{shell(path) if self._path_there else path}:{shell(self._slurm_path)}"
        return (
            f"{first}folder={shell(self.path)} nonce={shell(self._nonce)}"
            f" job_name={shell(self.job_name)}\n"
            f"path={search}:/usr/local/bin:/usr/bin:/bin\noptions=({words(options)})\n"
            f"unset SLURM_EXPORT_ENV{rest}"
        )

    def _wait(self, began_s: float, limit_s: float) -> NodeAnswer:
        look = _LOOK % {"folder": shell(self.path), "name": shell(self.job_name)}
        pause_s, over_since_s, state = _FIRST_PAUSE_S, 0.0, ""
        while True:
            seen = self._transport.run(look, timeout_s=_CALL_S)
            now_s = time.monotonic()
            if seen.returncode == 0:
                facts = dict(parse_records(seen.stdout))
                return NodeAnswer(facts=facts, state=state, seconds=now_s - began_s)
            state = printable(seen.stdout.strip()) or state
            is_waiting = state.startswith(("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"))
            over_since_s = 0.0 if is_waiting or not state else over_since_s or now_s
            has_ended = over_since_s and now_s - over_since_s > _GRACE_S
            if has_ended or now_s - began_s > limit_s:
                return NodeAnswer(state=state, seconds=now_s - began_s)
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _MOST_PAUSE_S)

    def remove(self) -> bool:
        """Cancel the job and delete the folder, with those above that were made for it.

        False where that was not confirmed.
        """
        line = _CLEAN % {
            "name": shell(self.job_name), "folder": shell(self.path), "root": shell(self._root),
            "above": shell(self._above), "least": 2 if self._has_job else 1,
        }  # fmt: skip
        with suppress(RvError):
            return self._transport.run(line, timeout_s=_CALL_S).returncode == 0
        return False


@contextmanager
def probe_folder(
    cluster: Cluster, above: str, now_s: float, left_behind: Callable[[str], None]
) -> Iterator[ProbeFolder]:
    """Lend a folder that is gone afterwards, however that comes; else `left_behind` hears of it."""
    import signal

    folder = ProbeFolder(cluster, above, now_s)
    try:
        yield folder
    finally:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            if not folder.remove():
                left_behind(f"job {folder.job_name} or {folder.path} may be left there")
        finally:
            signal.signal(signal.SIGINT, before)


def _options(form: Strategy) -> list[str]:
    """Return the sbatch options that say where a job of the user's may run."""
    pairs = {
        "-p": form.partition, "-A": form.account, "-q": form.qos, "-C": form.constraint,
        "-x": ",".join(form.exclude_nodes), "-N": "1", "-n": "1", "-c": str(form.cpus_per_task),
        "--mem": f"{form.memory_mib}M",
    }  # fmt: skip
    named = [word for option, value in pairs.items() if value for word in (option, value)]
    return named + [f"--{key}={value}" if value else f"--{key}" for key, value in form.extra]
