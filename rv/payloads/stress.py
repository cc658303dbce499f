#!/usr/bin/env python3
"""Load every GPU without gaps for as long as wanted, and see whether each stays right and cool.

    stress.py --duration 600                    # all GPUs, ten minutes
    stress.py --detach; stress.py --status; stress.py --stop

gpu-burn where it is there or can be compiled, else torch: one fixed product again and again, into a
ring of buffers over most of the memory, each copy compared bit by bit.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _burn import background, gpu_burn, plan, verdicts
from _burn.background import Live, state
from _burn.build import find_gpu_burn
from _burn.supervisor import Supervisor, noted
from _harness.flags import positive, whole
from _harness.main import Payload, Session, run
from _telemetry import Reading, Sampler, open_source
from _telemetry.fake import FAULTS, Fake
from contract.verdicts import NotPassed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from _burn.torch_burn import Job
    from _telemetry import Source

DTYPES = ("bfloat16", "float16", "float32", "tf32", "float64")
QUICK, USUAL = 10.0, 60.0  # seconds
WARM_UP = 0.1  # of the duration, at most five seconds
YEARS = 10 * 365 * 86400.0  # seconds: as good as no timeout
MARGIN = 300.0  # seconds over the duration: starting, and the last comparison


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this payload."""
    parser.add_argument("--engine", choices=["auto", "torch", "gpu-burn"], default="auto")
    parser.add_argument(
        "--memory", type=plan.memory, help="to fill: a share (90%%) or MiB (512, 2G)"
    )
    parser.add_argument("--dtype", choices=DTYPES, help="default: bfloat16 where it is native")
    parser.add_argument("--size", type=whole, help="of the matrices (default: what fits)")
    parser.add_argument("--workers", type=whole, default=1, help="how many burn on a CPU")
    parser.add_argument("--mode", choices=["constant", "pulse"], default="constant")
    parser.add_argument("--silence", type=positive, default=60.0, help="seconds: longer is hung")
    parser.add_argument("--fetch", action="store_true", help="clone gpu-burn to compile it")
    parser.add_argument("--endless", action="store_true", help="until stopped, without --duration")
    background.add_flags(parser)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Settle the duration, and the timeout that is no use below it."""
    options.endless = options.endless and options.duration is None
    if options.engine == "gpu-burn" and (vain := _torch_only(options)):
        parser.error(f"gpu-burn has no {vain[0]}: leave it out, or take --engine torch")
    if options.endless:
        if options.engine == "gpu-burn":
            parser.error("gpu-burn needs --duration: stopped early it does not say what it found")
        options.timeout = YEARS
        return
    options.duration = options.duration or (QUICK if options.quick else USUAL)
    options.timeout = max(options.timeout, options.duration + MARGIN)


def body(session: Session) -> None:
    """Burn with the engine there is, watch the telemetry, and judge both."""
    devices = session.devices()
    torch = session.need_torch()
    jobs = plan.jobs(torch, devices, session.options)
    names = [plan.label(job) for job in jobs]
    program = _engine(session, torch, devices)
    with _telemetry(session, names) as sampler:
        if program:
            _burn_with_program(session, program, devices, sampler)
        else:
            _burn_with_torch(session, jobs, sampler)
    _judge_telemetry(session, names, sampler)


def _engine(session: Session, torch: Any, devices: list[str]) -> Path | None:
    """Choose: a gpu-burn to run, or None for torch."""
    wanted = session.options.engine
    on_cpu = devices == ["cpu"]
    own = on_cpu or session.options.endless or _torch_only(session.options)
    if wanted == "torch" or (wanted == "auto" and own):
        return None
    capability = "7.5" if on_cpu else ".".join(map(str, torch.cuda.get_device_capability()))
    found = find_gpu_burn(os.environ, capability, fetch=session.options.fetch)
    for note in found.notes:
        session.say("STRESS", note)
    if found.program is None:
        if wanted == "gpu-burn":
            raise NotPassed("ERROR", "engine_missing", found.notes[-1])
        session.say("STRESS", "Using continuous PyTorch stress test instead")
    return found.program


def _torch_only(options: argparse.Namespace) -> list[str]:
    """Name the flags that gpu-burn could not follow."""
    asked = {
        "--dtype": options.dtype,
        "--size": options.size,
        "--mode": options.mode != "constant",
        "--inject": any(fault.name not in FAULTS for fault in options.inject),
    }
    return [flag for flag, value in asked.items() if value]


@contextlib.contextmanager
def _telemetry(session: Session, names: list[str]) -> Iterator[Sampler | None]:
    """Watch all devices; None where nothing tells of them."""
    uuids = [_uuid(session, name) for name in names]
    told = {f.name: int(f.where.get("value", "1"), 0) for f in session.options.inject}
    faults = {name: value for name, value in told.items() if name in FAULTS}
    source: Source | None = Fake(uuids, faults) if faults else None
    if source is None and session.report.devices:
        source = open_source(uuids)
    if source is None:
        yield None
        return
    folder = Path(session.options.report_dir)
    with (folder / "telemetry.jsonl").open("w") as log, Sampler(source, log) as sampler:
        yield sampler


def _uuid(session: Session, name: str) -> str:
    """Give a device's UUID, by which the driver knows it."""
    for device in session.report.devices:
        if name == f"cuda:{device['index']}":
            return str(device.get("uuid") or name)
    return name


