"""What `tensor_service.py` can be: a server, a client, both, and the reader of their results."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _harness import files
from _processes import processes
from contract.verdicts import NotPassed

from . import analysis, client_tests, server, server_tests
from .client import Client, Unreachable
from .markdown import markdown
from .suite import Suite

if TYPE_CHECKING:
    from argparse import Namespace

    from _harness.main import Session

MIB = 2**20
SIZES = [4096 * 4**n for n in range(9)]  # 4 KiB to 256 MiB
QUICK_SIZES = SIZES[:5]  # to 1 MiB
STARTING = 120.0  # seconds: a cold file system reads torch slowly


def device_of(session: Session) -> str:
    """Choose the first GPU; a server without one works on the CPU, and says so."""
    if session.options.device == "cpu":
        return "cpu"
    try:
        return session.devices()[0]
    except NotPassed as outcome:
        if outcome.status != "SKIP":
            raise
    session.say("SERVICE", "no GPU was asked for: the server works on the CPU")
    return "cpu"


def folder_of(options: Namespace) -> Path:
    """Give the folder of all files."""
    return Path(options.report_dir)


def token_of(options: Namespace) -> str:
    """Read or make the token."""
    return server.token(Path(options.token_file or folder_of(options) / "tensor_service.token"))


def published(options: Namespace) -> Path:
    """Give the file that tells where the server is."""
    return Path(options.publish or folder_of(options) / "tensor_service.json")


def open_server(session: Session, device: str) -> server.Server:
    """Listen. Raises NotPassed where the address cannot be had."""
    options = session.options
    faults = {fault.name for fault in options.inject}
    secret = token_of(options)
    state = server.State(session.need_torch(), device, secret, int(options.limit * MIB), faults)
    host = options.host or server.internal_address()
    try:
        opened = server.Server(host, options.port, state)
    except OSError as error:
        reason = f"cannot listen on {host}:{options.port}: {error.strerror}"
        raise NotPassed("ERROR", "could_not_run", reason) from error
    return opened


def begin(session: Session, opened: server.Server) -> None:
    """Answer in a thread of its own, and tell clients where."""
    threading.Thread(target=opened.serve_forever, daemon=True).start()
    host, state = str(opened.server_address[0]), opened.state
    server.publish(published(session.options), host, opened.port, state.token)
    session.say("SERVICE", f"listening on {host}:{opened.port}, device {state.device}")


def serve(session: Session) -> None:
    """Serve until told to finish, for --duration seconds, or until a signal."""
    device = device_of(session)
    opened = open_server(session, device)
    with opened:
        try:
            begin(session, opened)
            opened.state.finished.wait(session.options.duration)
        except KeyboardInterrupt:
            session.say("SERVICE", "stopped")
        opened.shutdown()
    stats = opened.state.health()["stats"]
    session.report.add("tensor_service.serve", "PASS", device=device, details=stats)


def client(session: Session) -> None:
    """Test a server that runs somewhere."""
    suite = Suite(session, "client")
    there = connect(session.options)
    _run_client(session, suite, there)
    suite.write(folder_of(session.options))


def connect(options: Namespace) -> Client:
    """Find the server: `--server HOST:PORT` or the file it published. Raises NotPassed."""
    if options.server and ":" in options.server and not Path(options.server).exists():
        host, _, port = options.server.rpartition(":")
        if not port.isdecimal():
            raise NotPassed("ERROR", "could_not_run", f"{options.server} is not HOST:PORT")
        return Client(host, int(port), token_of(options), options.patience)
    file = Path(options.server) if options.server else published(options)
    place = _wait_for(file, options.wait)
    secret = token_of(options)
    if hashlib.sha256(secret.encode()).hexdigest() != place["token_sha256"]:
        reason = f"the token is not that of the server of {file}"
        raise NotPassed("ERROR", "could_not_run", reason)
    return Client(place["host"], place["port"], secret, options.patience)


def _wait_for(file: Path, patience: float) -> dict[str, Any]:
    """Wait for a server to say where it is."""
    deadline = time.monotonic() + patience
    while True:
        try:
            place: dict[str, Any] = json.loads(file.read_text())
            return place
        except (OSError, ValueError):
            if time.monotonic() > deadline:
                reason = f"no server wrote {file} within {patience:g} s"
                raise NotPassed("FAIL", "server_unreachable", reason) from None
            time.sleep(0.1)


def _run_client(session: Session, suite: Suite, there: Client) -> None:
    options, torch = session.options, session.need_torch()
    most = options.limit * MIB * 0.9
    sizes = [size for size in (QUICK_SIZES if options.quick else SIZES) if size < most]
    if any(fault.name == "dead-server" for fault in options.inject):
        there.port = 1  # where nothing listens
        options.wait = 1.0
    client_tests.run(suite, torch, there, sizes, options.wait)


def pair(session: Session) -> None:
    """Test both sides: in one job of two tasks on two nodes, or both on this one."""
    tasks = int(os.environ.get("SLURM_NTASKS", "1"))
    alone = tasks < 2 or "SLURM_PROCID" not in os.environ
    if alone or session.options.host or session.options.here:
        _pair_here(session)
    elif os.environ["SLURM_PROCID"] == "0":
        _serving_task(session)
    elif os.environ["SLURM_PROCID"] == "1":
        _testing_task(session)
    else:
        session.report.add("tensor_service.pair", "SKIP", code="not_asked", reason="a third task")


def _serving_task(session: Session) -> None:
    """Serve and test the server's side, then wait for the client's task to finish."""
    device = device_of(session)
    opened = open_server(session, device)
    with opened:
        begin(session, opened)
        suite = Suite(session, "server")
        here = Client(str(opened.server_address[0]), opened.port, opened.state.token)
        server_tests.run(suite, session.need_torch(), device, here, STARTING)
        suite.write(folder_of(session.options))
        finished = opened.state.wait(session.options.wait)
        opened.shutdown()
    if not finished:
        silence = f"nothing was heard of the client for {session.options.wait:g} s"
        raise NotPassed("FAIL", "client_died", f"{silence}, and it did not finish its tests")


def _testing_task(session: Session) -> None:
    there = connect(session.options)
    suite = Suite(session, "client")
    _run_client(session, suite, there)
    suite.write(folder_of(session.options))
    there.ask("POST", "/finish")


def _pair_here(session: Session) -> None:
    """Run the server as a process of its own, test it from both sides, kill it, bring it back."""
    device = device_of(session)
    options = session.options
    published(options).unlink(missing_ok=True)
    process = _start_server(session, device, 0)
    try:
        place = _place(process, published(options))
        here = Client(place["host"], place["port"], token_of(options), options.patience)
        suite = Suite(session, "server")
        server_tests.run(suite, session.need_torch(), device, here, STARTING)
        suite.write(folder_of(options))
        suite = Suite(session, "client")
        _run_client(session, suite, here)
        if not options.quick and here.port != 1:
            suite.run("server_killed_mid_request", lambda: _killed(session, device, here, process))
        suite.write(folder_of(options))
    finally:
        _end_servers()
    report_on(session)


def _start_server(session: Session, device: str, port: int) -> subprocess.Popen[bytes]:
    options = session.options
    host = options.host or "127.0.0.1"
    folder = folder_of(options)
    command = [sys.executable, sys.argv[0], "serve", "--host", host, "--port", str(port)]
    command += ["--device", device.partition(":")[0], "--report-dir", str(folder)]
    command += ["--report-name", "tensor_service_server_result.json", "--limit", str(options.limit)]
    command += ["--token-file", str(options.token_file or folder / "tensor_service.token")]
    command += ["--publish", str(published(options)), "--timeout", str(options.timeout)]
    for fault in options.inject:
        if fault.name in ("wrong-answer", "open-door"):
            command += ["--inject", fault.name]
    token_of(options)  # made before both need it
    with (folder / "tensor_service_server.log").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            preexec_fn=processes.die_with_parent,  # noqa: PLW1509 - no thread holds a lock
        )  # fmt: skip


def _place(process: subprocess.Popen[bytes], file: Path) -> dict[str, Any]:
    """Wait until a started server says where it is; one that ended does not."""
    deadline = time.monotonic() + STARTING
    while time.monotonic() < deadline and process.poll() is None:
        try:
            place: dict[str, Any] = json.loads(file.read_text())
        except (OSError, ValueError):
            time.sleep(0.05)
            continue
        if place.get("pid") == process.pid:
            return place
        time.sleep(0.05)
    how = "did not start in time" if process.returncode is None else f"ended: {process.returncode}"
    raise NotPassed("ERROR", "could_not_run", f"the server {how}, see tensor_service_server.log")


def _killed(
    session: Session, device: str, here: Client, process: subprocess.Popen[bytes]
) -> dict[str, Any]:
    """Kill the server while it reads a request: a plain error, soon; then it is brought back."""
    start = time.perf_counter()
    connection = here.connection()
    connection.putrequest("POST", "/execute")
    connection.putheader("Authorization", f"Bearer {here.token}")
    connection.putheader("Content-Length", "1024")
    connection.endheaders(b"RVT1")
    process.kill()
    process.wait()
    try:
        connection.getresponse()
    except OSError as error:
        said = type(error).__name__
    else:
        raise NotPassed("FAIL", "wrong_answer", "a dead server answered")
    noticed = (time.perf_counter() - start) * 1e3
    here.close()
    try:
        here.health()
    except Unreachable:
        pass
    else:
        raise NotPassed("FAIL", "wrong_answer", "a dead server is healthy")
    _place(_start_server(session, device, here.port), published(session.options))
    torch = session.need_torch()
    result, _ = here.execute(torch, ["neg"], torch.ones(4))
    if result.tolist() != [-1.0] * 4:
        raise NotPassed("FAIL", "wrong_answer", "the server that came back is wrong")
    return {"client saw": said, "noticed_ms": round(noticed, 3), "brought back": True}


def _end_servers() -> None:
    mine = [known for known in processes.below(os.getpid()) if _is_server(known)]
    processes.end(mine, grace=2.0)


def _is_server(known: processes.Identity) -> bool:
    try:
        words = Path(f"/proc/{known.pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"serve" in words


def report_on(session: Session) -> None:
    """Read the results of a folder, and write what they say together."""
    options = session.options
    folder = Path(options.folder or options.report_dir)
    results = analysis.load(folder)
    if not results:
        reason = f"no *_test_results_*.json in {folder}"
        raise NotPassed("ERROR", "no_result", reason)
    found = analysis.analyse(results)
    files.write(folder / "comprehensive_report.json", {"results": results, "analysis": found})
    (folder / "test_analysis_report.md").write_text(markdown(found))
    session.say("SERVICE", f"report: {folder / 'test_analysis_report.md'}")
    where = {"details": {"passed": found["passed"], "failed": found["failed"]}}
    if found["cut_short"]:
        reason = f"cut short: {', '.join(found['cut_short'])}"
        session.report.add(
            "tensor_service.report", "ERROR", code="no_result", reason=reason, **where
        )
    elif found["failed"] and options.mode == "report":
        reason = f"not passed: {', '.join(found['failed'])}"
        session.report.add(
            "tensor_service.report", "FAIL", code="wrong_answer", reason=reason, **where
        )
    else:
        session.report.add("tensor_service.report", "PASS", **where)
