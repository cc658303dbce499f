"""Over ssh scripts and files are what they are on this machine, whatever stands in between."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rv.errors import ErrorKind, RvError
from rv.transport import LOST, Transport
from rv.transport.local import LocalTransport
from tests.ssh.server import HOST, SshServer

Connect = Callable[[], Transport]
ODD = "a b'c\"d$e\\f\n;g ü"


@pytest.fixture(params=["local", "openssh", "paramiko"])
def transport(request: pytest.FixtureRequest, connect_by: Callable[[str], Transport]) -> Transport:
    """The same is asked of each."""
    if request.param == "local":
        return LocalTransport(dict(os.environ) | {"LC_ALL": "C"})
    return connect_by(request.param)


def test_a_script_has_its_code_and_both_outputs(transport: Transport) -> None:
    """Its input is empty, and what it writes is the user's alone."""
    done = transport.run("cat; echo out; echo err >&2; umask; exit 3", timeout_s=20)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n0077\n", "err\n")


def test_a_script_is_stopped_at_its_timeout(transport: Transport) -> None:
    """And the next one is answered."""
    began = time.monotonic()
    done = transport.run("echo begun; sleep 60", timeout_s=1)
    assert (done.returncode, done.timed_out) == (124, True)
    assert time.monotonic() - began < 20
    assert transport.run("echo next", timeout_s=20).stdout == "next\n"


