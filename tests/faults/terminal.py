"""Terminals at which rv is typed: a pseudo-terminal of the test's own, and tmux."""

import errno
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
from typing import Final

from tests.faults.world import World, eventually

RV: Final = ("-m", "rv")
ENVIRONMENT: Final = {"TERM": "dumb", "SHELL": "/bin/bash", "PS1": "$ "}


def terminal_environment(world: World) -> dict[str, str]:
    """What rv is called with on a terminal; its user's configuration of bash is none."""
    home = {} if world.login else {"HOME": str(world.path)}
    return world.client_env | ENVIRONMENT | home


class Terminal:
    """A person at rv, on a terminal."""

    def __init__(self, world: World, *words: str, program: tuple[str, ...] = RV) -> None:
        self.said = ""
        env = terminal_environment(world)
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            os.chdir(world.work)
            os.execve(sys.executable, [sys.executable, *program, *words], env)

    def read(self) -> str:
        """Take what is there to read, without waiting long."""
        while select.select([self.handle], [], [], 0.02)[0]:
            try:
                data = os.read(self.handle, 65536)
            except OSError as error:
                if error.errno != errno.EIO:  # the other side is closed
                    raise
                break
            if not data:
                break
            self.said += data.decode(errors="replace")
        return self.said

    def types(self, line: str) -> None:
        os.write(self.handle, f"{line}\n".encode())

    def shows(self, text: str) -> None:
        eventually(lambda: text in self.read() or None, 60)

    def wait(self) -> int:
        def over() -> bool:
            self.read()
            pid, self.status = os.waitpid(self.pid, os.WNOHANG)
            return pid != 0

        eventually(over, 60)
        self.pid = 0
        return os.waitstatus_to_exitcode(self.status)

    def kill(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0

    def close(self) -> None:
        self.kill()
        os.close(self.handle)


class Tmux:
    """A tmux server of its own with one window, in which rv is typed at a shell's prompt."""

    def __init__(self, world: World, *words: str, term: str = "dumb") -> None:
        self._socket = str(world.path / "tmux")
        env = terminal_environment(world) | {"TERM": term}
        line = shlex.join([sys.executable, *RV, *words])
        command = ["new-session", "-d", "-x", "120", "-y", "40", "bash --norc --noprofile -i"]
        self._run(*command, env=env, cwd=world.work)
        self.pid = int(self._run("display-message", "-p", "#{pid}"))
        self.types(line)

    def _run(self, *words: str, **options: object) -> str:
        argv = ["tmux", "-S", self._socket, "-f", "/dev/null", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, **options)  # type: ignore[call-overload]
        return str(done.stdout)

    def types(self, line: str) -> None:
        self._run("send-keys", line, "Enter")

    def presses(self, key: str) -> None:
        self._run("send-keys", key)

    def resize(self, columns: int, lines: int) -> None:
        self._run("resize-window", "-x", str(columns), "-y", str(lines))

    def screen(self) -> str:
        """Everything that stands in the window, and what was scrolled out of it."""
        return self._run("capture-pane", "-p", "-S", "-", "-J")

    def visible(self) -> str:
        """What stands in the window: a resize may scroll lines out of it that nobody can redraw."""
        return self._run("capture-pane", "-p", "-J")

    def shows(self, text: str) -> None:
        eventually(lambda: text in self.screen(), 60)

    def close(self) -> None:
        """Close the window, as who closes a terminal does."""
        self._run("kill-session")

    def kill(self) -> None:
        """Let the server die of kill -9: its terminal is gone all the same."""
        os.kill(self.pid, signal.SIGKILL)