def _burn_with_torch(session: Session, jobs: list[Job], sampler: Sampler | None) -> None:
    """Burn until the time is over or a signal comes; judge what was done in any case."""
    live = Live(Path(session.options.report_dir) / "stress_heartbeat.json", session.say)
    seconds = session.options.duration
    with noted() as told:
        team = Supervisor(jobs, session.options.silence, told)

        def tick() -> None:
            readings = sampler.latest() if sampler else {}
            live.show([_state(session, worker, readings) for worker in team.workers])

        team.start()
        warm_up = min(5.0, WARM_UP * (seconds or 60.0))
        team.burn(warm_up, tick)
        if sampler:
            sampler.restart()
        team.burn(seconds and seconds - warm_up, tick)
        if sampler:
            sampler.freeze()
        team.stop()
    _judge_team(session, team)
    if told.is_set() and seconds is not None:
        raise KeyboardInterrupt


def _judge_team(session: Session, team: Supervisor) -> None:
    for worker in team.workers:
        verdicts.add_worker(session.report, worker)
    models = {f"cuda:{device['index']}": device["name"] for device in session.report.devices}
    verdicts.add_digests(session.report, team.workers, models)


def _state(session: Session, worker: Any, readings: dict[str, Reading]) -> dict[str, Any]:
    name = plan.label(worker.job)
    reading = readings.get(_uuid(session, name), Reading())
    work = {
        "tflops": worker.rates[-1] if worker.rates else None,
        "products": worker.products,
        "errors": worker.errors,
        "state": worker.state,
    }
    return state(name, reading, **work)


def _burn_with_program(
    session: Session, program: Path, devices: list[str], sampler: Sampler | None
) -> None:
    """Burn with gpu-burn, and judge its text."""
    folder = Path(session.options.report_dir)
    live = Live(folder / "stress_heartbeat.json", session.say)
    seconds, log = session.options.duration, folder / "gpu_burn.log"
    period = gpu_burn.Period(sampler, log, seconds)

    def tick() -> None:
        period.follow()
        readings = sampler.latest() if sampler else {}
        live.show([state(d, readings.get(_uuid(session, d), Reading())) for d in devices])

    memory = session.options.memory or 0.9
    burned, hung = gpu_burn.burn(program, seconds, memory, log, tick)
    if hung:
        burned.tested = None
        burned.elapsed = min(burned.elapsed, 99.0)
    gpu_burn.add(session.report, burned, devices, log)


def _judge_telemetry(session: Session, names: list[str], sampler: Sampler | None) -> None:
    """Add what each device said of itself; saying nothing is told, and no fault."""
    report = session.report
    if sampler is None:
        missing = "nvml_unavailable" if report.devices else "unsupported"
        reason = "no telemetry: neither pynvml nor nvidia-smi knows these devices"
        report.add("telemetry", "SKIP", code=missing, reason=reason)
        return
    steady = session.options.mode == "constant"
    for name in names:
        load = sampler.loads.get(_uuid(session, name))
        if load is not None and load.samples:
            verdicts.add_telemetry(report, name, load, steady=steady)
    loads = {name: sampler.loads.get(_uuid(session, name)) for name in names}
    report.extra["telemetry"] = {
        "file": "telemetry.jsonl",
        "source": sampler.source.name,
        "per_device": [{"device": n, **load.as_json()} for n, load in loads.items() if load],
    }


PAYLOAD = Payload(
    "stress",
    "Load every GPU without gaps, and see whether each stays right and cool.",
    body,
    faults=("bitflip", "digest", "hang", "crash", *FAULTS),
    add_flags=add_flags,
    check=check,
)

if __name__ == "__main__":
    code = background.controlled(sys.argv[1:])
    if code is not None:
        sys.exit(code)
    run(PAYLOAD)
