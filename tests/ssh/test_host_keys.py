"""Which host keys are accepted, over both transports; known_hosts is never written."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rv.errors import ErrorKind, RvError
from rv.transport import Transport
from tests.ssh.server import SshServer

Connect = Callable[[], Transport]


def public(path: Path) -> str:
    """The kind and the text of a key."""
    return " ".join(path.with_name(f"{path.name}.pub").read_text().split()[:2])


def fingerprint(path: Path) -> str:
    """As ssh-keygen prints it."""
    command = ["ssh-keygen", "-lf", f"{path}.pub"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[1]


def know(server: SshServer, *lines: str) -> str:
    """Write known_hosts, with {host} and {key} for the server's; returns what it then holds.

    Words alone would not do: a key in base64 can have any three letters in it.
    """
    key = public(server.path / "host_key")
    host = f"[127.0.0.1]:{server.port}"
    text = "".join(f"{line.format(host=host, key=key)}\n" for line in lines)
    (server.path / "known_hosts").write_text(text)
    return text


def answers(transport: Transport) -> bool:
    """Whether a script runs there."""
    return transport.run("echo yes", timeout_s=20).stdout == "yes\n"


def refused(transport: Transport) -> RvError:
    """The error of one that does not."""
    with pytest.raises(RvError) as caught:
        transport.run("echo yes", timeout_s=20)
    assert caught.value.kind is ErrorKind.UNREACHABLE
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    "line",
    ["{host} {key}", "other,{host} {key} a comment", "[127.0.0.*]:* {key}", "127.0.0.1 {key}"],
)
def test_a_known_key(server: SshServer, connect: Connect, line: str) -> None:
    """By name, among others, by a pattern, and by the name without a port."""
    transport = connect()
    before = know(server, "# a comment", "", "nonsense", line)
    assert answers(transport)
    assert (server.path / "known_hosts").read_text() == before


def test_a_hashed_name(server: SshServer, connect: Connect) -> None:
    """As Debian's ssh writes them."""
    transport = connect()
    know(server, "{host} {key}")
    known = server.path / "known_hosts"
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", known], check=True, capture_output=True)
    assert "127.0.0.1" not in known.read_text()
    assert answers(transport)


def test_another_key_of_a_hashed_name(server: SshServer, connect: Connect) -> None:
    """It has changed, and the new fingerprint is shown."""
    transport = connect()
    server.trust("user_key")
    known = server.path / "known_hosts"
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", known], check=True, capture_output=True)
    error = refused(transport)
    assert "host key of cluster has changed" in error.message
    assert fingerprint(server.path / "host_key") in error.message


@pytest.mark.parametrize(
    "line", ["!127.0.0.1,[10.0.0.*]:* {key}", "{host}x {key}", "|1|no|hash {key}"]
)
def test_a_key_of_another_host(server: SshServer, connect: Connect, line: str) -> None:
    """It is not this one's."""
    transport = connect()
    before = know(server, line)
    error = refused(transport)
    assert "host key of cluster is not known here: ssh-ed25519" in error.message
    assert fingerprint(server.path / "host_key") in error.message
    assert (server.path / "known_hosts").read_text() == before


def test_a_revoked_key(server: SshServer, connect: Connect) -> None:
    """Though another line accepts it."""
    transport = connect()
    know(server, "{host} {key}", "@revoked * {key}")
    error = refused(transport)
    assert "host key of cluster is revoked here" in error.message
    assert fingerprint(server.path / "host_key") in error.message
    assert error.hint == "do not connect: ask its administrators for its new key"


def test_only_a_certificate_would_be_accepted(server: SshServer, connect: Connect) -> None:
    """The key itself is not known."""
    transport = connect()
    know(server, "@cert-authority * {key}")
    assert fingerprint(server.path / "host_key") in refused(transport).message


def test_the_kind_of_key_that_is_known_is_asked_for(server: SshServer, connect: Connect) -> None:
    """A server has several, and shows what it prefers."""
    rsa = server.path / "rsa_key"
    server.path.mkdir(parents=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", rsa], check=True)
    server.settings = [f"HostKey {rsa}"]
    transport = connect()
    know(server, f"{{host}} {public(rsa)}")
    assert answers(transport)


def test_an_alias_of_the_user(server: SshServer, connect: Connect) -> None:
    """Several login nodes are one name in known_hosts."""
    transport = connect()
    server.configure_client("HostKeyAlias cluster.site")
    know(server, "cluster.site {key}")
    assert answers(transport)


def test_two_keys_of_one_name(server: SshServer, connect: Connect) -> None:
    """Those of two login nodes: either is right."""
    transport = connect()
    know(server, f"{{host}} {public(server.path / 'user_key')}", "{host} {key}")
    assert answers(transport)


def test_the_hint_makes_it_known(server: SshServer, connect_by: Callable[[str], Transport]) -> None:
    """Where there is no ssh, the line to add is in it."""
    transport = connect_by("paramiko")
    known = server.home / ".ssh" / "known_hosts"
    server.configure_client(f"UserKnownHostsFile {known}")
    hint = refused(transport).hint
    subprocess.run(["/bin/sh", "-c", hint[hint.index("echo") :]], check=True)
    assert answers(transport)
