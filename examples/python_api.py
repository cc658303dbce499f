"""rv from Python: plan, launch a command, submit functions. `python examples/python_api.py`.

It runs on the cluster that `rv up` would use; `rv sandbox up` makes one on this machine.
"""

import concurrent.futures

import rv


def square(number: int) -> int:
    """What a node is to compute."""
    print(f"{number} on job {rv.JobEnvironment().raw_job_id}")
    return number * number


def main() -> None:
    """Show the three ways."""
    plan = rv.plan(gpus=1, time="10m")
    print(f"{len(plan.strategies)} ways to get 1 GPU; first {plan.strategies[0].id}")

    race = rv.launch("hostname; nvidia-smi -L", gpus=1, time="10m")
    print(f"race {race.id} ran on {race.result()}", end="")

    executor = rv.Executor(folder="rv-logs/%j")
    executor.update_parameters(timeout_min=10, cpus_per_task=1, mem_gb=1)
    jobs = executor.map_array(square, range(4))
    for future in concurrent.futures.as_completed([job.future() for job in jobs]):
        print(future.result())


if __name__ == "__main__":
    main()
