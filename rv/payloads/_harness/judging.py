"""What a run comes to besides its tests: who else was there, whether it is fast, what it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contract.catalogue import PAYLOADS
from contract.rates import (
    Judged,
    Known,
    has_references,
    judge_rates,
    rated_models,
    rates_of,
    worsen,
)

from .devices import promised_gpus

if TYPE_CHECKING:
    from .main import Session

ONE_GPU_A_RANK = ("allreduce", "train_fsdp", "moe")
"""Payloads whose single rank leaves the other GPUs alone."""
NOT_ON_CPU = "on a CPU no speed is judged"
BY_RV = "rv judges the speeds"


def add_contention(session: Session) -> None:
    """Add what the watch saw of each device, before what was measured there."""
    watch, report = session.watch, session.report
    watch.stop()
    for label in watch.seen:
        details = watch.details(label)
        failed = watch.is_failure(label) and not session.options.allow_busy_gpus
        about: dict[str, Any] = {"device": label, "details": details}
        found = watch.findings(label)
        for code, reason in reversed(found):
            status = "FAIL" if failed else "WARN"
            report.add("contention", status, code=code, reason=reason, is_first=True, **about)
        if not found and details["asked"]:
            report.add("contention", "PASS", **about)
        elif not found and report.devices:
            reason = "the driver does not say who else is on the GPU"
            report.add("contention", "SKIP", code="nvml_unavailable", reason=reason, **about)


def add_wear(session: Session) -> None:
    """Add what each device's counters and limits say of its health; nothing of a CPU's."""
    health, report = session.health, session.report
    health.stop()
    for label in health.wear:
        about: dict[str, Any] = {"device": label, "details": health.details(label)}
        found = health.findings(label)
        for status, code, reason in found:
            report.add("wear", status, code=code, reason=f"{label}: {reason}", **about)
        if not found:
            report.add("wear", "PASS", **about)
    if session.ranks.local_rank == 0:  # one rank tells of what is the whole node's
        for status, code, reason in health.of_switches():
            report.add("wear", status, code=code, reason=reason)
    if health.source is None and report.devices:
        reason = "neither pynvml nor nvidia-smi tells of these GPUs: wear is not judged"
        report.add("wear", "WARN", code="telemetry_unreadable", reason=reason)


def add_ranks(session: Session) -> None:
    """Warn of one rank where it has several GPUs: it exchanged nothing with anybody.

    A process sees one MIG slice, however many it was given.
    """
    if session.payload.name not in ONE_GPU_A_RANK or not session.ranks.alone:
        return
    gpus = max(promised_gpus(), len(session.report.devices))
    is_whole = not any(device["mig"] for device in session.report.devices)
    if gpus > 1 and is_whole and session.options.device != "cpu":
        reason = f"one rank where there are {gpus} GPUs: it used one, and nothing was exchanged"
        session.report.add("ranks", "WARN", code="one_rank", reason=reason)


def judge_speeds(session: Session) -> str:
    """Hold the rates against references; return what to say of it in a sentence's part."""
    report, payload = session.report, session.payload.name
    if session.faults.get("below") or session.faults.get("unknown-model"):
        return _made_up(session)
    if session.options.no_reference:
        return BY_RV if has_references(payload) else ""
    if not has_references(payload) or not list(rates_of(report.tests)):
        return ""
    return _by_references(session) if report.devices else NOT_ON_CPU


def _by_references(session: Session) -> str:
    report, several = session.report, session.ranks.nodes > 1
    world = 0 if several else session.ranks.world  # the network between nodes is no GPU's
    measured = rated_models(report.tests, report.devices)
    judged = judge_rates(session.payload.name, report.tests, report.devices, world)
    # One without a device is of all, which are then of one model.
    known = {report.models.get(each.device) or report.devices[0]["name"] for each in judged}
    unknown = sorted(measured - known)
    if unknown and (judged or not several):
        _add_unknown(session, ", ".join(unknown))
    if judged:
        return _spoken(judged)
    return "speed between nodes is not judged" if several else ""


def _spoken(judged: list[Judged]) -> str:
    shares = [each.share for each in judged]
    models = ", ".join(sorted({each.known.gpu for each in judged}))
    return (
        f"{len(judged)} speeds at {min(shares):.2f} to {max(shares):.2f} of what {models} reaches"
    )


def _add_unknown(session: Session, product: str) -> None:
    reason = f"no reference for {product}: speed not judged"
    session.report.add("speed", "WARN", code="no_reference", reason=reason)


def _made_up(session: Session) -> str:
    """Judge as two faults say: a model that reaches more than this, or that nobody knows."""
    below = session.faults.get("below")
    if below is None:
        _add_unknown(session, "a made-up GPU")
        return ""
    share = below.number("share", 0.7)
    for test, metric in rates_of(session.report.tests):
        known = Known("a made-up GPU", metric["value"] / share, "--inject below")
        worsen(session.payload.name, test, metric, Judged(test["device"] or "", share, known))
    return ""


def vouched(session: Session, speeds: str) -> str:
    """Say what a PASS vouches for: on which devices, what was tested, and against what."""
    names = list(session.report.models) or ["the CPU"]
    known = (each.tests for each in PAYLOADS if each.name == session.payload.name)
    tests = session.tested or next(known, "")
    where = f"{session.ranks.world} ranks" if session.ranks.world > 1 else ", ".join(names)
    return "; ".join(filter(None, (f"{where}: {tests}" if tests else "", speeds)))
