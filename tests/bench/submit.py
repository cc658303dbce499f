"""rv's submit phase of 1, 20 and 200 jobs against as many sbatch calls by `xargs -P 8`, and submitit.

Wanted: 20 jobs in at most 3 times xargs' time. rv and xargs submit the same rendered scripts; submitit
sends one array, its own way, which is one sbatch. All are held back by --begin, so that none pays
for starting them, and none counts the start of its interpreter.
"""

import dataclasses
import os
import statistics
import subprocess
import time
from datetime import timedelta
from pathlib import Path

from cluster import cluster
from timing import alternate

from rv.models.plan import Plan, Submission
from rv.models.race import Race
from rv.models.request import Command, Request
from rv.race.cancel import cancel_races
from rv.race.new_race import script_context
from rv.race.stage import stage
from rv.race.submit import submit
from rv.workflow.cluster import Cluster
from rv.workflow.launch import Launch, prepare
from rv.workflow.templates import templates
from tests.bench.results import Figure, note
from tests.bench.rivals import at_hand, installed

SIZES = {1: 9, 20: 9, 200: 3}
"""How many jobs, and how often."""
WANTED = {20: 3.0}
SUBMITIT = Path(__file__).with_name("with_submitit.py")
LATER = "--begin=now+1hour"


def stage_jobs(target: Cluster, count: int) -> Race:
    """Stage a race of so many submissions, all of the same strategy."""
    request = Request(gpus=1, walltime=timedelta(minutes=5), command=Command(line="true"))
    made: Launch = prepare(request, target, str(Path.cwd()), dict(os.environ), time.time())
    strategy = made.plan.submissions[0].strategies
    jobs = tuple(Submission(number=n, strategies=strategy) for n in range(1, count + 1))
    plan: Plan = dataclasses.replace(
        made.plan, submissions=jobs, waves=(tuple(range(1, count + 1)),)
    )
    facts = script_context(plan, request, made.context)
    return stage(plan, made.request, facts, made.context, {}, templates(), target.transport)


def measured(target: Cluster, count: int, rounds: int) -> dict[str, float]:
    """Return the median seconds of each way to submit so many jobs."""
    races: list[Race] = []

    def ours() -> None:
        results = submit(races[-1], range(1, count + 1), target.transport, options=[LATER])
        assert all(result.job_id for result in results), results

    def xargs() -> None:
        done = target.transport.run(
            f"cd {races[-1].directory} &&"
            f" seq {count} | xargs -P 8 -I N sbatch --parsable {LATER} jobs/N.sh",
            timeout_s=300,
        )
        assert len(done.stdout.split()) == count, done

    seconds: dict[str, list[float]] = {}
    for _ in range(rounds):
        races.append(stage_jobs(target, count))
        found = alternate({"rv": ours, "xargs -P 8": xargs}, 1)
        if "submitit" in at_hand():
            found["submitit"] = _submitit_s(Path(races[-1].directory) / "submitit", count)
        for name, value in found.items():
            seconds.setdefault(name, []).append(value)
        cancel_races([races[-1]], target.transport)
        target.transport.run("scancel --state=PENDING --me", timeout_s=60)
    return {name: statistics.median(values) for name, values in seconds.items()}


def _submitit_s(folder: Path, count: int) -> float:
    """The seconds of submitit's own call, by its own clock."""
    command = [at_hand()["submitit"] / "python", SUBMITIT, "submit", folder, str(count)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print the ratios."""
    with installed(["submitit"]), cluster("small") as target:
        for count, rounds in SIZES.items():
            seconds = measured(target, count, rounds)
            jobs = "1 job" if count == 1 else f"{count} jobs"
            for rival in list(seconds)[1:]:
                ratio = seconds["rv"] / seconds[rival]
                most = WANTED.get(count) if rival.startswith("xargs") else None
                print(
                    f"submit: {jobs}: rv {seconds['rv'] * 1000:.0f} ms, {rival}"
                    f" {seconds[rival] * 1000:.0f} ms, ratio {ratio:.2f}"
                    f"{f' (want <= {most:g})' if most else ''}"
                )
                what = f"{jobs}, rv beside {rival}"
                note("submit", [Figure(what=what, value=ratio, unit="times", most=most)])


if __name__ == "__main__":
    main()
