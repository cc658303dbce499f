"""ckpt_cycle.py as a chain of real jobs: told to save by Slurm's signal, it goes on in the next."""

import json
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rv import sandbox
from rv.payloads._checkpoint.segment import Coverage, coverage, read_steps
from tests.slurm.launching import RaceFiles, Rv, group, profile

Eventually = Callable[..., None]
STEPS, PAUSE = 60, 0.25
ENOUGH = 3
"""Steps of a segment before its job is told that its time runs out."""


@pytest.fixture(scope="module")
def rv(sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rv]:
    """One node whose partition gives five minutes: what takes longer has to come again."""
    home = tmp_path_factory.mktemp("cycle")
    families = home / "config" / "rv" / "strategies"
    families.mkdir(parents=True)
    (families / "checkpoint.yaml").write_text(
        "{name: checkpoint, serves: checkpoint, defaults: {min_usable: 30s}}"
    )
    spec = profile([group("c", "a100", gpus=1)], cred_expire=5, scheduler={"sched_interval": 2})
    spec["partitions"][0]["max_time"] = "5"
    path = home / "profile.yaml"
    path.write_text(json.dumps(spec), encoding="utf-8")
    yield Rv(box=sandbox.up("cycle", path), home=home)
    sandbox.down("cycle")


def test_a_chain_of_jobs_does_every_step_once(rv: Rv, eventually: Eventually) -> None:
    """And comes to the bits of a training that nobody interrupted.

    Two of its jobs are told to save early on; on a slow machine Slurm may tell more of them.
    """
    pytest.importorskip("torch")
    command = f"ckpt_cycle.py --steps {STEPS} --pause {PAUSE} --every 100"
    words = ("--checkpoint", "--checkpoint-buffer", "20s", "--time", "20m", "-d")
    done = rv("up", "--run", command, *words)
    assert done.returncode == 0, done.stderr
    race = rv.last()
    for segment in (1, 2):
        eventually(lambda n=segment: steps_of(race, n) >= ENOUGH, timeout=120)
        rv.slurm("scancel", "--batch", "--signal=USR1", race.claim["owner"].partition(".")[0])
    eventually((race.directory / "ended").exists, timeout=180)

    said = rv.state()
    assert (said["state"], said["exit_code"]) == ("COMPLETED", 0), race.logs()
    *before, last = [one["next"] for one in said["chain"]["segments"]]
    assert len(before) >= 2
    assert (set(before), last) == ({"again"}, "done")
    log = read_steps(race.directory / "checkpoints")
    assert coverage(log) == Coverage(STEPS, 0, ""), textwrap.indent(race.logs(), "  ")
    assert {step.segment for step in log} == set(range(1, len(before) + 2))
    [result] = race.directory.glob("**/ckpt_cycle_result.json")
    tests = {test["name"]: test for test in json.loads(result.read_text())["tests"]}
    assert tests["checkpoint.chain"]["status"] == "PASS"
    assert tests["checkpoint.chain"]["details"]["segments"] == len(before) + 1


def steps_of(race: RaceFiles, segment: int) -> int:
    """How many steps a segment has done."""
    log = read_steps(race.directory / "checkpoints")
    return sum(step.segment == segment for step in log)
