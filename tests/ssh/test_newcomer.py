"""From `rv init` to a Jupyter in the browser of the laptop, over both transports."""

import os
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.slurm.test_forward import STAND_IN, fetch
from tests.ssh.conftest import Laptop
from tests.ssh.echo import Talk
from tests.ssh.server import HOST
from tests.ssh.test_init import user_file

__all__ = ["user_file"]


@pytest.mark.parametrize("kind", ["openssh", "paramiko"])
def test_from_init_to_jupyter(laptop: Laptop, user_file: Path, kind: str) -> None:
    """What is typed is what docs/from-a-laptop.md says; a lost connection ends nothing."""
    laptop = replace(laptop, ssh=kind)
    away = laptop.home.parent / "away"
    assert laptop.rv("init", HOST).returncode == 0
    assert user_file.exists()
    assert laptop.rv("exec", "--", "cd; python3 -m venv --without-pip lab").returncode == 0
    shutil.copy(STAND_IN, away / "lab" / "bin" / "jupyter")
    (away / "lab" / "bin" / "jupyter").chmod(0o755)
    talk = Talk(laptop.start("up", "--jupyter", "--gpu", "1", "--time", "5m", "--venv", "lab"))
    try:
        talk.shows("Ctrl-C ends it")
        match = re.search(r"(?<=Jupyter: )http://127\.0\.0\.1:\d+/lab\?token=\S+", talk.text)
        assert match
        assert re.fullmatch(r"/lab of job \d+", fetch(match[0])[1])
        assert fetch(match[0][:-1])[0] == 403
        laptop.server.cut()
        assert fetch_again(match[0])[0] == 200
        os.killpg(talk.client.pid, signal.SIGINT)
        assert talk.client.wait(60) == 130, talk.text
        assert "Traceback" not in talk.text
        assert "CANCELLED" in laptop.rv("ps", "-a").stdout
    finally:
        talk.close()
        laptop.rv("stop", "--all")


def fetch_again(url: str) -> tuple[int, str]:
    """What a browser gets that asks until it gets something: a connection was lost meanwhile."""
    for _ in range(100):
        try:
            return fetch(url)
        except OSError as error:
            last = error
    raise last
