"""Judge a run by everything kept on this machine: baselines, golden values, history."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rv import bundle
from rv.accept.baselines import Baselines, load
from rv.accept.folders import cluster_file
from rv.accept.history import History, history
from rv.accept.judge import Judge
from rv.accept.measurements import Measurement, measurements
from rv.accept.regression import Point
from rv.accept.results import Status
from rv.accept.store import Run


def golden_file(cluster: str) -> Path:
    """The file of a cluster's golden values."""
    return cluster_file("golden", cluster, ".yaml")


def baselines(cluster: str) -> Baselines:
    """Every layer of references, for a cluster."""
    return load(bundle.user_config_dir(), [golden_file(cluster)])


def judged(run: Run) -> Run:
    """Judge a run. Raises `RvError(CONFIG)` for a file of baselines or a history that is broken."""
    record = run.record
    earlier = Earlier(history(), record.race_id)
    judge = Judge(
        baselines=baselines(record.cluster),
        past=earlier.points,
        run=record.race_id,
        cluster=record.cluster,
        time=record.started_at or record.submitted_at,
    )
    return replace(run, results=judge.judge(run.results))


def remember(run: Run) -> int:
    """Add to the history what payloads measured that found no fault; give how many are new."""
    return history().add(measured_of(run))


def measured_of(run: Run) -> Sequence[Measurement]:
    """Every number of a run whose payload did not fail, nor was made to, as measured."""
    record = run.record
    when = record.started_at or record.submitted_at
    sound = [
        result
        for result in run.results
        if result.status in (Status.PASS, Status.WARN) and "--inject" not in result.argv
    ]
    return [
        measured
        for result in sound
        for measured in measurements(result, record.race_id, record.cluster, when)
    ]


class Earlier:
    """What was measured in other runs, asked for once for each GPU and payload."""

    def __init__(self, kept: History, run: str) -> None:
        self._kept, self._run = kept, run
        self._rows: dict[tuple[str, ...], tuple[Measurement, ...]] = {}

    def points(self, measured: Measurement) -> Sequence[Point]:
        """Earlier values of the same device, measured in the same way."""
        gpu = measured.gpu_uuid
        asked = (gpu, "" if gpu else measured.node, measured.payload)
        if asked not in self._rows:
            self._rows[asked] = self._kept.all(gpu=gpu, node=asked[1], payload=measured.payload)
        return [
            Point(time=row.time, value=row.value, fingerprint=row.fingerprint)
            for row in self._rows[asked]
            if row.run != self._run and row.key == measured.key and row.subject == measured.subject
        ]
