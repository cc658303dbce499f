"""What came only in part, or was killed there, is neither run nor an answer; on both transports."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rv.errors import ErrorKind, RvError
from rv.slurm.environment import SCRUBBED_FORM
from rv.transport import LOST, Transport
from rv.transport.openssh import OpenSsh
from rv.transport.remote_shell import RemoteShell, Stream
from tests.ssh.server import HOST, SshServer

Connect = Callable[[], Transport]
KILLS_ITSELF = """#!/bin/bash
[ -e "$HOME/{name}.killed" ] || {{ touch "$HOME/{name}.killed"; kill -9 $$; }}
PATH=${{PATH#*:}} exec {name} "$@"
"""


@dataclass
class CutOff:
    """A stream that passes on so many bytes of what it is given, and then only the end."""

    stream: Stream
    most: int

    def write(self, data: bytes) -> None:
        self.stream.write(data[: -self.most])
        self.stream.close_write()
        while self.stream.read_line():
            pass
        raise ConnectionError("cut off")

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


@pytest.mark.parametrize(("script", "data"), [("touch {}c", b""), ("cat >{}abc; touch {}c", b"12")])
def test_a_request_that_is_cut_off_is_not_run(
    server: SshServer, tmp_path: Path, script: str, data: bytes
) -> None:
    """Half a path is another file's, and half of what is to be written is no file."""
    server.start()
    ssh = OpenSsh(HOST, str(server.path / "bin" / "ssh"))
    shell = RemoteShell(lambda command: CutOff(ssh.connect(command), 1), SCRUBBED_FORM)
    assert shell.run("true", timeout_s=20)[0] == 0
    answer = shell.run(script.format(tmp_path / "ab", tmp_path / "ab"), data, timeout_s=20)
    assert answer[0] == LOST
    assert list(tmp_path.iterdir()) == []
    shell.close()


@pytest.fixture
def away(server: SshServer) -> Path:
    """A home on the login node, whose programs come first."""
    home = server.path / "away"
    (home / "bin").mkdir(parents=True)
    (home / ".bash_profile").write_text(f"PATH={home}/bin:$PATH\n")
    server.settings = [f"SetEnv HOME={home}"]
    return home


def kill_once(home: Path, name: str) -> None:
    """Let a program be killed the first time that it is run."""
    program = home / "bin" / name
    program.write_text(KILLS_ITSELF.format(name=name))
    program.chmod(0o755)


@pytest.mark.parametrize("name", ["tar", "tail", "head", "find", "stat"])
def test_what_is_killed_there_has_not_answered(
    away: Path, connect: Connect, tmp_path: Path, name: str
) -> None:
    """Nothing is taken for absent or for short: it is asked again."""
    transport = connect()
    transport.run("true", timeout_s=20)
    (tmp_path / "one").write_bytes(b"12345678")
    (tmp_path / "sub").mkdir()
    questions: list[Callable[[], object]] = [
        lambda: transport.read_tree(str(tmp_path), ["one"]),
        lambda: transport.read(str(tmp_path / "one")),
        lambda: transport.read(str(tmp_path / "one"), limit=4),
        lambda: transport.read_new(str(tmp_path), ["one"], {"one": 2}, 5),
        lambda: transport.names(str(tmp_path)),
        lambda: transport.directories(str(tmp_path)),
    ]
    whole: list[object] = [
        {"one": b"12345678"}, b"12345678", b"1234", {"one": b"34567"}, ("one", "sub"), ("sub",)
    ]  # fmt: skip
    for question, expected in zip(questions, whole, strict=True):
        kill_once(away, name)
        assert question() == expected
        (away / "bin" / name).unlink()
        (away / f"{name}.killed").unlink(missing_ok=True)


def test_a_tree_whose_making_was_killed_is_not_said_to_be_refused(
    away: Path, connect: Connect, tmp_path: Path
) -> None:
    """Whether it is there is not known: the same command again."""
    transport = connect()
    transport.run("true", timeout_s=20)
    program = away / "bin" / "tar"
    program.write_text("#!/bin/bash\nkill -9 $(ps -o ppid= -p $PPID)\n")
    program.chmod(0o755)
    with pytest.raises(RvError) as caught:
        transport.create_tree(str(tmp_path / "races" / "one"), {"a": b""})
    assert caught.value.kind is ErrorKind.UNREACHABLE
    assert "killed" in caught.value.message


def test_a_shell_that_is_killed_is_no_failure_to_connect(away: Path, connect: Connect) -> None:
    """What its profile said is not why; the next script has another shell."""
    with (away / ".bash_profile").open("a") as profile:
        profile.write("echo 'Try module --help' >&2\n")
    transport = connect()
    assert transport.run("echo one", timeout_s=20).stdout == "one\n"
    done = transport.run("kill -9 $(ps -o ppid= -p $PPID)", timeout_s=20)
    assert done.returncode == LOST
    assert "connection was lost" in done.stderr
    assert "Try" not in done.stderr
    assert "cannot connect" not in done.stderr
    assert transport.run("echo two", timeout_s=20).stdout == "two\n"


def small_disk(server: SshServer, size: str, at: Path | str) -> None:
    """Let all logins see a small disk there; nobody else does."""
    mapped = "" if os.getuid() == 0 else "--map-root-user"
    mount = f"mount -t tmpfs -o size={size} none {at}"
    server.settings += [
        f"ForceCommand unshare --mount {mapped} /bin/sh -c '{mount} && exec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"'"
    ]


def test_a_disk_that_is_full_of_temporary_files(server: SshServer, connect: Connect) -> None:
    """A script that does not fit is not run, and an output that does not fit is no answer."""
    small_disk(server, "400k", "/tmp")
    transport = connect()
    for script in ("head -c 900000 /dev/zero", f"echo half{' ' * 900_000}; echo more"):
        done = transport.run(script, timeout_s=20)
        assert (done.returncode, "no room" in done.stderr) == (LOST, True), done.stderr
        assert "half" not in done.stdout
    assert transport.run("echo next", timeout_s=20).returncode in (0, LOST)
    assert transport.run("echo next", timeout_s=20).stdout == "next\n"


@pytest.mark.parametrize("size", ["16k", "260k"], ids=["none", "none-for-functions"])
def test_without_any_room_there_is_no_shell(server: SshServer, connect: Connect, size: str) -> None:
    """It says where, and what to do; half of the functions on files would name no races."""
    server.settings += ["SetEnv HOME=/tmp/me"]
    small_disk(server, size, "/tmp")
    with pytest.raises(RvError, match="no room for temporary files, neither in /tmp") as caught:
        connect().run("true", timeout_s=20)
    assert "df -h" in caught.value.hint


def test_a_full_disk_is_passed_by(server: SshServer, connect: Connect, tmp_path: Path) -> None:
    """/tmp is taken where what systemd gives each user is full."""
    server.settings += [f"SetEnv XDG_RUNTIME_DIR={tmp_path}"]
    small_disk(server, "16k", tmp_path)
    assert connect().run("echo $RV_FILES", timeout_s=20).stdout.startswith("/tmp/.rv.")
