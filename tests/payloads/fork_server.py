"""Import torch once, then fork the ranks of one launch after the other: seconds saved each time.

Reads one JSON object a line: script, argv, world, apart, env, folder. Answers with the ranks' process
ids; leaves what they printed in `out.N` and `err.N` of the folder, and their exit codes in `code.N`.
Ranks start as torchrun starts them, `apart` as if each were on a node of its own.
"""

import json
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path

import torch
import torch._dynamo  # noqa: F401 - optimizers import it, which takes as long again

from rv.sandbox import ports


def main() -> None:
    files: dict[int, Path] = {}

    def reap(*_: object) -> None:
        while ended := next_ended():  # whichever: a second signal comes in the midst of the first
            pid, status = ended
            target = files.pop(pid)
            target.with_suffix(".draft").write_text(str(os.waitstatus_to_exitcode(status)))
            target.with_suffix(".draft").rename(target)

    signal.signal(signal.SIGCHLD, reap)
    for line in sys.stdin:
        request = json.loads(line)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        # The ranks inherit what holds the port: nobody else has it before the first listens there.
        with ports.reserved(1) as port:
            pids = [start(request, rank, port) for rank in range(request["world"])]
        files.update({pid: code_file(request["folder"], n) for n, pid in enumerate(pids)})
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        print(json.dumps(pids), flush=True)


def next_ended() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def code_file(folder: str, rank: int) -> Path:
    return Path(folder, f"code.{rank}.txt")


def start(request: dict, rank: int, port: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    code = 70
    try:
        code = become(request, rank, port)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def become(request: dict, rank: int, port: int) -> int:
    folder = Path(request["folder"])
    for number, name in ((0, os.devnull), (1, folder / f"out.{rank}"), (2, folder / f"err.{rank}")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), number)
    os.environ.clear()
    os.environ.update(request["env"])
    if request["world"] > 1:
        os.environ.update(ranks(rank, request["world"], port, apart=request["apart"]))
    os.chdir(folder)
    sys.argv = [request["script"], *request["argv"]]
    sys.path[0] = str(Path(request["script"]).parent)
    try:
        runpy.run_path(request["script"], run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def ranks(rank: int, world: int, port: int, *, apart: bool) -> dict[str, str]:
    node, local, beside = (rank, 0, 1) if apart else (0, rank, world)
    names = {"RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": beside}
    names |= {"GROUP_RANK": node, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {name: str(value) for name, value in names.items()}


if __name__ == "__main__":
    main()
