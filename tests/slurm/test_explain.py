"""`rv explain` says what Slurm itself says, and the change that it names starts at once."""

import json
import time
from datetime import datetime

import pytest

from tests.slurm.launching import Rv, group, profile

PASSES = {"bf_interval": 2, "bf_continue": "", "sched_interval": 3}


@pytest.fixture
def rv(fresh_sandbox, tmp_path):
    """Two nodes of four V100, one of two A40, and a partition where a user may have two GPUs."""
    shape = profile(
        [group("v", "v100", nodes=2), group("a", "a40", gpus=2), group("q", "l4")],
        {"gpu": ["v"], "other": ["a"], "few": ["q"]},
        scheduler=PASSES,
        qos=[{"name": "few", "max_tres_per_user": {"gres/gpu": 2}}],
    )
    shape["partitions"][2]["qos"] = "few"
    return Rv(box=fresh_sandbox(shape), home=tmp_path)


@pytest.fixture
def explained(rv, eventually):
    """Explain the latest race, as soon as Slurm has a word on each of its jobs."""

    def explain(*reasons):
        def told():
            done = rv("explain", "--json")
            assert done.returncode == 0, done.stderr
            answer = json.loads(done.stdout)
            return answer if [job["reason"] for job in answer["jobs"]] == list(reasons) else None

        return eventually(told)

    return explain


def fill(rv, eventually, *gpus):
    """Fill so many GPUs of the nodes v1 and v2, and let the snapshot of before grow too old."""
    jobs = [rv.fill(f"v{node}", count, "-t", "60") for node, count in enumerate(gpus, 1) if count]
    eventually(lambda: {rv.job_state(job) for job in jobs} == {"RUNNING"})
    time.sleep(2)  # so old may the snapshot be that rv explains by


