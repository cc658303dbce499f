"""What known_hosts says of a key."""

import base64
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rv.transport.host_keys import ServerKey, Verdict, fingerprint, judge, read_known_hosts

KEY, OTHER = b"the key", b"another key"
TEXT = base64.b64encode(KEY).decode()


def known(folder: Path, text: str, host: str = "login") -> Verdict:
    """What a file of this text says of KEY, of kind `k`, of the host."""
    path = folder / "known_hosts"
    path.write_bytes(text.encode())
    shown = ServerKey(name="alias", host=host, kind="k", key=KEY)
    return judge(read_known_hosts([path, folder / "none"]), shown)


def test_each_verdict(tmp_path: Path) -> None:
    """By the strictest line that there is."""
    other = base64.b64encode(OTHER).decode()
    assert known(tmp_path, "") is Verdict.UNKNOWN
    assert known(tmp_path, f"login k {TEXT}") is Verdict.KNOWN
    assert known(tmp_path, f"login k {other}") is Verdict.CHANGED
    assert known(tmp_path, f"login k {other}\nlogin k {TEXT}") is Verdict.KNOWN
    assert known(tmp_path, f"login another {other}") is Verdict.UNKNOWN
    assert known(tmp_path, f"login k {TEXT}\n@revoked login k {TEXT}") is Verdict.REVOKED
    assert known(tmp_path, f"@revoked other k {TEXT}\nlogin k {TEXT}") is Verdict.KNOWN
    assert known(tmp_path, f"@cert-authority log* k {TEXT}") is Verdict.AUTHORITY
    assert known(tmp_path, f"@new login k {TEXT}") is Verdict.UNKNOWN


def test_a_port_of_which_no_key_is_known(tmp_path: Path) -> None:
    """That of the usual port serves; it does not where the port has a key of its own."""
    other, host = base64.b64encode(OTHER).decode(), "[login]:2200"
    assert known(tmp_path, f"login k {TEXT}", host) is Verdict.KNOWN
    assert known(tmp_path, f"login k {other}", host) is Verdict.UNKNOWN
    assert known(tmp_path, f"login k {TEXT}\n{host} k {other}", host) is Verdict.CHANGED
    assert known(tmp_path, f"{host} k {TEXT}") is Verdict.UNKNOWN
    assert known(tmp_path, f"@revoked login k {TEXT}", host) is Verdict.REVOKED


def test_a_fingerprint_is_ssh_s() -> None:
    """SHA-256, in base64 without its padding."""
    assert fingerprint(b"") == "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"


@given(text=st.text(st.characters(codec="utf-8")))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_is_read(tmp_path: Path, text: str) -> None:
    """What is no such line says nothing."""
    assert known(tmp_path, text) in Verdict
