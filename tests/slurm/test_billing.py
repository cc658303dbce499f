"""What rv says that a job costs is what Slurm bills for it."""

import json
import re

import pytest

from tests.slurm.launching import Rv, group, profile

WEIGHTS = {"CPU": 2, "Mem": "1G", "GRES/gpu": 10}


@pytest.mark.parametrize(
    ("flags", "expected"), [({}, 2 * 6 + 16 + 10 * 2), ({"PriorityFlags": "MAX_TRES"}, 20)]
)
@pytest.mark.parametrize("exclusive", [False, True], ids=["shared", "exclusive"])
def test_the_billing_of_a_real_job(fresh_sandbox, tmp_path, eventually, flags, expected, exclusive):
    """The sum of all weights, or with MAX_TRES the largest; of whole nodes where they are given."""
    shape = profile([group("v", "v100")], slurm_conf=flags)
    shape["partitions"][0] |= {"billing": WEIGHTS, "exclusive": exclusive}
    rv = Rv(box=fresh_sandbox(shape), home=tmp_path)
    asked = ("--gpu", "2", "--cpus", "6", "--mem", "16G", "--time", "1h")
    told = json.loads(rv("cost", *asked, "--json").stdout)["costs"]
    assert rv("up", *asked, "-d", "--run", "sleep 60").returncode == 0
    eventually(lambda: rv.state()["state"] == "RUNNING")
    shown = rv.slurm("scontrol", "show", "job", str(rv.state()["winner"]["job_id"]))
    # Newer Slurm shows what was asked for too.
    billed = int(re.search(r"\b(?:Alloc)?TRES=\S*\bbilling=(\d+)", shown)[1])
    assert told[0]["cost"] == billed
    if not exclusive:
        assert billed == expected
