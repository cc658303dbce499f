"""A cluster behind a login node that rv reaches by ssh."""

from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from rv.dataclass import dataclass
from rv.errors import ErrorKind, RvError
from rv.slurm.environment import SCRUBBED_FORM
from rv.slurm.printable import last_line
from rv.transport import LOST
from rv.transport.kept_command import Kept
from rv.transport.openssh import OpenSsh
from rv.transport.read_ahead import ReadAhead
from rv.transport.remote import RemoteTransport
from rv.transport.remote_shell import RemoteShell
from rv.transport.ssh_choice import Ssh
from rv.workflow.cluster import Cluster, Early, LoginNode
from rv.workflow.early_questions import EarlyQuestions, Marks, ask, ask_snapshot, draw_marks
from rv.workflow.race_root import RACE_ROOT, assignment
from rv.workflow.which_cluster import ClusterIdentity, cache_of

_ASKING_S: Final = 30.0
# What launching there needs: the environment of a login shell, and where things are.
_ABOUT: Final = f"""\
sbatch=$(type -P sbatch) # which also finds what nobody may run
[ -x "$sbatch" ] || sbatch=
printf '%s\\0' "$sbatch" {RACE_ROOT}
env -0
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Login:
    """What a login shell said: where sbatch is, where races are to lie, and its variables."""

    sbatch: str
    race_root: str
    environ: dict[str, str]


def remote_cluster(
    identity: ClusterIdentity,
    client: Ssh,
    early: Early = Early.NOTHING,
    race_root: str = "",
    meanwhile: Callable[[], None] | None = None,
    kept: Kept | None = None,
) -> Cluster:
    """Connect to a login node, as `ssh HOST` would, and ask what launching there needs.

    `client` reaches it; `early` is asked in the same trip.
    `race_root` is where its races lie if the user has set that, with variables of a login there.
    `meanwhile` is called while the answer travels; `kept` is what was started ahead.
    Raises `RvError(UNREACHABLE)` where it cannot be reached, or has no Slurm.
    """
    shell, questions = _first_questions(client, early, race_root, kept)
    snapshot = ask_snapshot(shell, cache_of(identity)) if early is Early.PLAN else None
    login = _login(identity.host, shell, questions, meanwhile)
    cache = cache_of(identity)
    transport = RemoteTransport(shell, client)
    listing = questions.listing(cache)
    ahead = ReadAhead(transport, listing) if listing else None

    def read_ahead(again: Early) -> None:
        if ahead:
            ahead.renew(ask(again, assignment(race_root), shell, draw_marks()).listing(cache))

    return Cluster(
        key=identity.key,
        label=identity.full_label,
        transport=ahead or transport,
        cache=cache,
        answer=snapshot,
        race_root=str(PurePosixPath(login.race_root)),
        slurm_path=str(PurePosixPath(login.sbatch).parent),
        login=LoginNode(
            environ=login.environ,
            home=login.environ.get("HOME", "/"),
            connection=client.description,
        ),
        read_ahead=read_ahead,
    )


def keep_question(client: OpenSsh, race_root: str, files: Iterable[Path]) -> None:
    """Keep the command by which the next `rv ps` asks first; `files` say which it is.

    Raises `OSError`, and `ValueError` for a configuration of ssh that only ssh can read.
    """
    marks = draw_marks()
    shell, _ = _ask(client, Early.RACES_AND_QUEUE, race_root, marks)
    client.keep_command(shell.first_command(), marks, files)


def _first_questions(
    client: Ssh, early: Early, race_root: str, kept: Kept | None
) -> tuple[RemoteShell, EarlyQuestions]:
    """Return a shell with the first questions, which were sent ahead or are not sent yet.

    What was sent to another may have told its marks: they are drawn anew then.
    """
    if kept and len(kept.marks) == len(Marks._fields) and isinstance(client, OpenSsh):
        shell, questions = _ask(client, early, race_root, Marks(*kept.marks))
        if client.adopt(kept, shell.first_command()):
            return shell, questions
    return _ask(client, early, race_root, draw_marks())


def _ask(
    client: Ssh, early: Early, race_root: str, marks: Marks
) -> tuple[RemoteShell, EarlyQuestions]:
    shell = RemoteShell(client.connect, SCRUBBED_FORM, marks.answers)
    return shell, ask(early, assignment(race_root), shell, marks, _ABOUT)


def _login(
    host: str,
    shell: RemoteShell,
    questions: EarlyQuestions,
    meanwhile: Callable[[], None] | None,
) -> _Login:
    """Send what was asked, and return what the login is. Raises `RvError(UNREACHABLE)`."""
    shell.send()
    if meanwhile:
        meanwhile()
    code, out, err = questions.about()
    if code == LOST:  # a shared connection that was just ending: asking changes nothing there
        code, out, err = shell.run(_ABOUT, timeout_s=_ASKING_S)
    if code:
        raise _no_answer(host, err)
    return _read_login(host, out, err)


def _read_login(host: str, out: bytes, err: bytes) -> _Login:
    """Read what a login shell answered to `_ABOUT`. Raises `RvError(UNREACHABLE)`."""
    sbatch, root, *pairs = [*out.decode("utf-8", "surrogateescape").split("\0"), "", ""]
    if not root:
        raise _no_answer(host, err)
    if not sbatch:
        raise RvError(
            ErrorKind.UNREACHABLE,
            f"no Slurm commands on PATH, on {host}",
            hint="load the site's slurm module in ~/.bash_profile there, or name a login node",
        )
    return _Login(sbatch=sbatch, race_root=root, environ=_login_environment(pairs))


def _no_answer(host: str, err: bytes) -> RvError:
    why = last_line(err.decode("utf-8", "replace")) or "the login shell there gave no answer"
    return RvError(ErrorKind.UNREACHABLE, f"{why}, on {host}", hint=f"try: ssh {host}")


def _login_environment(pairs: Iterable[str]) -> dict[str, str]:
    """Return the variables of a login there, with its own locale instead of the scripts'."""
    environ = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    locale = environ.pop("RV_LC_ALL", "")
    environ.pop("LC_ALL", None)
    return environ | ({"LC_ALL": locale} if locale else {})
