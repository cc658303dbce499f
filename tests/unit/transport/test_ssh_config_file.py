"""What rv reads of ssh's configuration is what ssh itself reads of it."""

import getpass
import subprocess
from pathlib import Path

import pytest

from rv.errors import ErrorKind, RvError
from rv.transport.ssh_config_file import forbids_sharing, read_settings

TEXT = """\
# a comment
Include conf.d/*.conf
Host login
  HostName login1.site.edu
  Port=2222
  User "alice"
  IdentityFile ~/.ssh/special
  IdentityFile %d/.ssh/%r_key
  IdentitiesOnly yes
  ConnectTimeout 7
  ServerAliveInterval 21
Host *.inner
  HostName %h.site.edu
  ProxyJump bob@gate:2200,login
Match host gate user bob
  Port 2201
Match exec "true" host login
  User nobody
Match final host login
  ServerAliveCountMax 9
Match originalhost tagged
  HostKeyAlias shared
Host proxied
  ProxyCommand nc -X 5 %h %p
Host direct.inner2 plain
  ProxyJump none
Host *
  User everyone
  Port 2022
"""
MORE = """\
Host included
  HostName included.site.edu
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a configuration."""
    folder = tmp_path / ".ssh"
    (folder / "conf.d").mkdir(parents=True)
    (folder / "config").write_text(TEXT)
    (folder / "conf.d" / "more.conf").write_text(MORE)
    return tmp_path


def of_ssh(home: Path, host: str) -> dict[str, list[str]]:
    """What `ssh -G` says."""
    file = home / "read_by_ssh"
    file.write_text(
        TEXT.replace("conf.d/", f"{home}/.ssh/conf.d/").replace('exec "true"', 'exec "false"')
    )
    asked = ["ssh", "-F", str(file), "-G", "--", host]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize(
    "host",
    [
        "login",
        "carol@login",
        "included",
        "node.inner",
        "tagged",
        "proxied",
        "bob@gate",
        "plain",
        "other",
    ],
)
def test_as_ssh_reads_it(home: Path, host: str) -> None:
    """Names, ports, users, jump hosts, time limits and aliases, of sections and includes."""
    own, ssh = read_settings(host, home), of_ssh(home, host)
    assert own.address == ssh["hostname"][0]
    assert (str(own.port), own.user) == (ssh["port"][0], ssh["user"][0])
    assert ",".join(own.jump_hosts) == ",".join(ssh.get("proxyjump", []))
    assert own.host_key_alias == "".join(ssh.get("hostkeyalias", []))
    assert own.only_these_keys == (ssh["identitiesonly"] == ["yes"])
    assert (own.connect_timeout_s, own.alive_interval_s) == (
        (7, 21) if "login" in host else (15, 10)
    )
    assert str(own.alive_count) == ssh["serveralivecountmax"][0]
    assert bool(own.proxy_command) == ("proxycommand" in ssh)


def test_keys_and_tokens(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own files, else the usual ones."""
    monkeypatch.setenv("HOME", str(home))
    folder = home / ".ssh"
    assert read_settings("login", home).key_files == (folder / "special", folder / "alice_key")
    assert [path.name for path in read_settings("other", home).key_files] == [
        "id_ed25519", "id_ecdsa", "id_rsa",
    ]  # fmt: skip
    assert read_settings("proxied", home).proxy_command == "nc -X 5 proxied 2022"
    assert read_settings("other", home).known_hosts_files[0] == folder / "known_hosts"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("plain.site", ("plain.site", 22, "")),
        ("a@b@plain.site", ("plain.site", 22, "a@b")),
        ("a@plain.site:2200", ("plain.site", 2200, "a")),
        ("ssh://a@plain.site:2200", ("plain.site", 2200, "a")),
        ("::1", ("::1", 22, "")),
        ("a@[fe80::1]", ("fe80::1", 22, "a")),
    ],
)
def test_what_may_be_typed(tmp_path: Path, host: str, expected: tuple[str, int, str]) -> None:
    """Without a configuration."""
    found = read_settings(host, tmp_path)
    address, port, user = expected
    assert (found.port, found.user) == (port, user or getpass.getuser())
    assert found.address == address


def test_its_name_in_known_hosts(tmp_path: Path) -> None:
    """With a port that is not the usual one."""
    assert read_settings("Host.Site", tmp_path).known_as == "host.site"
    assert read_settings("host:2200", tmp_path).known_as == "[host]:2200"


@pytest.mark.parametrize(
    "text",
    [
        "Port many\n", "Host\n", "Match host\n", 'Include "open\n', "nonsense\n", 'Host "open\n',
        'UserKnownHostsFile "a\n', "CanonicalizeHostname yes\n", "ServerAliveCountMax x\n",
    ],
)  # fmt: skip
def test_a_file_that_is_none(tmp_path: Path, text: str) -> None:
    """One line, and what to do; whether it forbids sharing is left to ssh."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(text)
    with pytest.raises(RvError, match=r"cannot read what ~/\.ssh/config says of host: ") as caught:
        read_settings("host", tmp_path)
    assert caught.value.kind is ErrorKind.CONFIG
    assert "\n" not in caught.value.message
    (tmp_path / ".ssh" / "config").write_text(f"{text}ControlMaster no\n")
    assert forbids_sharing("host", tmp_path) in (True, False)


@pytest.mark.parametrize("host", ["", "@", "a@"])
def test_what_names_no_host(tmp_path: Path, host: str) -> None:
    """One line too."""
    with pytest.raises(RvError, match="is no name of a host"):
        read_settings(host, tmp_path)


def test_an_include_in_a_circle(tmp_path: Path) -> None:
    """It is read so often, and no more."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Include config\nPort 2200\n")
    assert read_settings("host", tmp_path).port == 2200
