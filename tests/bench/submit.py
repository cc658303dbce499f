"""rv's submit phase of 20 jobs against the same 20 sbatch calls by `xargs -P 8`. Wanted: at most 3.

Both submit the same rendered scripts, held back by --begin so that neither pays for starting them.
"""

import dataclasses
import os
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
from rv.workflow.launch import Launch, prepare, read_template

JOBS = 20
LATER = "--begin=now+1hour"


def stage_jobs(target: Cluster) -> Race:
    """Stage a race of JOBS submissions, all of the same strategy."""
    request = Request(gpus=1, walltime=timedelta(minutes=5), command=Command(line="true"))
    made: Launch = prepare(request, target, str(Path.cwd()), dict(os.environ), time.time())
    strategy = made.plan.submissions[0].strategies
    jobs = tuple(Submission(number=n, strategies=strategy) for n in range(1, JOBS + 1))
    plan: Plan = dataclasses.replace(
        made.plan, submissions=jobs, waves=(tuple(range(1, JOBS + 1)),)
    )
    facts = script_context(plan, request, made.context)
    return stage(plan, made.request, facts, made.context, {}, read_template, target.transport)


def main() -> None:
    """Print the ratio."""
    with cluster("small") as target:
        races: list[Race] = []

        def ours() -> None:
            results = submit(races[-1], range(1, JOBS + 1), target.transport, options=[LATER])
            assert all(result.job_id for result in results), results

        def xargs() -> None:
            numbers = "\n".join(map(str, range(1, JOBS + 1)))
            done = target.transport.run(
                f"cd {races[-1].directory} && xargs -P 8 -I N sbatch --parsable {LATER} jobs/N.sh",
                stdin=numbers,
                timeout=60,
            )
            assert len(done.stdout.split()) == JOBS, done

        seconds = {"rv": [], "xargs": []}
        for _ in range(9):
            races.append(stage_jobs(target))
            for name, value in alternate({"rv": ours, "xargs": xargs}, 1).items():
                seconds[name].append(value)
            cancel_races([races[-1]], target.transport)
        ours_s, xargs_s = (sorted(seconds[name])[4] for name in ("rv", "xargs"))
        print(
            f"submit: {JOBS} jobs: rv {ours_s * 1000:.0f} ms, xargs -P 8 {xargs_s * 1000:.0f} ms,",
            end=" ",
        )
        print(f"ratio {ours_s / xargs_s:.2f} (want <= 3)")


if __name__ == "__main__":
    main()
