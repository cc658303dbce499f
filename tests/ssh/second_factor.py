"""A server whose PAM asks for a second factor, and counts how often it did."""

import os
from pathlib import Path

import pytest

from tests.ssh.server import SshServer

CODE = "123456"
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give sshd another PAM")


def ask_second_factor(server: SshServer, methods: str) -> Path:
    """Let the server's PAM ask for a code, and count; returns the file with a line for each."""
    folder = server.path.parent / "pam"
    (folder / "pam.d").mkdir(parents=True)
    asked, program = folder / "asked", folder / "factor"
    program.write_text(
        f'#!/bin/sh\ncode=$(tr -d \'\\0\')\necho "$code" >>{asked}\n[ "$code" = {CODE} ]\n'
    )
    program.chmod(0o755)
    (folder / "pam.d" / "sshd").write_text(
        f"auth requisite pam_exec.so quiet expose_authtok {program}\n"
        "auth required pam_permit.so\naccount required pam_permit.so\nsession required pam_permit.so\n"
    )
    server.binds = {"/etc/pam.d": folder / "pam.d"}
    server.pam = True
    server.settings += [f"AuthenticationMethods {methods}"]
    return asked
