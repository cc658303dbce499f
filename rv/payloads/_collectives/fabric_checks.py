"""Judge in a run of allreduce.py the transport that NCCL took, and speeds against the fabric's."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from _harness.devices import promised_gpus
from _harness.topology import share_of_ranks
from contract.rates import mesh_rate
from contract.verdicts import FAIL, WARN

from .fabrics import Fabrics, below_floor, fabrics_of
from .hearing import active_ports, nccl_log_file, read_log
from .nccl_log import NcclLog, parse_nccl_log
from .sweep import measures_link
from .transport import Finding, Place, transport_findings, ways

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from _harness.main import Session
    from _harness.ranks import Group

    from .measure import Field, Row

WITHOUT_P2P = """\
NCCL INFO NCCL_P2P_DISABLE set by environment to 1
NCCL INFO === System : maxBw 48.0 totalBw 370.8 ===
NCCL INFO + PCI[48.0] - GPU/0-68000 (0)
NCCL INFO               + NVL[370.8] - NVS/0-0
NCCL INFO + PCI[48.0] - GPU/0-6b000 (1)
NCCL INFO               + NVL[370.8] - NVS/0-0
NCCL INFO ==========================================
NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct
"""
"""What is judged on a CPU where the fault no-p2p is made: on GPUs it is, and NCCL says so."""


@contextlib.contextmanager
def heard(session: Session) -> Iterator[Path]:
    """Have NCCL log to a file for the block."""
    with nccl_log_file() as path:
        if session.faults.get("no-p2p"):
            os.environ["NCCL_P2P_DISABLE"] = "1"
        yield path


def add(session: Session, name: str, verdict: dict[str, str], **more: Any) -> None:
    """Add a test once: on rank 0 with its figures, elsewhere with its verdict alone."""
    if session.ranks.rank:
        more = {}
        name = f"{name}.rank"
    session.report.add(name, **verdict, **more)


def about_links(session: Session, group: Group, log_file: Path) -> dict[str, float]:
    """Return what part of their NVLinks the ranks use, for the metrics; {} where it is unknown.

    It is 1 where NCCL's map has a switch. Only the first rank of a node alone has to know.
    """
    if group.backend != "nccl" or session.ranks.rank or session.ranks.nodes > 1:
        return {}
    if parse_nccl_log(read_log(log_file)).links.is_switched:
        return {"link_share": 1.0}
    share = share_of_ranks(session.report.devices, session.ranks.world)
    return {} if share is None else {"link_share": share}


def check(session: Session, field: Field, group: Group, rows: list[Row], log_file: Path) -> None:
    """Add what the transport and the bandwidths of the largest `rows` come to."""
    nodes = tuple(int(one[0]) for one in field.gather([float(group.ranks.node)]))
    if field.world == 1:
        return
    if field.device == "cpu" and session.faults.get("no-p2p"):
        _judge(session, rows, nodes, WITHOUT_P2P)
    elif group.backend == "nccl":
        _judge(session, rows, nodes, read_log(log_file))
    else:
        if promised_gpus() and os.environ.get("RV_FAKE_GPUS") != "1":
            _add_gloo(session, field, group.backend)
        if session.faults.get("below-floor"):
            _check_floor(session, rows, Fabrics(None, None, field.world))


def _judge(session: Session, rows: list[Row], nodes: tuple[int, ...], text: str) -> None:
    """Judge by a log of NCCL's."""
    rate = _rate(session)
    place = Place(nodes, rate is not None, active_ports())
    log = parse_nccl_log(text)
    _add_transport(session, log, place)
    _check_floor(session, rows, fabrics_of(log, place, rate))


def _rate(session: Session) -> float | None:
    """Return the NVLink rate of the node's one model, where it joins all GPUs."""
    devices = session.report.devices
    models = {device["name"] for device in devices}
    is_whole = len(models) == 1 and not any(device["mig"] for device in devices)
    return mesh_rate(models.pop()) if is_whole else None


def _add_gloo(session: Session, field: Field, backend: str) -> None:
    """Tell of collectives that do not go through NCCL though there are GPUs."""
    reason = f"{backend} in place of NCCL on a node with {promised_gpus()} GPU(s)"
    status = WARN if field.device == "cpu" else FAIL
    verdict = {"status": status, "code": "wrong_transport", "reason": reason, "class": "CONFIG"}
    add(session, "allreduce.transport", verdict)


def _add_transport(session: Session, log: NcclLog, place: Place) -> None:
    """Add a test of this rank's connections."""
    taken = ways(log, place)
    said = "; ".join(f"{side} nodes {', '.join(found)}" for side, found in taken.items() if found)
    session.say("DDP", f"NCCL {log.version or 'of an unknown version'}: {said or 'unknown'}")
    ports = [port._asdict() for port in place.ports]
    details = {"nccl": log.version, "network": log.network, **taken, "ports": ports}
    verdicts = [_verdict(finding) for finding in transport_findings(log, place)]
    for verdict in verdicts or [{"status": "PASS"}]:
        add(session, "allreduce.transport", verdict, details=details)


def _verdict(finding: Finding) -> dict[str, str]:
    status, code, reason, fault = finding
    return {"status": status, "code": code, "reason": reason, "class": fault}


def _check_floor(session: Session, rows: list[Row], fabrics: Fabrics) -> None:
    """Hold each operation's largest size against the floor of the fabric that there is."""
    known = [f"{each.kind} of {each.rate:.4g} GB/s" for each in fabrics[:2] if each]
    floors = {row.operation: each.busbw for row in rows if (each := fabrics.floor(row))}
    details = {"fabric": known, "floors": floors, "ranks_of_a_node": fabrics.near}
    verdict = {"status": "PASS"}
    if session.faults.get("below-floor"):
        reason = f"{rows[0].operation}: {rows[0].busbw:.1f} GB/s, half of what the fabric gives"
        verdict = {"status": FAIL, "code": "slow_fabric", "reason": reason}
    elif fabrics.unknown:
        reason = f"no floor: NCCL's log does not tell {fabrics.unknown}"
        verdict = {"status": WARN, "code": "no_reference", "reason": reason}
    elif reason := below_floor(rows, fabrics):
        verdict = {"status": FAIL, "code": "slow_fabric", "reason": reason}
    elif not any(map(measures_link, rows)):
        return  # too small to measure a link
    add(session, "allreduce.floor", verdict, details=details)
