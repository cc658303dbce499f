"""dataload: what it prints and leaves behind when all is well."""

import os
from pathlib import Path

from tests.payloads.starting import Launcher, torchrun


def test_every_sample_comes_once_and_the_knee_is_named(launch: Launcher, tmp_path: Path) -> None:
    """By count, sum and exclusive or; the pool's squares add up; no GPU is needed."""
    words = ["--quick", "--samples", "50", "--work-ms", "0.2", "--workers", "0,1,2"]
    done = launch("dataload", tmp_path, *words, "--files", str(tmp_path))

    assert done.code == 0, done.out + done.err
    assert "[DATA] pool of processes: sum of squares 328350" in done.out
    assert done.test("dataload.pool")["details"] == {"sum": 328350}
    seconds = done.test("dataload.knee")["details"]["seconds"]
    assert set(seconds) == {"0", "1", "2"}
    best = min(seconds.values())
    knee = min(int(workers) for workers, taken in seconds.items() if taken <= 1.05 * best)
    assert done.test("dataload.knee")["metrics"][0]["value"] == knee
    assert done.test("dataload.files.cold")["metrics"][0]["value"] > 0
    assert not list(tmp_path.glob("rv-dataload-*"))


def test_under_torchrun_the_first_rank_loads_and_is_let_finish(tmp_path: Path) -> None:
    """The others have nothing to do, and torchrun ends all at the first code but 0."""
    done = torchrun("dataload", tmp_path, "--device", "cpu", "--quick", ranks=2)

    assert done.code == 0, done.out + done.err
    assert done.result["summary"]["status"] in ("PASS", "WARN")
    assert [each["rank"] for each in done.result["ranks"]] == [0, 1]


def test_cpus_are_those_the_job_has(launch: Launcher, tmp_path: Path) -> None:
    """Findings, test 10: 128 are visible, and the job has two."""
    words = ["--quick", "--samples", "8", "--work-ms", "0.1", "--workers", "0"]
    done = launch("dataload", tmp_path, *words, SLURM_CPUS_PER_TASK="1")

    details = done.test("dataload.cpus")["details"]
    assert (details["effective"], details["visible"]) == (1, os.cpu_count())


def test_other_settings_are_tried_at_the_knee(launch: Launcher, tmp_path: Path) -> None:
    """Workers that stay, a longer queue, another start method."""
    words = ["--samples", "8", "--work-ms", "0.1", "--workers", "1", "--device", "cpu"]
    done = launch("dataload", tmp_path, *words)

    assert done.code == 0, done.out + done.err
    for name in ("persistent", "prefetch", "spawn"):
        assert done.test(f"dataload.{name}")["status"] == "PASS"