def test_a_tree_is_there_as_it_was_sent(transport: Transport, tmp_path: Path) -> None:
    """Any bytes under any names; nobody else may read it."""
    root = tmp_path / "races" / ODD
    files = {"race.json": b"{}", f"jobs/{ODD}": bytes(range(256)) * 4000, "a/b/c": b""}
    transport.create_tree(str(root), files, ["declined", "x/y"])
    found = {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    assert found == files
    assert {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_file()} == {0o600}
    assert (root.stat().st_mode & 0o777, root.parent.stat().st_mode & 0o777) == (0o700, 0o700)
    assert [path.name for path in root.parent.iterdir()] == [ODD]


def test_a_tree_that_is_there_stays(transport: Transport, tmp_path: Path) -> None:
    """Nothing is left beside it."""
    root = tmp_path / "races" / "one"
    transport.create_tree(str(root), {"a": b"1"})
    with pytest.raises(RvError):
        transport.create_tree(str(root), {"a": b"2"})
    assert (root / "a").read_bytes() == b"1"
    assert [path.name for path in root.parent.iterdir()] == ["one"]


def test_a_root_that_others_may_write_is_refused(transport: Transport, tmp_path: Path) -> None:
    """Somebody could put a race of theirs in its place."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(RvError, match="others may rename what is in") as caught:
        transport.create_tree(str(shared / "races" / "one"), {"a": b""})
    assert caught.value.kind is ErrorKind.STAGE


def test_a_file_is_replaced_and_read_in_parts(transport: Transport, tmp_path: Path) -> None:
    """None is what is not there, or is no file."""
    path = tmp_path / ODD
    for data in (b"", b"0123456789\n", bytes(range(256)) * 9000):
        transport.write(str(path), data)
        assert transport.read(str(path)) == data
        assert transport.read(str(path), offset=3) == data[3:]
        assert transport.read(str(path), offset=2, limit=5) == data[2:7]
        assert transport.read(str(path), offset=len(data) + 9, limit=5) == b""
    assert path.stat().st_mode & 0o777 == 0o600
    assert transport.read(str(tmp_path / "none")) is None
    assert transport.read(str(tmp_path)) is None
    assert [path.name for path in tmp_path.iterdir()] == [ODD]


def test_a_file_that_cannot_be_written_is_named(transport: Transport, tmp_path: Path) -> None:
    """With what the system says."""
    with pytest.raises(RvError, match=r"cannot write the race directory: .*none/file"):
        transport.write(str(tmp_path / "none" / "file"), b"x")


def test_files_are_read_by_patterns(transport: Transport, tmp_path: Path) -> None:
    """A last part may have wildcards; what is no file, or is not there, is left out."""
    for name in (
        "claim",
        "jobs/1.id",
        "jobs/.2.id",
        "jobs/3.sh",
        "declined/n 1",
        "declined/n$(id)",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "jobs" / "4.id").mkdir()
    (tmp_path / "link").symlink_to("claim")
    (tmp_path / "jobs" / "5.id").hardlink_to(tmp_path / "claim")
    found = transport.read_tree(
        str(tmp_path), ["claim", "ended", "jobs/*.id", "declined/*", "link"]
    )
    names = {"claim", "jobs/1.id", "jobs/.2.id", "declined/n 1", "declined/n$(id)"}
    assert found == {name: name.encode() for name in names} | {
        "link": b"claim",
        "jobs/5.id": b"claim",
    }
    assert transport.read_tree(str(tmp_path / "none"), ["claim"]) == {}


def test_what_is_no_file_is_not_read(transport: Transport, tmp_path: Path) -> None:
    """A command leaves what it likes in its folder of results: nobody waits for it, or forever."""
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "endless.json").symlink_to("/dev/zero")
    (tmp_path / "linked.json").symlink_to("sound.json")
    (tmp_path / "sound.json").write_bytes(b"{}")
    found = transport.read_tree(str(tmp_path), ["*.json"])
    assert found == {"linked.json": b"{}", "sound.json": b"{}"}


def test_names_and_own_directories(transport: Transport, tmp_path: Path) -> None:
    """Hidden ones, links and those that others may write are no directories of one's own."""
    for name in ("one", ".two", "open", ODD):
        (tmp_path / name).mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to("one")
    (tmp_path / "file").touch()
    assert transport.directories(str(tmp_path)) == tuple(sorted(["one", ODD]))
    assert set(transport.names(str(tmp_path))) == {"one", ".two", "open", ODD, "link", "file"}
    assert transport.names(str(tmp_path / "none")) == ()


def test_a_tree_is_removed_but_never_through_a_link(transport: Transport, tmp_path: Path) -> None:
    """And what is not there is no error."""
    (tmp_path / "one" / "a").mkdir(parents=True)
    (tmp_path / "link").symlink_to("one")
    transport.remove(str(tmp_path / "link"))
    assert (tmp_path / "one" / "a").exists()
    transport.remove(str(tmp_path / "one"))
    transport.remove(str(tmp_path / "one"))
    assert not (tmp_path / "one").exists()


@pytest.mark.parametrize("data", [b"", bytes(range(256)) * 9000])
def test_a_stream_has_its_input_and_output(transport: Transport, data: bytes) -> None:
    """Bytes both ways, and an end of what comes in."""
    stream = transport.open_stream("echo begun; wc -c; echo 'it \"is\"'")
    stream.write(data)
    stream.close_write()
    lines = [stream.read_line() for _ in range(3)]
    assert lines == [b"begun\n", b"%d\n" % len(data), b'it "is"\n']
    assert stream.read(10) == b""
    stream.close()


# Only over ssh


def test_what_the_user_set_for_slurm_and_bash_is_not_seen(
    server: SshServer, connect: Connect
) -> None:
    """But for where Slurm is; and output is in the C locale."""
    server.settings = [
        "SetEnv SQUEUE_STATES=all SBATCH_JOB_NAME=x SLURM_CONF=/etc/s.conf BASH_ENV=/nowhere/x OTHER=1 LC_ALL=de_DE"
    ]
    seen = connect().run("env", timeout_s=20).stdout
    names = {line.partition("=")[0] for line in seen.splitlines()}
    assert names >= {"SLURM_CONF", "OTHER", "PATH"}
    assert not names & {"SQUEUE_STATES", "SBATCH_JOB_NAME", "BASH_ENV"}
    assert "LC_ALL=C\n" in seen


@pytest.mark.parametrize("shell", ["sh", "dash", "tcsh", "fish", "zsh"])
def test_any_login_shell_will_do(server: SshServer, connect: Connect, shell: str) -> None:
    """sshd gives it rv's line, as it does where it is the user's own."""
    server.settings = [f'ForceCommand exec {shell} -c "$SSH_ORIGINAL_COMMAND"']
    assert connect().run("echo $BASH; echo 'it is'", timeout_s=20).stdout == "/bin/bash\nit is\n"


def test_banners_and_profiles_that_print_and_read(server: SshServer, connect: Connect) -> None:
    """They come before the first answer, and get none of what rv sends."""
    home = server.path / "home"
    home.mkdir(parents=True)
    (home / ".bash_profile").write_text(
        "echo Welcome; echo warning >&2; read -r x; cat; module=1\n"
    )
    server.settings = [
        f'ForceCommand echo "You are logged"; HOME={home} eval "$SSH_ORIGINAL_COMMAND"'
    ]
    transport = connect()
    stream = transport.open_stream("echo begun; cat")
    stream.write(b"mine\n")
    stream.close_write()
    assert stream.read(1000).endswith(b"begun\nmine\n")
    stream.close()
    assert transport.run("echo one; echo $HOME", timeout_s=20).stdout == f"one\n{home}\n"
    assert transport.run("echo two", timeout_s=20).stdout == "two\n"


@pytest.mark.parametrize(
    "line",
    ["export IFS=/e1", "set -o noclobber", "set -o noglob -o posix", "set -eu -o pipefail",
     "export TMOUT=1", "shopt -s nullglob failglob", "exec 3>&- 4</dev/null", "readonly n=1 mark PATH",
     "declare -i s rv_code", "head() { :; }; read() { :; }; base64() { :; }", "trap 'echo on' DEBUG",
     "set -E; trap 'exit 7' ERR", "set -eu -- a; export SHELLOPTS BASH_ENV=/nowhere",
     "set -a; cd() { echo $1; }; read() { false; }; env() { echo 5; }; base64() { echo; }"],
)  # fmt: skip
def test_settings_of_bash_in_a_profile(server: SshServer, connect: Connect, line: str) -> None:
    """They change nothing, and end no shell that waits for its next script."""
    home = server.path / "home"
    home.mkdir(parents=True)
    (home / ".bash_profile").write_text(f"{line}\n")
    server.settings = [f"SetEnv HOME={home}"]
    transport = connect()
    shell = transport.run("echo $RV_FILES", timeout_s=20).stdout
    time.sleep(1.2)  # longer than TMOUT
    transport.write(str(home / "e1"), b"1")
    assert transport.read_tree(str(home), ["e?", "e[0-9]"]) == {"e1": b"1"}
    stream = transport.open_stream("a='1 e/1'; set -- $a; echo $#; cat")
    stream.write(b"mine\n")
    stream.close_write()
    assert stream.read(1000).endswith(b"2\nmine\n")
    stream.close()
    assert transport.run("echo $RV_FILES", timeout_s=20).stdout == shell, "another shell"


def test_a_function_that_is_no_program_stays(server: SshServer, connect: Connect) -> None:
    """`module` is one in most sites' profiles; scripts there load the modules of a job with it."""
    home = server.path / "home"
    home.mkdir(parents=True)
    (home / ".bash_profile").write_text("module() { echo loaded $2; }; export -f module\n")
    server.settings = [f"SetEnv HOME={home}"]
    assert connect().run("module load x", timeout_s=20).stdout == "loaded x\n"


def test_no_function_unpacks_what_is_sent(server: SshServer, connect: Connect) -> None:
    """A shell that sshd starts reads ~/.bashrc, before anything of rv's runs."""
    home = server.path / "home"
    home.mkdir(parents=True)
    wrappers = "".join(f"{name}() {{ echo wrapped; }}\n" for name in ("base64", "gzip"))
    (home / ".bashrc").write_text(f"{wrappers}export -f base64 gzip\n")
    server.settings = [f"SetEnv HOME={home}"]
    assert connect().run("echo it ran", timeout_s=20).stdout == "it ran\n"


def test_all_that_runs_there_finds_slurm_and_none_of_the_users_settings_for_it(
    server: SshServer,
    connect: Connect,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scripts, what has a channel of its own, and what has the terminal."""
    home = server.path / "home"
    home.mkdir(parents=True)
    (home / ".bash_profile").write_text("export SLURM_TIMELIMIT=1 SLURM_CONF=/c\n")
    server.settings = [f"SetEnv HOME={home}"]
    line = 'echo "${SLURM_TIMELIMIT-none} $SLURM_CONF ${PATH##*:}"'
    transport = connect()
    assert transport.run(line, timeout_s=20).stdout == "none /c /opt/slurm/bin\n"
    stream = transport.open_stream(line)
    assert stream.read(1000) == b"none /c /opt/slurm/bin\n"
    stream.close()
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert transport.interactive(["bash", "-c", line]) == 0
    assert capfd.readouterr().out.split() == ["none", "/c", "/opt/slurm/bin"]


def test_a_connection_that_breaks_is_made_anew(server: SshServer, connect: Connect) -> None:
    """What ran meanwhile is not known; the next script is answered."""
    transport = connect()
    assert transport.run("echo one", timeout_s=20).stdout == "one\n"
    server.cut()
    broken = transport.run("echo two", timeout_s=20)
    assert (broken.returncode, broken.stdout) == (LOST, "")
    assert "connection" in broken.stderr
    assert transport.run("echo three", timeout_s=20).stdout == "three\n"


def test_a_file_is_written_though_the_connection_was_just_ending(
    server: SshServer, connect: Connect, tmp_path: Path
) -> None:
    """As when a terminal is closed, which ends rv's ssh too: the GPUs of its shell are released."""
    transport = connect()
    transport.run("true", timeout_s=20)
    server.cut()
    transport.write(str(tmp_path / "release"), b"1")
    assert (tmp_path / "release").read_bytes() == b"1"


def test_a_server_that_is_gone_for_good_is_no_answer(server: SshServer, connect: Connect) -> None:
    """Nor is it an absence: whoever watches asks again."""
    transport = connect()
    assert transport.run("echo one", timeout_s=20).stdout == "one\n"
    server.stop()
    for _ in range(2):
        assert transport.run("echo two", timeout_s=20).returncode == LOST
    with pytest.raises(RvError, match="connection was lost"):
        transport.read("/etc/hostname")
    with pytest.raises(RvError) as caught:
        transport.write("/tmp/rv-none", b"")
    assert caught.value.kind is ErrorKind.UNREACHABLE


def test_nothing_is_left_on_the_login_node(
    server: SshServer, connect: Connect, folder: Path
) -> None:
    """Its folder of temporary files goes with the connection."""
    scratch = folder / "scratch"
    scratch.mkdir(mode=0o700)
    server.settings = [f"SetEnv XDG_RUNTIME_DIR={scratch}"]
    transport = connect()
    transport.run("true", timeout_s=20)
    assert len(list(scratch.iterdir())) == 1
    server.cut()
    deadline = time.monotonic() + 10
    while list(scratch.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert list(scratch.iterdir()) == []


def test_an_unknown_host_key_is_refused(server: SshServer, connect: Connect) -> None:
    """With its fingerprint, and nothing is added."""
    transport = connect()
    known = server.path / "known_hosts"
    known.write_text("")
    with pytest.raises(RvError, match="host key of cluster is not known here") as caught:
        transport.run("true", timeout_s=20)
    assert fingerprint(server, "host_key") in caught.value.message
    assert (caught.value.kind, known.read_text()) == (ErrorKind.UNREACHABLE, "")


def test_a_changed_host_key_is_refused(server: SshServer, connect: Connect) -> None:
    """With the new one's fingerprint."""
    transport = connect()
    server.trust("user_key")
    with pytest.raises(RvError, match="host key of cluster has changed") as caught:
        transport.run("true", timeout_s=20)
    assert fingerprint(server, "host_key") in caught.value.message


def test_a_refused_port_and_a_refused_key(server: SshServer, connect: Connect) -> None:
    """In ssh's own words, and what to try."""
    transport = connect()
    (server.path / "user_key.pub").write_text("")
    with pytest.raises(RvError, match=r"cannot connect to cluster: .*Permission denied") as caught:
        transport.run("true", timeout_s=20)
    assert caught.value.hint.startswith(f"try: ssh {HOST}")
    server.stop()
    with pytest.raises(RvError, match="Connection refused"):
        transport.run("true", timeout_s=20)


def fingerprint(server: SshServer, key: str) -> str:
    """As ssh-keygen prints it."""
    command = ["ssh-keygen", "-lf", str(server.path / f"{key}.pub")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[1]
