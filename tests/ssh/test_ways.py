"""What lies between rv and the login node: jump hosts, proxies, and networks that fail."""

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rv.errors import ErrorKind, RvError
from rv.race.payload_folders import payload_hash, stage_payloads
from rv.transport import LOST, Transport
from rv.transport.openssh import OpenSsh
from rv.transport.paramiko_connection import Paramiko
from rv.transport.remote_shell import RemoteShell
from tests.ssh.logging_in import one_line, run
from tests.ssh.proxy import Proxy
from tests.ssh.server import HOST, SSHD, SshServer

Connect = Callable[[], Transport]
MakeProxy = Callable[..., Proxy]
KINDS = ("openssh", "paramiko")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each of the two."""
    return str(request.param)


@pytest.fixture
def make_proxy() -> Iterator[MakeProxy]:
    """Make proxies, which end with the test."""
    made: list[Proxy] = []

    def make(*ports: int, **options: object) -> Proxy:
        made.append(Proxy(ports, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


@pytest.fixture
def others(server: SshServer) -> Iterator[Callable[[str], SshServer]]:
    """Start more servers, each with keys of its own."""
    made: list[SshServer] = []

    def make(name: str) -> SshServer:
        made.append(SshServer(path=server.path.parent / name, alias=name))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.stop()


def sections(*servers: SshServer) -> str:
    """What their clients' configurations say."""
    return "".join((each.path / "ssh_config").read_text() for each in servers)


def configure(server: SshServer, text: str) -> None:
    """Write a configuration for both clients."""
    for file in (server.path / "ssh_config", server.home / ".ssh" / "config"):
        file.write_text(text)


def logins(server: SshServer) -> int:
    """How often somebody logged in there."""
    return (server.path / "sshd.log").read_text().count("Accepted publickey")


def use(server: SshServer, proxy: Proxy) -> None:
    """Let the client connect to the proxy, which shows the server's key."""
    server.configure_client(f"Port {proxy.port}", f"HostKeyAlias [127.0.0.1]:{server.port}")


def answers(transport: Transport) -> bool:
    """Whether a script runs there."""
    return transport.run("echo yes", timeout_s=20).stdout == "yes\n"


def refused(transport: Transport) -> str:
    """What one that does not says."""
    with pytest.raises(RvError) as caught:
        transport.run("echo yes", timeout_s=20)
    assert caught.value.kind is ErrorKind.UNREACHABLE
    assert caught.value.hint
    return caught.value.message


def test_two_jump_hosts(
    server: SshServer, others: Callable[[str], SshServer], connect: Connect
) -> None:
    """Each with its own user, key and host key; the way is gone with the connection."""
    transport = connect()
    first, second = others("first"), others("second")
    user = f"{os.environ.get('USER', 'root')}@" if os.getuid() == 0 else ""
    server.configure_client(f"ProxyJump {user}first,second")
    configure(server, sections(server, first, second))
    assert answers(transport)
    assert (logins(first), logins(second), logins(server)) == (1, 1, 1)


@pytest.mark.parametrize(
    ("trusted", "problem"), [("", "is not known here"), ("user_key", "has changed")]
)
def test_a_jump_host_whose_key_is_not_trusted(
    server: SshServer,
    others: Callable[[str], SshServer],
    connect: Connect,
    trusted: str,
    problem: str,
) -> None:
    """It is that one's key that is refused, and named, and nothing is sent through it.

    Where a connection is to be shared, ssh keeps to itself what a jump host's ssh says.
    """
    transport = connect()
    jump = others("first")
    server.configure_client("ProxyJump first", "ControlMaster no")
    configure(server, sections(server, jump))
    if trusted:
        jump.trust(trusted)
    else:
        (jump.path / "known_hosts").write_text("")
    said = refused(transport)
    assert re.search(f"the host key of (cluster's jump host|first) {problem}", said)
    assert logins(jump) == 0


def test_jump_hosts_in_a_circle(
    server: SshServer, others: Callable[[str], SshServer], kind: str
) -> None:
    """They are given up."""
    server.start()
    jump = others("first")
    jump.configure_client("ProxyJump cluster")
    server.configure_client("ProxyJump first")
    configure(server, sections(server, jump))
    if kind == "paramiko":  # ssh itself goes round until the machine is full
        assert "go in a circle" in one_line(run(server, kind).stdout)


