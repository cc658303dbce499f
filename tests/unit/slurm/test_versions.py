"""Slurm 20.11 to 25.11: other columns, other words, the same snapshot, plan and records.

These are 22.05's answers with the differences that tests/data/slurm/versions.yaml states.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rv.models.job import JobState, job_state
from rv.models.request import Request
from rv.models.snapshot import Snapshot
from rv.slurm import sacct, scontrol, squeue
from rv.slurm.probe import build_snapshot
from rv.slurm.scontrol import parse_node_states, parse_record, record_lines
from rv.slurm.script import CommandOutput, parse_outputs
from tests.unit.planner.clusters import planned

DATA = Path(__file__).parents[2] / "data" / "slurm"
S = "rv0123456789abcdef"
VERSIONS: dict[str, dict[str, Any]] = yaml.safe_load((DATA / "versions.yaml").read_text())
OWN = {
    "own_queue": squeue.parse_squeue_own,
    "own_show_jobs": scontrol.parse_show_job,
    "own_sacct": sacct.parse_sacct,
}


def captured() -> dict[str, str]:
    """What 22.05 answered, by frame of the probe, and to the watcher's questions by file."""
    found = parse_outputs((DATA / "22.05" / "probe.txt").read_bytes().decode(), S)
    assert found is not None
    files = {name: (DATA / "22.05" / f"{name}.txt").read_text() for name in OWN}
    return {name: frame.stdout for name, frame in found.items()} | files


def lineage(version: str) -> list[str]:
    """The versions whose differences add up to this one's, the nearest to 22.05 first."""
    return [] if version == "22.05" else [*lineage(VERSIONS[version]["like"]), version]


def answers(version: str) -> dict[str, str]:
    """What a version answers."""
    texts = captured()
    for step in lineage(version):
        for name, changes in VERSIONS[step]["changes"].items():
            for pattern, put, _ in changes:
                texts[name] = re.sub(pattern, put, texts[name])
    release = VERSIONS[version]["release"]
    texts["config"] = texts["config"].replace("22.05.8", release)
    texts["nodes"] = texts["nodes"].replace("22.05.8", release)
    return texts


def snapshot(texts: dict[str, str]) -> Snapshot:
    frames = {name: CommandOutput(exit_code=0, stdout=text) for name, text in texts.items()}
    return build_snapshot(frames, S)


@pytest.mark.parametrize("version", VERSIONS)
def test_differences_are_found(version: str) -> None:
    """Each stated difference is one of that answer; one that finds nothing would show nothing."""
    before = (
        answers(VERSIONS[version]["like"]) if VERSIONS[version]["like"] != "22.05" else captured()
    )
    for name, changes in VERSIONS[version]["changes"].items():
        for pattern, put, why in changes:
            changed = re.sub(pattern, put, before[name])
            assert changed != before[name] or "TresPer" in pattern, (name, pattern, why)
            before[name] = changed


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_snapshot_and_plan(version: str) -> None:
    """All but the number of the version."""
    ours, first = snapshot(answers(version)), snapshot(captured())
    assert ours.config.version == VERSIONS[version]["release"]
    assert replace(ours, config=first.config) == first
    for wanted in ({"gpus": 1}, {"gpus": 2}, {"gpus": 4}, {"gpus": 0, "cpus": 4}):
        assert planned(Request(**wanted), ours) == planned(Request(**wanted), first)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", OWN)
def test_the_same_records_of_jobs(version: str, name: str) -> None:
    """States, times, codes, nodes."""
    found = OWN[name](answers(version)[name], S)
    assert found
    assert found == OWN[name](captured()[name], S)


@pytest.mark.parametrize(
    ("file", "frame", "first_key"),
    [
        ("show_node", "nodes", "NodeName"),
        ("show_partition", "partitions", "PartitionName"),
        ("show_reservation", "reservations", "ReservationName"),
    ],
)
def test_the_differences_of_24_11_are_those_captured(file: str, frame: str, first_key: str) -> None:
    """The hand-made answer has the keys that a real 24.11 printed."""

    def keys(text: str) -> set[str]:
        return {key for line in record_lines(text, first_key) for key in parse_record(line)} - {
            "Reason",
            "x",
        }

    real = keys((DATA / "24.11" / f"{file}.txt").read_text())
    assert keys(answers("24.11")[frame]) ^ real <= {
        "MemSpecLimit",
        "DefMemPerCPU",
        "GresUsed",
        "DenyAccounts",
        "NodeCnt",
        "Features",
    }


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("IDLE+CLOUD+POWER", "IDLE+CLOUD+POWERED_DOWN"),
        ("IDLE+POWER_SAVING", "IDLE+POWERED_DOWN"),
        ("MIXED+REBOOT", "MIXED+REBOOT_REQUESTED"),
        ("IDLE+NO_RESPOND", "IDLE+NOT_RESPONDING"),
    ],
)
def test_states_of_nodes_by_their_older_names(older: str, newer: str) -> None:
    """20.11 says POWER for what later versions call POWERED_DOWN: no job is to wait for it."""
    assert parse_node_states(older) == parse_node_states(newer)


@pytest.mark.parametrize("word", ["POWER_UP_NODE", "UPDATE_DB", "QUANTUM+"])
def test_states_of_jobs_that_rv_does_not_know(word: str) -> None:
    """They are unknown, and nothing follows from them."""
    assert job_state(word) is JobState.UNKNOWN
