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
from _burn.soak import Keeper
from _burn.supervisor import Supervisor, signals_noted
from _harness import files
from _harness.flags import positive, whole
from _harness.main import Payload, Session, run
from _telemetry.fake import Fake
from _telemetry.sampler import Load, Sampler
from contract.catalogue import OF_TELEMETRY, OF_WEAR
from contract.nvidia import open_source
from contract.readings import Reading
from contract.verdicts import NotPassed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from _burn.supervisor import Worker
    from _burn.torch_burn import Job
    from contract.readings import Source

DTYPES = ("bfloat16", "float16", "float32", "tf32", "float64")
QUICK, USUAL = 10.0, 60.0  # seconds
TURN_S = 30.0
WARM_UP = 0.1  # of the duration, at most five seconds
YEARS = 10 * 365 * 86400.0  # seconds: as good as no timeout
MARGIN = 300.0  # seconds over the duration: starting, and the last comparison


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this payload."""
    parser.add_argument("--engine", choices=["auto", "torch", "gpu-burn"], default="auto")
    parser.add_argument("--memory", type=plan.memory, help="to fill: 90%% or MiB (512, 2G)")
    parser.add_argument("--dtype", choices=DTYPES, help="default: bfloat16 where it is native")
    parser.add_argument(
        "--rotate", type=positive, nargs="?", const=TURN_S, metavar="SECONDS",
        help="burn all types in turn, so long each (30), with other factors each time",
    )  # fmt: skip
    parser.add_argument("--with-p2p", action="store_true", help="copies to a peer beside it")
    parser.add_argument("--size", type=whole, help="of the matrices (default: what fits)")
    parser.add_argument("--workers", type=whole, default=1, help="how many burn on a CPU")
    parser.add_argument("--mode", choices=["constant", "pulse"], default="constant")
    parser.add_argument("--silence", type=positive, default=60.0, help="seconds: longer is hung")
    parser.add_argument("--fetch", action="store_true", help="clone gpu-burn to compile it")
    parser.add_argument("--endless", action="store_true", help="until stopped, without --duration")
    parser.add_argument(
        "--soak", action="store_true", help="go on where a run that was cut short ended"
    )
    background.add_flags(parser)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Settle the duration, and the timeout that is no use below it."""
    options.endless = options.endless and options.duration is None
    _refuse(parser, options)
    if options.endless:
        options.timeout = YEARS
        return
    options.duration = options.duration or (QUICK if options.quick else USUAL)
    options.timeout = max(options.timeout, options.duration + MARGIN)