def test_a_proxy_command(server: SshServer, connect: Connect) -> None:
    """Run by a shell, with its tokens; here it is the server itself."""
    transport = connect()
    note = server.path / "note"
    server.configure_client(
        f"ProxyCommand /bin/sh -c 'echo %h %p %r >{note}; exec {SSHD} -i -f {server.path}/sshd_config'"
    )
    assert answers(transport)
    assert re.fullmatch(rf"127\.0\.0\.1 {server.port} \w+\n", note.read_text())


def test_a_proxy_command_that_fails(server: SshServer, connect: Connect) -> None:
    """One line, with its own words where ssh keeps them; the rest depends on who was faster."""
    transport = connect()
    server.configure_client("ProxyCommand /bin/sh -c 'echo no way >&2; exit 3'")
    said = refused(transport)
    assert said.startswith("cannot connect to cluster:")
    assert "no way" in said or said.endswith(": its ProxyCommand failed")


def test_a_server_with_one_session_a_connection(
    server: SshServer, connect_by: Callable[[str], Transport], kind: str
) -> None:
    """Another connection is made for the second shell."""
    server.settings = ["MaxSessions 1"]
    first = connect_by(kind)
    second = connect_by(kind)
    assert answers(first)
    assert answers(second)
    assert answers(first)
    assert logins(server) == 2


def test_several_shells_over_one_connection(server: SshServer, connect: Connect) -> None:
    """One login, where the server allows it."""
    transport = connect()
    assert answers(transport)
    shell = "$(ps -o ppid= -p $PPID)"  # above it is the connection
    assert transport.run(f"kill -9 {shell}", timeout_s=20).returncode == LOST
    assert answers(transport)
    assert logins(server) == 1


