"""A run that can be interrupted: `rv run --checkpoint --time 12h -- python resume.py 1000`.

rv sends SIGUSR1 (and leaves a file `.rv-stop` in RV_CHECKPOINT_DIR, for programs that cannot take
a signal) when the time of a segment runs out. The program saves what it has and ends with 0; the
next segment goes on from there. Under torchrun every rank gets the signal, and rank 0 does the
work here.
"""

import os
import signal
import sys
import time
from pathlib import Path

CHECKPOINT = Path(os.environ.get("RV_CHECKPOINT_DIR", "."), "step")
OVER = CHECKPOINT.with_name("over")
RANK = int(os.environ.get("RANK", "0"))

told: list[int] = []


def load() -> int:
    """Where the last segment came to."""
    return int(CHECKPOINT.read_text(encoding="utf-8")) if CHECKPOINT.exists() else 0


def save(step: int) -> None:
    """Write the checkpoint, whole or not at all: this process may be killed at any moment."""
    new = CHECKPOINT.with_name(".step.new")
    new.write_text(str(step), encoding="utf-8")
    new.replace(CHECKPOINT)


def work(step: int) -> None:
    """One step; what it leaves shows that none was lost or done twice."""
    time.sleep(1)
    with Path("steps").open("a", encoding="utf-8") as log:
        log.write(f"{step}\n")


def main() -> None:
    """Work from the last checkpoint until done, or until told to save."""
    signal.signal(signal.SIGUSR1, lambda *_: told.append(1))
    step, last = load(), int(sys.argv[1])
    segment = os.environ.get("RV_SEGMENT", "1")
    print(f"segment {segment} rank {RANK} from step {step} of {last}", flush=True)
    if RANK > 0:
        while not told and not OVER.exists():
            time.sleep(0.1)
    else:
        while step < last and not told:
            step += 1
            work(step)
        save(step)
        if step == last:
            OVER.touch()
    # Python takes its handlers away before it ends: a late signal would kill it then.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


if __name__ == "__main__":
    main()
