"""What people write by hand: submit to every partition, poll, cancel the losers.

python naive.py NAME COMMAND PARTITION...   # the reference that the fault suite must find wanting
"""

import subprocess
import sys
import time


def slurm(*argv: str) -> str:
    """Ask Slurm, and take its answer for the truth."""
    return subprocess.run(argv, capture_output=True, text=True).stdout.strip()


def submit(name: str, command: str, partitions: list[str]) -> list[str]:
    """Submit one job a partition and return the ids."""
    ids = []
    for number, partition in enumerate(partitions, 1):
        job = slurm(
            "sbatch", "--parsable", "-p", partition, "--gres=gpu:1", "-c", "1", "--mem=1G",
            "-t", "10", "-J", f"rv-{name}-{number}", "-o", "/dev/null", "--wrap", command,
        )  # fmt: skip
        if job.isdigit():
            ids.append(job)
    return ids


def first(ids: list[str]) -> str:
    """Poll until one of the jobs runs, or has run."""
    while True:
        time.sleep(3)
        rows = slurm("squeue", "-h", "-t", "all", "-j", ",".join(ids), "-o", "%A %T").splitlines()
        states = dict(row.split() for row in rows)
        for job in ids:
            if states.get(job) not in ("PENDING", "CONFIGURING", None):
                return job


def main() -> None:
    """Race."""
    name, command, *partitions = sys.argv[1:]
    ids = submit(name, command, partitions)
    winner = first(ids)
    slurm("scancel", *[job for job in ids if job != winner])
    print(f"started as job {winner}")


if __name__ == "__main__":
    main()
