"""The user's keys, for paramiko: those of an agent, and those of files."""

from pathlib import Path
from typing import Final

import paramiko

_KINDS: Final = (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey)
_UNREADABLE: Final = (paramiko.SSHException, OSError, ValueError, EOFError)


def agent_keys(agent: paramiko.Agent, only_of: tuple[Path, ...]) -> list[paramiko.AgentKey]:
    """Return an agent's keys; where `only_of` names files, the keys of these."""
    keys = list(agent.get_keys())
    if not only_of:
        return keys
    own = {_public_part(path) for path in only_of}
    return [key for key in keys if key.get_base64() in own]


def open_agent() -> paramiko.Agent | None:
    """Ask the user's agent for its keys, None where none answers."""
    try:
        return paramiko.Agent()
    except _UNREADABLE:
        return None


def read_key(path: Path, passphrase: str | None) -> paramiko.PKey | None:
    """Read a private key and its certificate; None where that is none, or of no kind that is known.

    Raises `paramiko.PasswordRequiredException` where it needs a passphrase, and none is given.
    """
    locked: paramiko.PasswordRequiredException | None = None
    for kind in _KINDS:
        try:
            key = kind.from_private_key_file(str(path), passphrase)
        except paramiko.PasswordRequiredException as error:
            locked = error
        except _UNREADABLE:
            continue
        else:
            return _with_certificate(key, path)
    if locked:
        raise locked
    return None


def _with_certificate(key: paramiko.PKey, path: Path) -> paramiko.PKey:
    certificate = Path(f"{path}-cert.pub")
    if certificate.exists():
        try:
            key.load_certificate(str(certificate))
        except _UNREADABLE:
            return key
    return key


def _public_part(path: Path) -> str:
    """Return a key's public part in base64: of its .pub file, else of the key where it is open."""
    try:
        words = Path(f"{path}.pub").read_text(encoding="utf-8").split()
        return words[1]
    except (OSError, ValueError, IndexError):
        pass
    try:
        key = read_key(path, None)
    except paramiko.PasswordRequiredException:
        return ""
    return key.get_base64() if key else ""
