"""A program as a user of rv's Python API writes it: mypy reads it strictly, nobody runs it."""

import asyncio
import concurrent.futures
from datetime import timedelta

import rv


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def commands() -> str:
    """Plan and launch a command."""
    made = rv.plan("torchrun train.py", gpus=4, types=["a100"], time="2h", cluster="sandbox")
    print(made.submissions[0].strategy.id)
    race = rv.launch(
        ["python", "train.py"], gpus=4, time=timedelta(hours=2), vram="40G", sbatch={"nice": 100}
    )
    state: rv.RaceState = race.wait(timeout=3600)
    code: int | None = race.exit_code
    print(race.id, state, code, race.logs("err", tail=10))
    race.cancel()
    return race.result()


def functions() -> int:
    """Submit functions."""
    executor = rv.Executor(folder="logs/%j")
    executor.update_parameters(gpus_per_node=1, timeout_min=60)
    job: rv.Job[int] = executor.submit(add, 5, 7)
    jobs = executor.map_array(add, [1, 2], [3, 4])
    futures = [each.future() for each in jobs]
    total = sum(future.result() for future in concurrent.futures.as_completed(futures))
    return total + job.result()


async def concurrently() -> str:
    """Wait for several at once."""
    races = [await rv.launch_async("hostname") for _ in range(2)]
    first, _ = await asyncio.gather(*(race.result_async() for race in races))
    try:
        await races[0].wait_async(timeout=1)
    except rv.FailedJobError as failure:
        print(failure.kind is rv.ErrorKind.JOB, failure.hint)
    return first
