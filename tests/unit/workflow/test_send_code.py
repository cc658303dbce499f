"""Code is sent to the scripts that run on a login node, here on this machine."""

import hashlib
import os
import signal
import subprocess
import sys
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import pytest

from rv.errors import RvError
from rv.models.code import Kind, TreeFile
from rv.transport import LOST, ScriptResult
from rv.transport.local import LocalTransport
from rv.workflow.send_code import Destination, send
from rv.workflow.work_tree import Checkout, WorkTree


def push(top: Path, store: Path, transport: object) -> None:
    """Send a folder `real`, as if it lay below a link that leads nowhere on the other side."""
    tree = {b"link": TreeFile(Kind.LINK, hashlib.sha256(b"real").digest(), 4)}
    for path in (top / "real").iterdir():
        contents = path.read_bytes()
        name = b"link/" + os.fsencode(path.name)
        tree[name] = TreeFile(Kind.FILE, hashlib.sha256(contents).digest(), len(contents))
    checkout = Checkout(top=str(top), folder=".", branch="", commit="", is_dirty=False)
    work = WorkTree(checkout=checkout, tree=tree, secrets=())
    place = Destination(store=str(store), memory=store.with_name("memory"))
    send(work, place, transport, lambda _: None)  # type: ignore[arg-type]


def here() -> LocalTransport:
    """What runs on the login node, with what scripts have there."""
    operations = str(files("rv.transport") / "scripts" / "files.sh")
    return LocalTransport({"PATH": os.environ["PATH"], "LC_ALL": "C", "RV_FILES": operations})


_PUSH = """
import sys
from pathlib import Path
from rv.errors import RvError
from tests.unit.workflow.test_send_code import here, push
try:
    push(*map(Path, sys.argv[1:]), here())
except RvError as error:
    print(error.kind, error)
"""


def test_many_files_that_cannot_be_written_there(tmp_path: Path) -> None:
    """Neither side waits for the other to read what tar says of each; nothing is left behind."""
    folder = tmp_path / "top" / "real"
    folder.mkdir(parents=True)
    (folder.parent / "link").symlink_to("real")
    for number in range(700):
        (folder / f"{number:0200}").write_text("x")
    with subprocess.Popen(
        [sys.executable, "-c", _PUSH, str(folder.parent), str(tmp_path / "store")],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as child:  # fmt: skip
        try:
            said = child.communicate(timeout=60)[0]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    assert said == (
        f"stage the code cannot be sent: No such file or directory, on {tmp_path}/store\n"
    )
    assert list((tmp_path / "store").iterdir()) == []


class Cut:
    """A login node of which an answer says how it was cut off."""

    def __init__(self, code: int) -> None:
        self._code = code

    def run(self, script: str, *, timeout_s: float) -> ScriptResult:
        """Answer."""
        return ScriptResult(
            returncode=self._code, stdout="", stderr="", timed_out=self._code == 124
        )


@pytest.mark.parametrize(
    ("code", "why"), [(124, "took too long"), (137, "was killed"), (LOST, "connection was lost")]
)
def test_a_question_that_was_cut_off_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, why: str
) -> None:
    """It is not the disk's fault."""
    monkeypatch.setattr("rv.workflow.send_code.retry_query", lambda ask: ask())
    (tmp_path / "real").mkdir()
    with pytest.raises(RvError, match=why) as caught:
        push(tmp_path, tmp_path / "store", Cut(code))
    assert caught.value.kind == "unreachable"


class CutOnce(LocalTransport):
    """Loses its first question."""

    is_cut = False

    def run(self, script: str, *, timeout_s: float) -> ScriptResult:
        """Answer from the second on."""
        if self.is_cut:
            return super().run(script, timeout_s=timeout_s)
        self.is_cut = True
        return ScriptResult(returncode=LOST, stdout="", stderr="")


def test_a_question_that_was_lost_is_asked_again(tmp_path: Path) -> None:
    """It changes nothing, and the code is sent."""
    operations = str(files("rv.transport") / "scripts" / "files.sh")
    transport = CutOnce({"PATH": os.environ["PATH"], "LC_ALL": "C", "RV_FILES": operations})
    (tmp_path / "top" / "real").mkdir(parents=True)
    (tmp_path / "top" / "link").symlink_to("real")
    push(tmp_path / "top", tmp_path / "store", transport)
    assert transport.is_cut
    (tree,) = (tmp_path / "store").iterdir()
    assert (tree / "files" / "link").readlink() == Path("real")
