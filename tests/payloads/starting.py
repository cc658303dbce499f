"""Run payloads as a job does: one process, or the ranks of a launch; read what they left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAYLOADS = Path(__file__).parents[2] / "rv" / "payloads"
ONLY = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
PATIENCE = 180
SLOW_JUDGING = """
import os, time
if os.environ.get("RANK") == os.environ["SLOW_RANK"]:
    from _harness import judging
    quick = judging.add_wear
    judging.add_wear = lambda session: time.sleep(1.5) or quick(session)
"""


@dataclass(frozen=True)
class Done:
    """A payload that has ended."""

    payload: str
    folder: Path
    codes: list[int]

    @property
    def code(self) -> int:
        return self.codes[0]

    @property
    def out(self) -> str:
        return (self.folder / "out.0").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "err.0").read_text()

    @property
    def last(self) -> str:
        return self.out.splitlines()[-1]

    @property
    def result(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(
            (self.folder / f"{self.payload}_result.json").read_text()
        )
        return loaded

    def test(self, name: str) -> dict[str, Any]:
        """The only test of this name, of rank 0."""
        (found,) = [t for t in self.result["tests"] if t["name"] == name and t["rank"] == 0]
        return found

    @property
    def bad(self) -> set[tuple[str, str]]:
        """Each test that did not pass, with its code."""
        tests = self.result["tests"]
        return {(t["name"], t["code"]) for t in tests if t["status"] in ("FAIL", "ERROR")}

    @property
    def coded(self) -> dict[str, str]:
        """The code of each test that has one: those that failed, and what was skipped or warned."""
        return {t["name"]: t["code"] for t in self.result["tests"] if t["code"]}

    @property
    def reasons(self) -> str:
        return "\n".join(t["reason"] for t in self.result["tests"] if t["reason"])


@dataclass(frozen=True)
class Running:
    """A payload that was started."""

    payload: str
    folder: Path
    pids: list[int]

    def signal(self, number: int, rank: int = 0) -> None:
        """Send a rank a signal."""
        os.kill(self.pids[rank], number)

    @property
    def over(self) -> bool:
        return all(path.exists() for path in self._code_files())

    def wait(self, patience: float = PATIENCE) -> Done:
        """Wait for the end of all ranks; those that go on for too long are killed."""
        deadline = time.monotonic() + patience
        while not self.over:
            if time.monotonic() > deadline:
                told = self._stop_all()
                raise AssertionError(f"{self.payload} was not over within {patience} s; {told}")
            time.sleep(0.02)
        return Done(
            self.payload, self.folder, [int(path.read_text()) for path in self._code_files()]
        )

    def _stop_all(self) -> str:
        """Kill the ranks that go on, and tell what each came to and said."""
        told = []
        for rank, (pid, code) in enumerate(zip(self.pids, self._code_files(), strict=True)):
            told.append(f"rank {rank} ended: {code.exists()}")
            with suppress(ProcessLookupError):  # it has ended
                os.kill(pid, signal.SIGKILL)
        for name in ("out", "err"):
            told.extend(path.read_text() for path in sorted(self.folder.glob(f"{name}.*")))
        return "\n".join(told)

    def _code_files(self) -> list[Path]:
        return [self.folder / f"code.{rank}.txt" for rank in range(len(self.pids))]


class Launcher:
    """Starts payloads from one process that has imported torch already."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("fork_server.py"))]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, env=ONLY, text=True, **pipes)

    def __call__(
        self, payload: str, folder: Path, *argv: object, world: int = 1, **env: str
    ) -> Done:
        return self.start(payload, folder, *argv, world=world, **env).wait()

    def start(
        self,
        payload: str,
        folder: Path,
        *argv: object,
        world: int = 1,
        apart: bool = False,
        **env: str,
    ) -> Running:
        """Start a payload in a folder; `apart`, each of its ranks as if on a node of its own."""
        for path in folder.glob("code.*.txt"):
            path.unlink()
        request = {
            "script": str(PAYLOADS / f"{payload}.py"),
            "argv": [str(word) for word in argv],
            "world": world,
            "apart": apart,
            "env": {**ONLY, **env},
            "folder": str(folder),
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return Running(payload, folder, json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(PATIENCE)


def python(payload: str, folder: Path, *argv: str, torch: str = "", **env: str) -> Done:
    """Run a payload alone, in a python of its own; `torch` is a text that takes torch's place."""
    variables = {**ONLY, **env}
    if torch:
        (folder / "hidden").mkdir()
        (folder / "hidden" / "torch.py").write_text(torch)
        variables["PYTHONPATH"] = str(folder / "hidden")
    return _run(payload, folder, [sys.executable], argv, variables)


def torchrun(payload: str, folder: Path, *argv: str, ranks: int = 2, **env: str) -> Done:
    """Run a payload under the real torchrun."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launcher.append(f"--nproc_per_node={ranks}")
    return _run(payload, folder, launcher, argv, {**ONLY, **env})


def slow_judging(folder: Path, rank: str) -> dict[str, str]:
    """Return variables by which one rank takes long for what comes after its tests."""
    (folder / "sitecustomize.py").write_text(SLOW_JUDGING)
    return {"PYTHONPATH": f"{folder}:{PAYLOADS}", "SLOW_RANK": rank}


def _run(
    payload: str, folder: Path, launcher: list[str], argv: tuple[str, ...], env: dict[str, str]
) -> Done:
    command = [*launcher, str(PAYLOADS / f"{payload}.py"), *argv]
    with (folder / "out.0").open("w") as out, (folder / "err.0").open("w") as err:
        done = subprocess.run(
            command, env=env, cwd=folder, stdout=out, stderr=err, timeout=PATIENCE
        )
    return Done(payload, folder, [done.returncode])
