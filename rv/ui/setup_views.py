"""What `rv init` found and `rv doctor` checked, for people and as the documented JSON."""

from collections.abc import Sequence
from typing import Any

from rv.models.discovery import Discovery, Finding, Folder, Verdict
from rv.models.quantities import short_memory
from rv.ui.status_views import overview_document, overview_text
from rv.ui.tables import Part, Table


def discovery_text(found: Discovery, width: int) -> list[Part]:
    """Lay out what was found: a line each, then the GPUs within `width` columns, 0 for all."""
    config = found.snapshot.config
    accounts = [f"{name} (default)" if name == found.default_account else name
                for name in found.accounts]  # fmt: skip
    rows = {
        "Slurm": f"{config.version or 'of an unknown version'}, cluster {config.name or '-'}",
        "user": found.snapshot.user,
        "accounts": ", ".join(accounts) or "none: this cluster keeps none, or you have none",
        "QOS": ", ".join(found.qos),
        "folders": "; ".join(map(_folder_text, found.folders)),
        "programs": ", ".join(_tool_text(name, found.tools[name]) for name in sorted(found.tools)),
    }
    table = Table(rows=[(name, text) for name, text in rows.items() if text])
    return [table, *overview_text(found.pools, width)]


def _folder_text(folder: Folder) -> str:
    notes = [folder.disk, f"{short_memory(folder.free_mib)} free"]
    notes += [] if folder.is_shared else ["perhaps of this node alone"]
    notes += [] if folder.has_links else ["without hard links"]
    return f"{folder.path} ({', '.join(notes)})"


def _tool_text(name: str, where: str) -> str:
    return name if where.startswith("/") else f"{name} {where}"


def discovery_document(found: Discovery) -> dict[str, Any]:
    """Describe what was found."""
    return {
        "slurm": {
            "version": found.snapshot.config.version or None,
            "cluster": found.snapshot.config.name or None,
        },
        "user": found.snapshot.user,
        "accounts": list(found.accounts),
        "default_account": found.default_account or None,
        "qos": list(found.qos),
        "folders": [
            {
                "path": folder.path,
                "disk": folder.disk,
                "free_mib": folder.free_mib,
                "hard_links": folder.has_links,
                "shared": folder.is_shared,
                "home": folder.is_home,
            }
            for folder in found.folders
        ],
        "programs": dict(found.tools),
        **overview_document(found.pools),
    }


def finding_lines(finding: Finding) -> list[str]:
    """Say what one check found, on a line, with its remedy below."""
    line = f"{finding.verdict:<4}  {finding.check}: {' '.join(finding.what.split())}"
    return [f"{line}\n      remedy: {finding.remedy}" if finding.remedy else line]


def findings_document(cluster: str, findings: Sequence[Finding]) -> dict[str, Any]:
    """Describe what the checks found."""
    return {
        "cluster": cluster,
        "verdict": worst(findings),
        "checks": [
            {
                "check": each.check,
                "verdict": each.verdict,
                "what": each.what,
                "remedy": each.remedy or None,
            }
            for each in findings
        ],
    }


def worst(findings: Sequence[Finding]) -> Verdict:
    """Return the worst verdict of all."""
    order = list(Verdict)
    return max((each.verdict for each in findings), key=order.index, default=Verdict.OK)