def wait_for(rv, *options):
    """Start a race that will wait."""
    done = rv("up", "-d", "--run", "sleep 600", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def planned(rv, job_id):
    """Slurm's own plan for a job's start, once it has one."""
    text = rv.slurm("squeue", "--start", "-h", "-j", str(job_id), "-o", "%S").strip()
    return None if text in ("", "N/A") else datetime.fromisoformat(text)


def test_a_full_cluster_its_line_and_a_hole(rv, explained, eventually):
    """Reason, place and plan are Slurm's; a shorter race starts where the text says that it would."""
    rv.fill("v1", 4, "-t", "60")
    eventually(lambda: "RUNNING" in rv.slurm("squeue", "-h", "-o", "%T"))
    for name in ("big", "next"):
        wide = ("-N2", "-t", "120", "-c", "8", "--mem=1G", "--gres=gpu:4", "-J", name)
        rv.slurm("sbatch", "-p", "gpu", *wide, "-o", "/dev/null", "--wrap", "sleep 900")
    eventually(lambda: "v[1-2]" in rv.slurm("squeue", "-h", "-t", "PD", "-O", "SchedNodes"))
    wait_for(rv, "--gpu", "4", "--type", "v100", "--time", "3h", "--sbatch", "nice=50")

    told = explained("Priority")
    (job,) = told["jobs"]
    assert (job["place"], job["waiting"]) == (3, 3)
    assert job["why"] == "others are ahead in the queue (Priority)"

    # Slurm forgets a job's start while it plans it anew, so that either may have none just now.
    def both():
        (job,) = explained("Priority")["jobs"]
        start = planned(rv, job["job_id"])
        return job["planned_in_s"] is not None and start and (job["planned_in_s"], start)

    seconds, start = eventually(both)
    clock = datetime.fromisoformat(rv.slurm("date", "+%FT%T").strip())
    assert seconds == pytest.approx((start - clock).total_seconds(), abs=60)

    (change,) = [c for c in told["changes"] if c["options"].startswith("--time")]
    assert change["options"] == "--time 50m"
    assert change["strategy"]["estimate"]["source"] == "hole"
    rows = [line.split() for line in rv("explain").stdout.splitlines()]
    assert ["--time", "50m", "v100/1x4/gpu", "now", "(backfill", "window"] in [
        row[:6] for row in rows
    ]
    started = rv("up", "--gpu", "4", "--type", "v100", *change["options"].split(), "--run", "true")
    assert started.returncode == 0, started.stderr


def test_other_gpus_and_fewer_of_them(rv, explained, eventually):
    """Types that are free are named where types were asked for; fewer GPUs where that is enough."""
    fill(rv, eventually, 4, 4)
    wait_for(rv, "--gpu", "2", "--type", "v100")
    told = explained("Resources")
    assert {c["options"] for c in told["changes"]} == {"--type a40"}
    rv("stop")
    rv.slurm("scancel", "-w", "v2")
    fill(rv, eventually, 0, 3)
    wait_for(rv, "--gpu", "2", "-p", "gpu")
    told = explained("Resources")
    assert {c["options"] for c in told["changes"]} == {"-p other", "--gpu 1"}


def test_free_gpus_beside_a_job_that_was_planned_there_and_runs(
    fresh_sandbox, tmp_path, eventually
):
    """Slurm leaves its nodes PLANNED until the next pass; what is free of them starts at once."""
    shape = profile(
        [group("v", "v100", nodes=2)], {"gpu": ["v"]}, scheduler={**PASSES, "bf_interval": 20}
    )
    rv = Rv(box=fresh_sandbox(shape), home=tmp_path)
    filler = rv.fill("v1", 4, "-t", "60")
    eventually(lambda: rv.job_state(filler) == "RUNNING")
    wide = rv.slurm(
        "sbatch", "--parsable", "-N2", "-t", "60", "--mem=100", "--gres=gpu:2", "-o", "/dev/null",
        "--wrap", "exec sleep 3600",
    ).strip()  # fmt: skip

    def is_marked():
        return "PLANNED" in rv.slurm("scontrol", "show", "node", "v2")

    eventually(is_marked, timeout=60)
    rv.slurm("scancel", filler)
    eventually(lambda: rv.job_state(wide) == "RUNNING")
    told = rv("up", "--dry-run", "--json", "--gpu", "2", "-x", "v1", "--run", "true")
    assert is_marked(), "a backfill pass came in between"
    best = json.loads(told.stdout)["strategies"][0]
    assert best["estimate"]["source"] == "idle"


def test_a_limit_of_a_qos(rv, explained, eventually):
    """The user has all that the QOS gives; there are free GPUs, and fewer would not help."""
    wait_for(rv, "--gpu", "2", "-p", "few", "--name", "first")
    eventually(lambda: rv.state()["state"] == "RUNNING")
    wait_for(rv, "--gpu", "2", "-p", "few")
    told = explained("QOSMaxGRESPerUser")
    assert told["jobs"][0]["why"] == (
        "with it you would use more GPUs than the QOS allows (QOSMaxGRESPerUser)"
    )
    assert told["has_room"] is None
    assert [c["options"] for c in told["changes"]] == ["-p other"]


def test_a_held_job_and_one_that_waits_for_its_time(rv, explained, eventually):
    """They have no place in the line; that there is room for them is said."""
    wait_for(rv, "--type", "a40", "--sbatch", "begin=now+1hour")
    told = explained("BeginTime")
    (job,) = told["jobs"]
    assert (job["place"], job["waiting"]) == (None, None)
    assert 3500 < job["planned_in_s"] <= 3600
    assert told["has_room"]["id"] == "a40/1x1/other"
    rv.slurm("scontrol", "uhold", str(job["job_id"]))
    explained("JobHeldUser")
    text = rv("explain").stdout
    assert "held by its user (scontrol release lets it go) (JobHeldUser)" in text
    assert "There seems to be room as it stands: a40/1x1/other, now (idle)." in text


def test_a_job_that_depends_on_another(rv, explained):
    """Slurm's word for it, whoever made it so."""
    other = rv.fill("v1", 4, "-t", "60")
    wait_for(rv, "--type", "a40", "--sbatch", "begin=now+1hour")
    (job,) = explained("BeginTime")["jobs"]
    rv.slurm(
        "scontrol", "update", f"jobid={job['job_id']}", f"dependency=afterany:{other}",
        "starttime=now",
    )  # fmt: skip
    (job,) = explained("Dependency")["jobs"]
    assert job["why"] == "another job must end first (Dependency)"


def test_a_race_that_runs_and_one_that_has_ended(rv, eventually):
    """One line each; there is nothing to explain."""
    wait_for(rv, "--type", "a40", "--name", "runs")
    eventually(lambda: rv.state()["state"] == "RUNNING")
    job = rv.state()["winner"]["job_id"]
    assert rv("explain").stdout == f"race {rv.last().race_id} runs on a1 as job {job}\n"
    rv("stop")
    eventually(lambda: rv.state()["state"] == "CANCELLED")
    ended = rv("explain", "runs").stdout
    assert ended.startswith(f"race {rv.last().race_id} CANCELLED")
    assert ended.count("\n") == 1
    assert json.loads(rv("explain", "--json").stdout)["jobs"] == []
