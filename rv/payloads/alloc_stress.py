#!/usr/bin/env python3
"""Many workers on few GPUs: does each get its own, all of it, and is all given back.

    python alloc_stress.py                                      # two workers a GPU, then launches
    python alloc_stress.py --workers 12 --duration 90 --memory 256
    python alloc_stress.py --skip-stress --launch-cmd 'python x.py --gpu_ids {gpu_ids}'

Workers are started afresh, round robin over the GPUs of the inherited mask, each bound to one by
its UUID; they work at the same time. Then a program is given one GPU, all, some, and none.
Passed: 80 % of the workers, half of the launches, all GPUs alike, and nothing left behind.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from _harness.flags import positive, whole
from _harness.main import Payload, Session, run
from _workers import launches, verdicts
from _workers.slots import Slot, cpus, gpus, round_robin
from _workers.workers import GRACE_S, Order, run_workers
from contract.catalogue import OF_WORKERS
from contract.nvidia import recorded, used_memory_mib
from contract.verdicts import NotPassed

if TYPE_CHECKING:
    import argparse

    from _workers.launches import Launched

PRESETS = {
    "basic": {"duration": 30, "memory": 128},
    "memory": {"workers": 4, "duration": 60, "memory": 1024},
    "multi": {"workers": 12, "duration": 90, "memory": 256},
    "ultra": {"workers": 8, "duration": 120, "memory": 512},
    "ci": {"duration": 15, "memory": 64},
}
DEFAULTS = {"duration": 60.0, "memory": 256}
QUICK_DEFAULTS = {"duration": 5.0, "memory": 256}
CPU_DEFAULTS = {"duration": 2.0, "memory": 8}
MOST_WORKERS = 1024
START_WITHIN_S = 120.0
LAUNCH_TIMEOUT_S = 120.0
LAUNCHES = 0.5  # that must succeed
SCALING_S = 3.0


def body(session: Session) -> None:
    """Stress, then launch."""
    session.need_torch()
    devices = session.devices()
    mask = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    on_cpu = devices == ["cpu"]
    slots = cpus() if on_cpu else gpus(session.report.devices, mask)
    session.say("ENV", "slots " + "  ".join(f"{slot.name}={slot.key}" for slot in slots))
    made: list[Path] = []
    for name, wanted, part in (
        ("stress", not session.options.skip_stress, _stress),
        ("launch", not session.options.skip_launch, _launch),
    ):
        if not wanted:
            session.report.add(f"alloc.{name}", "SKIP", code="not_asked", reason=f"--skip-{name}")
            continue
        with session.attempt(f"alloc.{name}"):
            part(session, slots, made)
    if session.options.cleanup:
        for path in made:
            path.unlink(missing_ok=True)


def _stress(session: Session, slots: list[Slot], made: list[Path]) -> None:
    """Let the workers work; then look at success, isolation, balance and what is left."""
    options, on_cpu = session.options, slots[0].kind == "cpu"
    _fill_in_defaults(options, on_cpu=on_cpu)
    workers = options.workers or 2 * len(slots)
    _require_memory(session, slots, workers)
    used = used_memory_mib() if not on_cpu else {}
    before = {slot.key: used[slot.key] for slot in slots if slot.key in used}  # others' are others'
    orders = _orders(session, slots, workers)
    readings = Path(options.telemetry) if options.telemetry else None
    made += [readings] if readings else []
    with recorded(readings):
        results = run_workers(orders, min(START_WITHIN_S, session.left()))
    verdicts.workers(session, results)
    verdicts.right(session, results)
    verdicts.progress(session, slots, results)
    verdicts.isolation(session, results)
    verdicts.operations(session, slots, results)
    verdicts.balance(session, slots, orders, results)
    if _is_scaling_asked(session, slots):
        verdicts.scaling(session, slots, results)
    verdicts.leaks(session, orders[0].mark, before)
    verdicts.neighbours(session, slots)


def _fill_in_defaults(options: argparse.Namespace, *, on_cpu: bool) -> None:
    defaults = QUICK_DEFAULTS if options.quick else DEFAULTS
    for name, value in (CPU_DEFAULTS if on_cpu else defaults).items():
        if getattr(options, name) is None:
            setattr(options, name, value)


def _require_memory(session: Session, slots: list[Slot], workers: int) -> None:
    """Raise NotPassed where the workers of a slot together ask for more than it has."""
    each = -(-workers // len(slots)) * session.options.memory
    for slot, free in _free(session, slots):
        if each > free:
            reason = f"{slot}: its workers need {each} MiB together, {free} MiB are free"
            advice = "use a smaller --memory or fewer --workers"
            raise NotPassed("ERROR", "out_of_memory", f"{reason}; {advice}", device=slot)


def _free(session: Session, slots: list[Slot]) -> list[tuple[str, int]]:
    if slots[0].kind == "cpu":
        words = Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()
        return [("cpu", int(words[0]) // 1024 // len(slots))]
    properties = map(session.torch.cuda.get_device_properties, range(len(slots)))
    return [(slot.name, of.total_memory >> 20) for slot, of in zip(slots, properties, strict=True)]


def _orders(session: Session, slots: list[Slot], workers: int) -> list[Order]:
    """Give each worker its slot, and those of the first slot a time alone: what one slot does."""
    places, seconds = round_robin(slots, workers), session.options.duration
    if session.faults.get("unbalanced"):
        places = [slots[0]] * workers
    is_compared = _is_scaling_asked(session, slots) and len(slots) > 1
    first_s = min(SCALING_S, seconds) if is_compared else 0.0
    mark, orders = uuid.uuid4().hex, []
    for number, slot in enumerate(places):
        faults = tuple(name for name in OF_WORKERS if session.faults.get(name, worker=number))
        alone_s = first_s if slot == slots[0] else 0.0
        patience_s = START_WITHIN_S + seconds + first_s + GRACE_S
        orders.append(
            Order(number, slot, session.options.memory, seconds, patience_s, mark, faults, alone_s)
        )
    return orders


def _is_scaling_asked(session: Session, slots: list[Slot]) -> bool:
    """Return whether one slot is compared with all: on GPUs always, elsewhere where it is asked."""
    return session.options.scaling or (len(slots) > 1 and slots[0].kind != "cpu")


def _launch(session: Session, slots: list[Slot], made: list[Path]) -> None:
    """Launch the program with one GPU, all, none and some."""
    options, on_cpu = session.options, slots[0].kind == "cpu"
    template = options.launch_cmd or _own_program(on_cpu=on_cpu)
    tried = [
        launches.Configuration(name, launches.command(template, ids), cpu=ids is None)
        for name, ids in launches.configurations(len(slots)).items()
    ]
    # A program of the user's may need all of a GPU, or a port, for itself.
    groups = [[one] for one in tried] if options.launch_cmd else [tried]
    launched: list[Launched] = []
    for group in groups:
        ended = launches.launch(group, min(options.launch_timeout, session.left()))
        launched += ended
        for one in ended:
            _say_launched(session, one)
    _report_launches(session, launched, made)


def _say_launched(session: Session, one: Launched) -> None:
    session.say("COMPUTE", f"{one.name}: {'PASS' if one.code == 0 else 'FAIL'} ({one.ended})")
    errors = one.lines(launches.ERROR_WORDS) if one.code != 0 else []
    for line in [*one.lines(launches.GPU_WORDS), *errors]:
        shown = "".join(letter if letter.isprintable() else "?" for letter in line)
        session.say("COMPUTE", f"  {shown}")


def _own_program(*, on_cpu: bool) -> str:
    probe = Path(__file__).parent / "_workers" / "probe.py"
    pretend = " --on_cpu" if on_cpu else ""
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(probe))}{pretend} --gpu_ids {{gpu_ids}}"


def _report_launches(session: Session, launched: list[Launched], made: list[Path]) -> None:
    bad = [one for one in launched if one.code != 0]
    rate = 1 - len(bad) / len(launched)
    details = {"rate": rate, "configurations": [one.as_json() for one in launched]}
    verdict = {"status": "PASS"}
    if bad:
        stamp = time.strftime("%Y%m%d_%H%M%S")
        log = Path(session.options.report_dir) / f"launch_failures_{stamp}.log"
        launches.write_log(log, bad)
        made.append(log)
        details["log"] = str(log)
        ended = "was not done in time" if bad[0].code is None else f"ended with {bad[0].code}"
        reason = f"{len(bad)} of {len(launched)} launches failed; {bad[0].name} {ended}: see {log}"
        status = "FAIL" if rate < LAUNCHES else "WARN"
        verdict = {"status": status, "code": "launch_failed", "reason": reason}
    session.report.add("alloc.launches", **verdict, details=details)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add this payload's flags."""
    parser.add_argument("--workers", type=whole, help="(two for each GPU)")
    parser.add_argument("--memory", type=whole, help="MiB of each worker, in all (256)")
    parser.add_argument("--preset", choices=sorted(PRESETS), help="what flags do not say")
    parser.add_argument("--skip-stress", action="store_true")
    parser.add_argument("--skip-launch", action="store_true")
    parser.add_argument("--cleanup", action="store_true", help="remove the logs that it made")
    parser.add_argument(
        "--scaling", action="store_true", help="compare one slot with all (on GPUs: always)"
    )
    parser.add_argument("--balance", type=positive, help="most work of a GPU over the least (1.25)")
    parser.add_argument(
        "--ops-floor", type=positive, help="operations a second under which a GPU fails"
    )
    parser.add_argument("--launch-cmd", help="the program to launch, with {gpu_ids} in it")
    parser.add_argument("--launch-timeout", type=positive, default=LAUNCH_TIMEOUT_S)
    parser.add_argument("--telemetry", metavar="FILE", help="nvidia-smi's readings, each second")


def check_flags(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Fill in the preset, and refuse what cannot be."""
    for name, value in PRESETS.get(options.preset or "", {}).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.preset == "ci":
        options.cleanup = True
    if options.workers and options.workers > MOST_WORKERS:
        parser.error(f"--workers is at most {MOST_WORKERS}")
    if options.launch_cmd is not None and "{gpu_ids}" not in options.launch_cmd:
        parser.error("--launch-cmd needs {gpu_ids} where the numbers of the GPUs go")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        parser.error("it starts workers of its own: run it with python, not torchrun")


if __name__ == "__main__":
    run(
        Payload(
            name="alloc_stress",
            description="Many workers on few GPUs: each its own, and all given back.",
            body=body,
            timeout=900.0,
            add_flags=add_flags,
            check=check_flags,
        )
    )