def _refuse(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with 2 for flags that contradict each other."""
    is_program = options.engine == "gpu-burn"
    if is_program and (vain := _torch_only(options)):
        parser.error(f"gpu-burn has no {vain[0]}: leave it out, or take --engine torch")
    if options.rotate and options.dtype:
        parser.error("--rotate burns all types: leave --dtype out")
    if options.soak and options.endless:
        parser.error("--soak needs --duration: it says when it is over")
    if is_program and options.endless:
        parser.error("gpu-burn needs --duration: stopped early it does not say what it found")


def body(session: Session) -> None:
    """Burn with the engine there is, watch the telemetry, and judge both."""
    devices = session.devices()
    torch = session.need_torch()
    jobs = plan.jobs(torch, devices, session.options)
    uuids = _uuids(session, jobs)
    program = _engine(session, torch, devices)
    with _telemetry(session, uuids) as sampler:
        if program:
            _burn_with_program(session, program, uuids, sampler)
        else:
            _burn_with_torch(session, jobs, uuids, sampler)
    _judge_telemetry(session, uuids, sampler)


def _uuids(session: Session, jobs: list[Job]) -> dict[str, str]:
    """Return the UUIDs by which the driver knows the devices, by their labels."""
    uuids = {job.label: job.label for job in jobs}
    for device in session.report.devices:
        label = f"cuda:{device['index']}"
        if label in uuids:
            uuids[label] = str(device.get("uuid") or label)
    return uuids


def _engine(session: Session, torch: Any, devices: list[str]) -> Path | None:
    """Choose: a gpu-burn to run, or None for torch."""
    engine = session.options.engine
    on_cpu = devices == ["cpu"]
    torch_only = on_cpu or session.options.endless or _torch_only(session.options)
    if engine == "torch" or (engine == "auto" and torch_only):
        return None
    capability = "7.5" if on_cpu else ".".join(map(str, torch.cuda.get_device_capability()))
    program, notes = find_gpu_burn(os.environ, capability, fetch=session.options.fetch)
    for note in notes:
        session.say("STRESS", note)
    if program is None:
        if engine == "gpu-burn":
            raise NotPassed("ERROR", "engine_missing", notes[-1])
        session.say("STRESS", "Using continuous PyTorch stress test instead")
    return program


def _torch_only(options: argparse.Namespace) -> list[str]:
    """Name the flags that gpu-burn could not follow."""
    asked = {
        "--dtype": options.dtype,
        "--size": options.size,
        "--rotate": options.rotate,
        "--with-p2p": options.with_p2p,
        "--mode": options.mode != "constant",
        "--soak": options.soak,
        "--inject": any(fault.name not in (*OF_TELEMETRY, *OF_WEAR) for fault in options.inject),
    }
    return [flag for flag, value in asked.items() if value]


@contextlib.contextmanager
def _telemetry(session: Session, uuids: dict[str, str]) -> Iterator[Sampler | None]:
    """Watch all devices; None where nothing reports of them."""
    faults = {
        fault.name: int(fault.where.get("value", "1"), 0)
        for fault in session.options.inject
        if fault.name in OF_TELEMETRY
    }
    source: Source | None = Fake(list(uuids.values()), faults) if faults else None
    if source is None and session.report.devices:
        source = open_source(list(uuids.values()))
    if source is None:
        yield None
        return
    folder = Path(session.options.report_dir)
    with files.opened(folder / "telemetry.jsonl") as log, Sampler(source, log) as sampler:
        yield sampler


def _burn_with_torch(
    session: Session, jobs: list[Job], uuids: dict[str, str], sampler: Sampler | None
) -> None:
    """Burn until the time is over or a signal comes; judge what was done in any case."""
    soak = _soak(session, uuids)
    seconds = soak.before.left_s if soak else session.options.duration
    with signals_noted() as interrupted:
        supervisor = Supervisor(jobs, session.options.silence, interrupted)
        tick = _ticking(session, supervisor, uuids, sampler, soak)
        supervisor.start()
        if soak:
            soak.begin()
        _burn_for(supervisor, seconds, tick, sampler)
        supervisor.stop()
    _add_workers(session, supervisor.workers)
    if soak:
        soak.add(session.report, supervisor.workers)
    if interrupted.is_set() and seconds is not None:
        raise KeyboardInterrupt


def _burn_for(
    supervisor: Supervisor,
    seconds: float | None,
    tick: Callable[[], None],
    sampler: Sampler | None,
) -> None:
    """Let the workers warm up, and then count; without `seconds` there is no end but a signal."""
    warm_up = min(5.0, WARM_UP * (seconds or 60.0))
    supervisor.burn(warm_up, tick)
    for worker in supervisor.workers:
        worker.restart()
    if sampler:
        sampler.restart()
    supervisor.burn(seconds and seconds - warm_up, tick)
    if sampler:
        sampler.freeze()


def _ticking(
    session: Session,
    supervisor: Supervisor,
    uuids: dict[str, str],
    sampler: Sampler | None,
    soak: Keeper | None,
) -> Callable[[], None]:
    """Return what shows and keeps the state of the burn, to be called again and again."""
    live = Live(Path(session.options.report_dir), session.say)

    def tick() -> None:
        if soak:
            soak.keep(supervisor.workers)
        readings = sampler.latest() if sampler else {}
        live.show([_state(worker, uuids, readings) for worker in supervisor.workers])

    return tick


def _soak(session: Session, uuids: dict[str, str]) -> Keeper | None:
    """Return what keeps the count of a soak, and say from where it goes on."""
    if not session.options.soak:
        return None
    soak = Keeper(Path(session.options.report_dir), session.options.duration, uuids)
    if soak.before.runs:
        done, asked = soak.before.seconds, soak.before.asked_s
        text = f"the soak goes on after {done:.0f} of {asked:.0f} s in {soak.before.runs} run(s)"
        session.say("STRESS", text)
    return soak


def _add_workers(session: Session, workers: list[Worker]) -> None:
    """Judge each device's burn, then the devices against each other."""
    for worker in workers:
        worker.settle()
        verdicts.add_worker(session.report, worker)
        for share in worker.shares or ([0.5] if session.faults.get("contended") else []):
            session.watch.add_share(worker.job.label, share)
    if session.options.with_p2p:
        verdicts.add_copies(session.report, workers)
    models = session.report.models
    verdicts.add_digests(session.report, workers, models)
    slowed = any(fault.name == "slow" for fault in session.options.inject)
    if session.report.devices or slowed:  # CPUs are shared
        verdicts.add_peers(session.report, verdicts.rates_of_workers(workers, models))


def _state(worker: Worker, uuids: dict[str, str], readings: dict[str, Reading]) -> dict[str, Any]:
    label = worker.job.label
    return state(
        label,
        readings.get(uuids[label], Reading()),
        tflops=worker.rates[-1] if worker.rates else None,
        products=worker.products,
        errors=worker.errors,
        state=worker.state,
    )


def _burn_with_program(
    session: Session, program: Path, uuids: dict[str, str], sampler: Sampler | None
) -> None:
    """Burn with gpu-burn, and judge its text."""
    folder = Path(session.options.report_dir)
    live = Live(folder, session.say)
    seconds, log = session.options.duration, folder / "gpu_burn.log"
    period = gpu_burn.Period(sampler, log, seconds)

    def tick() -> None:
        period.follow()
        readings = sampler.latest() if sampler else {}
        live.show([state(name, readings.get(uuids[name], Reading())) for name in uuids])

    burned = gpu_burn.burn(program, seconds, session.options.memory or 0.9, log, tick)
    gpu_burn.add(session.report, burned, list(uuids), log)
    verdicts.add_peers(session.report, gpu_burn.rates(burned, list(uuids), session.report.models))


def _judge_telemetry(session: Session, uuids: dict[str, str], sampler: Sampler | None) -> None:
    """Add what each device reported of itself, and say of which one nothing was."""
    report = session.report
    if sampler is None:
        missing = "nvml_unavailable" if report.devices else "unsupported"
        reason = "no telemetry: neither pynvml nor nvidia-smi knows these devices"
        report.add("telemetry", "SKIP", code=missing, reason=reason)
        return
    loads = {label: load for label, uuid in uuids.items() if (load := sampler.loads.get(uuid))}
    steady = session.options.mode == "constant" and not session.options.rotate
    for label in uuids:
        verdicts.add_telemetry(report, label, loads.get(label, Load()), steady=steady)
    report.extra["telemetry"] = {
        "file": "telemetry.jsonl",
        "source": sampler.source.name,
        "per_device": [{"device": label, **load.as_json()} for label, load in loads.items()],
    }


PAYLOAD = Payload(
    "stress",
    "Load every GPU without gaps, and see whether each stays right and cool.",
    body,
    add_flags=add_flags,
    check=check,
    ends_with_job=lambda options: options.endless,
)

if __name__ == "__main__":
    code = background.controlled(sys.argv[1:])
    if code is not None:
        sys.exit(code)
    run(PAYLOAD)
