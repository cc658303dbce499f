"""A server that asks two questions in one form, then one more; it speaks ssh by paramiko.

`python asking_server.py FOLDER`: its host key and the file `asked`, a line a question, are there.
"""

import socket
import subprocess
import sys
import threading
from pathlib import Path

import paramiko

FORMS = [
    ("Welcome\x1b[31m to\nthe site", [("Account code: ", True), ("Password: ", False)]),
    ("", [("One-time code: ", False)]),
]


class Door(paramiko.ServerInterface):
    """Lets in who answers all forms."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.left = list(FORMS)
        self.command = b""
        self.has_command = threading.Event()

    def get_allowed_auths(self, username: str) -> str:
        return "keyboard-interactive"

    def check_auth_interactive(self, username: str, submethods: str) -> object:
        self.left = list(FORMS)
        return self.ask()

    def check_auth_interactive_response(self, responses: list[str]) -> object:
        with (self.folder / "asked").open("a") as file:
            file.write(f"{'|'.join(responses)}\n")
        right = ["physics|geheim ü", "123456"][len(FORMS) - len(self.left) - 1]
        if "|".join(responses) != right:
            return paramiko.AUTH_FAILED
        return self.ask() if self.left else paramiko.AUTH_SUCCESSFUL

    def ask(self) -> paramiko.InteractiveQuery:
        instructions, prompts = self.left.pop(0)
        return paramiko.InteractiveQuery("", instructions, *prompts)

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.command = command
        self.has_command.set()
        return True


def serve(way: socket.socket, folder: Path) -> None:
    """Log somebody in, and run one program."""
    transport = paramiko.Transport(way)
    transport.add_server_key(paramiko.Ed25519Key.from_private_key_file(str(folder / "host_key")))
    door = Door(folder)
    transport.start_server(server=door)
    channel = transport.accept(60)
    if channel is None or not door.has_command.wait(10):
        return
    with subprocess.Popen(
        ["/bin/sh", "-c", door.command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        threading.Thread(target=feed, args=(channel, process), daemon=True).start()
        while data := process.stdout.read1():
            channel.sendall(data)
    channel.send_exit_status(process.returncode)
    channel.close()


def feed(channel: paramiko.Channel, process: "subprocess.Popen[bytes]") -> None:
    """Copy what comes to the program."""
    while data := channel.recv(4096):
        process.stdin.write(data)
        process.stdin.flush()
    process.stdin.close()


def main(folder: Path) -> None:
    """Serve on a free port, which the first line of output names."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            threading.Thread(target=serve, args=(server.accept()[0], folder), daemon=True).start()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
