"""What rv prints of a real race with --json is what docs/rv.schema.json says."""

import json
from pathlib import Path
from typing import Any

from rv import sandbox
from tests.json_schema import complaints
from tests.slurm.launching import Rv


def test_a_race_from_its_launch_to_its_end(
    small: sandbox.Sandbox, tmp_path: Path, eventually: Any
) -> None:
    """Waiting, running, cancelled and over; a chain too."""
    rv = Rv(box=small, home=tmp_path)

    def prints(kind: str, *words: str) -> Any:
        done = rv(words[0], "--json", *words[1:])
        assert done.stdout, (words, done.stderr)
        value = json.loads(done.stdout)
        assert complaints(kind, value) == [], (words, done.stdout)
        return value

    prints("race", "run", "--gpu", "1", "--name", "done", "echo out; echo err >&2; exit 3")
    prints("output", "logs", "done")
    prints("error", "gpu", "done")
    prints("race", "run", "--checkpoint", "--time", "30m", "--", "true")
    for name in ("wide", "late"):
        words = ("--gpu", "8", "--type", "a100", "--multi-node", "--name", name)
        prints("race", "run", "-d", *words, "exec sleep 600")
    eventually(lambda: [race["state"] for race in prints("races", "ps")["races"]].count("RUNNING"))
    assert prints("gpus", "gpu", "wide")["gpus"]
    assert prints("explanation", "explain", "late")["jobs"]
    prints("explanation", "explain", "wide")
    prints("races", "ps", "-a")
    prints("status", "status")
    assert prints("stopped", "stop", "--all")["stopped"]
    prints("error", "logs", "nothing-of-this-name")