@pytest.mark.parametrize("how", ["auto", "autoask", "ask", "yes"])
def test_a_session_of_the_user_s_outlives_an_ssh_of_rv_s(
    server: SshServer, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Which was the first, and might be the one whose connection all others share."""
    monkeypatch.setenv("SSH_ASKPASS", "/bin/true")  # whoever is asked agrees
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
    server.start()
    server.configure_client(f"ControlMaster {how}", f"ControlPath {server.path}/%C")
    program = str(server.path / "bin" / "ssh")
    shell = RemoteShell(OpenSsh(HOST, program).connect, "SLURM_.*")
    assert shell.run("echo yes", timeout_s=20)[1] == b"yes\n"
    login = [program, "-o", "ControlMaster=no", HOST, "echo in; exec sleep 600"]
    with subprocess.Popen(login, stdout=subprocess.PIPE) as session:
        assert session.stdout
        assert session.stdout.readline() == b"in\n"
        shell.close()
        with pytest.raises(subprocess.TimeoutExpired):
            session.wait(timeout=2)
        session.kill()


@pytest.mark.parametrize(("how", "count"), [("auto", 1), ("autoask", 2), ("ask", 2), ("yes", 2)])
def test_a_connection_that_the_user_s_file_shares(server: SshServer, how: str, count: int) -> None:
    """One that stays keeps nobody waiting who reads all that rv says, and nobody must be asked."""
    server.start()
    server.configure_client(f"ControlMaster {how}", f"ControlPath {server.path}/%C")
    for _ in range(2):
        assert run(server, "openssh").stdout.startswith("logged in as")
    assert logins(server) == count


def test_a_host_that_says_nothing(
    server: SshServer, connect: Connect, make_proxy: MakeProxy
) -> None:
    """It is given up after ConnectTimeout."""
    transport = connect()
    proxy = make_proxy()
    server.configure_client(f"Port {proxy.port}", "ConnectTimeout 1")
    began = time.monotonic()
    assert re.search("timed out|did not answer", refused(transport))
    assert time.monotonic() - began < 10


def test_a_host_that_closes(server: SshServer, connect: Connect, make_proxy: MakeProxy) -> None:
    """As one does that is full."""
    transport = connect()
    proxy = make_proxy(closes=True)
    server.configure_client(f"Port {proxy.port}")
    assert re.search("reset|losed", refused(transport))


def test_a_name_that_nobody_has(server: SshServer, connect: Connect) -> None:
    """It is named."""
    transport = connect()
    server.configure_client("HostName no-such-host.invalid")
    assert re.search("resolve", refused(transport))


def test_two_login_nodes_behind_one_name(
    server: SshServer,
    others: Callable[[str], SshServer],
    connect: Connect,
    make_proxy: MakeProxy,
) -> None:
    """Each connection goes to the next: both keys are known, and no shell is the other's."""
    transport = connect()
    other = others("other")
    (other.path / "user_key.pub").write_text((server.path / "user_key.pub").read_text())
    proxy = make_proxy(server.port, other.port)
    server.configure_client(f"Port {proxy.port}")
    keys = [
        " ".join((each.path / "host_key.pub").read_text().split()[:2]) for each in (server, other)
    ]
    (server.path / "known_hosts").write_text(
        "".join(f"[127.0.0.1]:{proxy.port} {key}\n" for key in keys)
    )
    for _ in range(4):
        assert answers(transport)
        proxy.break_all()
        assert transport.run("true", timeout_s=20).returncode == LOST
    assert (logins(server), logins(other)) == (2, 2)


def test_payloads_that_are_staged_over_a_connection_that_breaks(
    server: SshServer, connect: Connect, make_proxy: MakeProxy, tmp_path: Path
) -> None:
    """Wherever it does: they are there, or the connection is said to be lost, and nothing else."""
    transport = connect()
    root = tmp_path / "races"
    files = {"check.py": b"print()", "_harness/main.py": b"x" * 100_000}
    digest = payload_hash(files)
    stage_payloads(str(root), digest, files, transport)
    at = {"to": 0}
    proxy = make_proxy(server.port, cuts=lambda n, way: "after" if n == at.get(way) else "")
    use(server, proxy)
    server.cut()
    lost = 0
    for number in range(1, 5):
        transport.names(str(root))
        at["to"] = proxy.pieces["to"] + number
        try:
            stage_payloads(str(root), digest, files, transport)
        except RvError as error:
            assert error.kind is ErrorKind.UNREACHABLE, error.message  # noqa: PT017
            lost += 1
    assert lost
    at.clear()
    stage_payloads(str(root), digest, files, transport)


def test_an_address_that_refuses(server: SshServer, connect: Connect) -> None:
    """The next one of the name is tried: localhost is ::1 too."""
    transport = connect()
    server.configure_client("HostName localhost", f"HostKeyAlias [127.0.0.1]:{server.port}")
    assert answers(transport)


def test_a_network_that_went_away(
    server: SshServer, connect: Connect, make_proxy: MakeProxy
) -> None:
    """Nothing comes and nothing is refused: it is noticed, and the next script is answered."""
    transport = connect()
    proxy = make_proxy(server.port)
    use(server, proxy)
    server.configure_client(
        f"Port {proxy.port}", f"HostKeyAlias [127.0.0.1]:{server.port}",
        "ServerAliveInterval 1", "ServerAliveCountMax 1", "ConnectTimeout 2",
    )  # fmt: skip
    assert answers(transport)
    proxy.is_frozen = True
    began = time.monotonic()
    assert transport.run("echo lost", timeout_s=60).returncode == LOST
    assert time.monotonic() - began < 20
    proxy.is_frozen = False
    assert answers(transport)


def test_a_stream_of_any_bytes(server: SshServer, connect_by: Callable[[str], Transport]) -> None:
    """To a program's input and from its output, more than fits into a window; errors are apart."""
    assert answers(connect_by("paramiko"))
    ssh = Paramiko(HOST)
    stream = ssh.open_stream('echo "it\'s"; seq 300000 >&2; exec cat')
    assert stream.read_line() == b"it's\n"
    data = bytes(range(256)) * 20_000
    writer = threading.Thread(target=stream.write, args=(data,))
    writer.start()
    assert stream.read(len(data)) == data
    writer.join()
    stream.close()
    stream.close()
    with pytest.raises(OSError, match="closed the connection"):
        stream.write(b"x")
    ended = ssh.open_stream("printf 'no newline'; exit 3")
    assert (ended.read_line(), ended.read(10), ended.read_line()) == (b"no newline", b"", b"")
    server.stop()
    with pytest.raises(RvError, match="Connection refused"):
        ssh.open_stream("true")
    ssh.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root's sshd serves other users")
@pytest.mark.parametrize("shell", ["/bin/bash", "/usr/bin/tcsh", "/usr/bin/fish"])
def test_a_second_user(server: SshServer, kind: str, shell: str) -> None:
    """Whose login shell may be any."""
    home = server.path.parent / "other"
    home.mkdir(mode=0o700)
    os.chown(home, 4242, 4242)
    passwd = server.path.parent / "passwd"
    entry = f"other:x:4242:4242::{home}:{shell}\n"
    passwd.write_text(Path("/etc/passwd").read_text() + entry)
    server.binds = {"/etc/passwd": passwd}
    server.path.parent.chmod(0o755)
    server.start()
    server.configure_client("User other")
    os.chmod(server.path, 0o755)  # noqa: PTH101
    done = run(server, kind, script="id -un; echo $HOME")
    assert done.stdout.split() == ["other", str(home)], done.stdout
