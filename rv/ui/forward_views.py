"""Tunnels in the background, for people and for programs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rv.models.tunnel import TunnelRecord
from rv.ui.tables import Table

_HEAD = ("RACE", "NAME", "NODE", "PORT", "HERE", "PID", "STATE")


def tunnels_table(tunnels: Sequence[TunnelRecord]) -> Table:
    """Lay out tunnels, a line for each port."""
    rows = [
        (
            record.race,
            record.name or "-",
            record.node,
            str(port.remote),
            f"127.0.0.1:{port.local}",
            str(record.pid),
            "open" if record.is_live else f"ended: {record.why}",
        )
        for record in tunnels
        for port in record.ports
    ]
    return Table(head=_HEAD, rows=rows)


def tunnels_document(tunnels: Sequence[TunnelRecord]) -> dict[str, Any]:
    """Return tunnels as JSON has them."""
    return {"tunnels": [asdict(record) for record in tunnels]}
