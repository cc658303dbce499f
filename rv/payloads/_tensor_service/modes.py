"""The modes of `tensor_service.py`: a server, a client, both, and the report on their results."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _harness import files
from _processes import processes
from contract.verdicts import NotPassed

from . import checks, report, server
from .client import Client, Unreachable

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from _harness.main import Session

MIB = 2**20
SIZES = [4096 * 4**n for n in range(9)]  # bytes: 4 KiB to 256 MiB
QUICK_SIZES = SIZES[:6]  # to 4 MiB
STARTING_S = 120.0  # a cold file system reads torch slowly


def serve(session: Session) -> None:
    """Serve until asked to finish, for --duration seconds, or until a signal."""
    device = _device(session)
    with _listening(session, device) as opened:
        try:
            opened.state.finished.wait(session.options.duration)
        except KeyboardInterrupt:
            session.say("SERVICE", "stopped")
    stats = opened.state.health()["stats"]
    session.report.add("tensor_service.serve", "PASS", device=device, details=stats)


def client(session: Session) -> None:
    """Test a server that runs somewhere."""
    _test_client(session, _connect(session.options))


def pair(session: Session) -> None:
    """Test both sides: in one job of two tasks on two nodes, or both on this one."""
    rank = os.environ.get("SLURM_PROCID")
    alone = rank is None or int(os.environ.get("SLURM_NTASKS", "1")) < 2
    if alone or session.options.host or session.options.here:
        _pair_here(session)
    elif rank == "0":
        _serving_task(session)
    elif rank == "1":
        remote = _connect(session.options)
        _test_client(session, remote)
        remote.ask("POST", "/finish")
    else:
        session.is_found_elsewhere = True
        session.report.add("tensor_service.pair", "SKIP", code="not_asked", reason="a third task")


def report_on(session: Session) -> None:
    """Read the results of a folder; write `comprehensive_report.json` and a report for people."""
    folder = Path(session.options.folder or session.options.report_dir)
    results = report.load(folder)
    if not results:
        raise NotPassed("ERROR", "no_result", f"no *_test_results_*.json in {folder}")
    analysis = report.analyse(results)
    files.write(folder / "comprehensive_report.json", {"results": results, "analysis": analysis})
    files.write_text(folder / "test_analysis_report.md", report.markdown(analysis))
    session.say("SERVICE", f"report: {folder / 'test_analysis_report.md'}")
    verdict = {"status": "PASS"}
    if analysis["cut_short"]:
        reason = f"cut short: {', '.join(analysis['cut_short'])}"
        verdict = {"status": "ERROR", "code": "no_result", "reason": reason}
    elif analysis["failed"] and session.options.mode == "report":
        reason = f"not passed: {', '.join(analysis['failed'])}"
        verdict = {"status": "FAIL", "code": "wrong_answer", "reason": reason}
    details = {"passed": analysis["passed"], "failed": analysis["failed"]}
    session.report.add("tensor_service.report", **verdict, details=details)


def _serving_task(session: Session) -> None:
    """Serve and test the server's side, then wait for the client's task to finish."""
    device = _device(session)
    with _listening(session, device) as opened:
        local = Client(str(opened.server_address[0]), opened.port, opened.state.token)
        _test_server(session, device, local)
        finished = opened.state.wait(session.options.wait)
    if not finished:
        silence = f"nothing was heard of the client for {session.options.wait:g} s"
        raise NotPassed("FAIL", "client_died", f"{silence}, and it did not finish its tests")


def _pair_here(session: Session) -> None:
    """Run the server as a process of its own, test both sides, kill it, and bring it back."""
    options, device = session.options, _device(session)
    started: list[subprocess.Popen[bytes]] = []
    try:
        address = _start_server(session, device, 0, started)
        local = Client(address["host"], address["port"], _token(options), options.patience)
        _test_server(session, device, local)
        suite = _test_client(session, local, write=options.quick)
        if not options.quick:
            if local.port != 1:
                suite.run("server_killed_mid_request", _killed, session, device, local, started)
            suite.write(Path(options.report_dir))
    finally:
        for process in started:
            process.kill()
            process.wait()
    report_on(session)


def _killed(
    session: Session, device: str, local: Client, started: list[subprocess.Popen[bytes]]
) -> dict[str, Any]:
    """Kill the server while it reads a request: a plain error, soon; then it is brought back."""
    connection = local.announce(1024, b"RVT1")
    start_s = time.perf_counter()
    started[-1].kill()
    started[-1].wait()
    try:
        connection.getresponse()
    except OSError as error:
        error_name = type(error).__name__
    else:
        raise NotPassed("FAIL", "wrong_answer", "a dead server answered")
    noticed_ms = (time.perf_counter() - start_s) * 1e3
    local.close()
    try:
        local.health()
    except Unreachable:
        pass
    else:
        raise NotPassed("FAIL", "wrong_answer", "a dead server is healthy")
    _start_server(session, device, local.port, started)
    torch = session.need_torch()
    result, *_ = local.execute(torch, ["neg"], torch.ones(4))
    checks.require(result.tolist() == [-1.0] * 4, "the server that came back is wrong")
    return {"client saw": error_name, "noticed_ms": round(noticed_ms, 3), "brought back": True}


def _start_server(
    session: Session, device: str, port: int, started: list[subprocess.Popen[bytes]]
) -> dict[str, Any]:
    """Start this program as a server that ends with this process; return its address."""
    options, folder = session.options, Path(session.options.report_dir)
    _token(options)  # made before both sides need it
    _published(options).unlink(missing_ok=True)
    flags = {
        "--host": options.host or "127.0.0.1",
        "--port": port,
        "--device": device.partition(":")[0],
        "--report-dir": folder,
        "--report-name": "tensor_service_server_result.json",
        "--limit": options.limit,
        "--token-file": _token_file(options),
        "--publish": _published(options),
        "--timeout": options.timeout,
    }
    command = [sys.executable, sys.argv[0], "serve"]
    for flag, value in flags.items():
        command += [flag, str(value)]
    for fault in options.inject:
        if fault.name != "dead-server":
            command += ["--inject", fault.name]
    with files.opened(folder / "tensor_service_server.log", "ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            preexec_fn=processes.die_with_parent,  # noqa: PLW1509 - no thread holds a lock
        )  # fmt: skip
    started.append(process)
    address = _wait_for(_published(options), STARTING_S, process)
    if address is None:
        code = process.returncode
        how = "did not start in time" if code is None else f"ended: {code}"
        reason = f"the server {how}, see tensor_service_server.log"
        raise NotPassed("ERROR", "could_not_run", reason)
    return address


@contextmanager
def _listening(session: Session, device: str) -> Iterator[server.Server]:
    """Serve in a thread and publish the address. Raises NotPassed where it cannot be had."""
    options = session.options
    session.is_found_elsewhere = True
    faults = {fault.name for fault in options.inject}
    secret, host = _token(options), options.host or server.internal_address()
    state = server.State(session.need_torch(), device, secret, int(options.limit * MIB), faults)
    try:
        opened = server.Server(host, options.port, state)
    except OSError as error:
        reason = f"cannot listen on {host}:{options.port}: {error.strerror}"
        raise NotPassed("ERROR", "could_not_run", reason) from error
    with opened:
        threading.Thread(target=opened.serve_forever, daemon=True).start()
        address = opened.address()
        files.write(_published(options), address)
        where = f"{address['host']}:{address['port']}"
        session.say("SERVICE", f"listening on {where}, device {device}")
        yield opened
        opened.shutdown()


def _connect(options: Namespace) -> Client:
    """Find the server: `--server HOST:PORT` or the file it published. Raises NotPassed."""
    if options.server and ":" in options.server and not Path(options.server).exists():
        host, _, port = options.server.rpartition(":")
        if not port.isdecimal():
            raise NotPassed("ERROR", "could_not_run", f"{options.server} is not HOST:PORT")
        return Client(host, int(port), _token(options), options.patience)
    file = Path(options.server) if options.server else _published(options)
    address = _wait_for(file, options.wait)
    if address is None:
        reason = f"no server wrote {file} within {options.wait:g} s"
        raise NotPassed("FAIL", "server_unreachable", reason)
    secret = _token(options)
    if hashlib.sha256(secret.encode()).hexdigest() != address["token_sha256"]:
        reason = f"the token is not that of the server of {file}"
        raise NotPassed("ERROR", "could_not_run", reason)
    return Client(address["host"], address["port"], secret, options.patience)


def _wait_for(
    file: Path, patience_s: float, process: subprocess.Popen[bytes] | None = None
) -> dict[str, Any] | None:
    """Wait until a server, or this process, published its address; None where it did not."""
    deadline_s = time.monotonic() + patience_s
    while time.monotonic() < deadline_s and (process is None or process.poll() is None):
        try:
            address: dict[str, Any] = json.loads(file.read_text())
            return address
        except (OSError, ValueError):
            time.sleep(0.05)
    return None


def _test_server(session: Session, device: str, local: Client) -> None:
    suite = checks.Suite(session, "server")
    checks.run_server_tests(suite, session.need_torch(), device, local, STARTING_S)
    suite.write(Path(session.options.report_dir))


def _test_client(session: Session, remote: Client, *, write: bool = True) -> checks.Suite:
    options, suite = session.options, checks.Suite(session, "client")
    most = options.limit * MIB * 0.9
    sizes = [size for size in (QUICK_SIZES if options.quick else SIZES) if size < most]
    if any(fault.name == "dead-server" for fault in options.inject):
        remote.port = 1  # where nothing listens
        options.wait = 1.0
    checks.run_client_tests(suite, session.need_torch(), remote, sizes, options.wait)
    if write:
        suite.write(Path(options.report_dir))
    return suite


def _device(session: Session) -> str:
    """Choose the first GPU; a server without one works on the CPU, and that is printed."""
    if session.options.device == "cpu":
        return "cpu"
    try:
        return session.devices()[0]
    except NotPassed as outcome:
        if outcome.status != "SKIP":
            raise
    session.say("SERVICE", "no GPU was asked for: the server works on the CPU")
    return "cpu"


def _token_file(options: Namespace) -> Path:
    return Path(options.token_file or Path(options.report_dir) / "tensor_service.token")


def _token(options: Namespace) -> str:
    return server.token(_token_file(options))


def _published(options: Namespace) -> Path:
    return Path(options.publish or Path(options.report_dir) / "tensor_service.json")
