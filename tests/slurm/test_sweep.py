"""Sweeps on a real cluster: each task once, whatever dies; and again only what did not succeed.

RV_SWEEP_TASKS=1000 makes the large one as large as tests/bench/sweep.py has it.
"""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from rv import sandbox
from rv.models.job import JobRecord, JobState
from rv.models.race import RaceState
from rv.race.directory import load_race
from rv.race.observe import observe
from rv.transport.local import LocalTransport
from tests.json_schema import complaints
from tests.slurm.launching import RaceFiles, Rv, group, profile

Eventually = Callable[..., Any]
TASKS = int(os.environ.get("RV_SWEEP_TASKS", "60"))


@pytest.fixture(scope="module")
def box(sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sandbox.Sandbox]:
    """Two models that do not merge, whole nodes, and a partition that takes three jobs a user."""
    groups = [
        group("a", "a100", nodes=2),
        group("v", "v100", nodes=2) | {"memory": "128G"},
        group("w", "h200"),
    ]
    spec = profile(groups, {"a100": ["a"], "v100": ["v"], "whole": ["w"], "few": ["a"]})
    spec["partitions"][2]["exclusive"] = True
    spec["partitions"][3]["qos"] = "few"
    spec["cred_expire"] = 5
    spec["qos"] = [{"name": "few", "max_submit_per_user": 3}]
    path = tmp_path_factory.mktemp("profile") / "sweeps.yaml"
    path.write_text(yaml.safe_dump(spec))
    yield sandbox.up("sweeps", path)
    sandbox.down("sweeps")


@pytest.fixture
def rv(box: sandbox.Sandbox, tmp_path: Path) -> Rv:
    return Rv(box=box, home=tmp_path)


def starts(rv: Rv) -> Counter[str]:
    """How often each task started, by its own lines."""
    path = rv.home / "starts"
    return Counter(path.read_text().split()) if path.exists() else Counter()


def succeeded(files: RaceFiles) -> Counter[str]:
    """How often each task succeeded, by its worker's lines."""
    lines = [
        line.split()
        for path in files.directory.glob("workers/*")
        for line in path.read_text().splitlines()
    ]
    return Counter(words[1] for words in lines if words[:1] == ["end"] and words[2:4] == ["0", "-"])


def most_at_a_time(files: RaceFiles) -> int:
    """The most tasks that ran at one moment."""
    paths = files.directory.glob("workers/*")
    rows = (line.split() for path in paths for line in path.read_text().splitlines() if line)
    changes = [(float(row[-2]), 1 if row[0] == "start" else -1) for row in rows]
    running = [0]
    for _, change in sorted(changes):
        running.append(running[-1] + change)
    return max(running)


def test_each_task_succeeds_once_and_failed_ones_run_again(rv: Rv) -> None:
    """5 % fail the first time. Both pools work, and never more tasks at a time than --max."""
    line = (
        f'echo $RV_TASK_ID >> {rv.home}/starts; echo "value $RV_SET_X"; sleep 0.1;'
        f" [ $((RV_TASK_ID % 20)) -ne 0 ] || [ -e {rv.home}/seen.{{}} ] ||"
        f" {{ : > {rv.home}/seen.{{}}; exit 3; }}"
    )
    failing = {str(number) for number in range(0, TASKS, 20)}
    done = rv("sweep", "-p", "a100,v100", "--max", "6", "--set", f"x=1..{TASKS}", line, timeout=900)
    first = rv.last()
    assert done.returncode == 1, done.stderr
    assert f"{TASKS - len(failing)}/{TASKS} done, {len(failing)} failed" in done.stderr
    assert starts(rv) == Counter({str(number): 1 for number in range(TASKS)})
    assert most_at_a_time(first) <= 6
    again = rv("rerun", "--failed")
    assert again.returncode == 0, again.stderr
    assert f"{TASKS}/{TASKS} done" in again.stderr
    assert succeeded(first) + succeeded(rv.last()) == Counter({str(n): 1 for n in range(TASKS)})
    assert starts(rv) == Counter({str(n): 1 + (str(n) in failing) for n in range(TASKS)})
    assert rv("logs", "--task", "17").stdout == "value 18\n"
    assert rv("rerun", first.race_id, "--failed").returncode == 2
    assert rv("rerun", "--failed").returncode == 0
    assert rv.state()["sweep"] | {"max": 6, "carried": TASKS - len(failing)} == rv.state()["sweep"]


def test_a_killed_worker_loses_its_task_and_no_other(rv: Rv, eventually: Eventually) -> None:
    """kill -9 of the batch shell: LOST, with Slurm's word for it, and run again only when asked."""
    line = f"echo $RV_TASK_ID >> {rv.home}/starts; [ -e {rv.home}/go ] || sleep 300"
    assert rv("sweep", "-d", "-p", "a100", "--max", "2", "--array", "0-5", line).returncode == 0
    eventually(lambda: len(starts(rv)) == 2)
    files = rv.last()
    eventually(lambda: len(sleeping(files.race_id)) == 2)
    (rv.home / "go").touch()
    worker = next(
        path for path in files.directory.glob("workers/*") if "start 0 " in path.read_text()
    )
    kill_batch_shell(worker.name.partition(".")[0])
    eventually(lambda: rv.state()["sweep"]["lost"] == 1)
    other = next(pid for pid in sleeping(files.race_id))
    os.kill(other, signal.SIGKILL)
    assert rv("wait").returncode == 1
    counts = rv.state()["sweep"]
    assert (counts["done"], counts["failed"], counts["lost"]) == (4, 1, 1)
    listed = rv("logs").stdout
    assert "task 0 LOST, job " in listed
    assert rv("rerun", "--failed").returncode == 0
    assert starts(rv) == Counter({"0": 2, "1": 2, "2": 1, "3": 1, "4": 1, "5": 1})


def test_what_a_killed_batch_shell_leaves_takes_no_task(rv: Rv, eventually: Eventually) -> None:
    """Slurm has given its GPU away, and kills what a job leaves only where it tracks it."""
    line = f"echo $RV_TASK_ID >> {rv.home}/starts; [ -e {rv.home}/go ] || sleep 300"
    assert rv("sweep", "-d", "-p", "a100", "--max", "1", "--array", "0-2", line).returncode == 0
    eventually(lambda: len(starts(rv)) == 1)
    (pid,) = eventually(lambda: sleeping(rv.last().race_id))
    os.kill(batch_shell(environment(pid)["SLURM_JOB_ID"]), signal.SIGKILL)
    eventually(lambda: rv.state()["state"] == "FAILED")
    (rv.home / "go").touch()
    with suppress(OSError):
        os.kill(pid, signal.SIGTERM)
    worker = next(rv.last().directory.glob("workers/*"))
    eventually(lambda: "end 0 143 " in worker.read_text())
    time.sleep(1)
    assert starts(rv) == Counter({"0": 1})
    again = rv("rerun", "--failed")
    assert again.returncode == 0, again.stderr
    assert starts(rv) == Counter({"0": 2, "1": 1, "2": 1})


def test_a_worker_that_slurm_has_forgotten_loses_its_task(
    rv: Rv, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without accounting, or after the controller lost its state, nobody ever says how it ended."""
    monkeypatch.setenv("SLURM_CONF", str(rv.box.slurm_conf))
    assert rv("sweep", "-p", "a100", "--max", "1", "--array", "0-1", "true").returncode == 0
    directory = rv.last().directory
    (directory / "verdict.json").unlink(missing_ok=True)
    (worker,) = directory.glob("workers/*")
    job = worker.name.partition(".")[0]
    eventually(lambda: rv.job_state(job) in ("", "COMPLETED"))
    worker.write_text("start 0 10 .\nend 0 0 - 11 .\n")
    (directory / "workers/99999999.0.ab12").write_text("start 1 12 .\n")
    race, now_s = load_race(str(directory), LocalTransport(rv.environment)), time.time()
    assert race
    works = JobRecord(
        job_id=99999999, name=race.name_of(1), state=JobState.RUNNING, source="squeue"
    )
    looks = [(0, ()), (30, ()), (60, (works,)), (1000, ()), (1030, ()), (2000, ())]
    states = []
    for after_s, queue in looks:
        (seen,) = observe([race], LocalTransport(rv.environment), queue, now_s + after_s)
        states.append(seen.status.state)
    unknown, running, lost = RaceState.UNKNOWN, RaceState.RUNNING, RaceState.FAILED
    assert states == [unknown, unknown, running, unknown, unknown, lost], "it was there between"
    assert "99999999: cause unknown" in seen.status.why


def test_a_requeued_worker_takes_other_tasks(rv: Rv, eventually: Eventually) -> None:
    """What it ran is LOST, also where the claim of it is gone: nothing starts twice."""
    line = f"echo $RV_TASK_ID >> {rv.home}/starts; [ -e {rv.home}/go ] || sleep 300"
    assert rv("sweep", "-d", "-p", "v100", "--max", "1", "--array", "0-3", line).returncode == 0
    eventually(lambda: starts(rv) == Counter({"0": 1}))
    files = rv.last()
    eventually(lambda: sleeping(files.race_id))
    (rv.home / "go").touch()
    (files.directory / "tasks/0/0.claim").unlink()
    worker = next(files.directory.glob("workers/*"))
    rv.slurm("scontrol", "requeue", worker.name.partition(".")[0])
    assert rv("wait").returncode == 1
    counts = rv.state()["sweep"]
    assert (counts["done"], counts["lost"]) == (3, 1)
    assert starts(rv) == Counter({str(number): 1 for number in range(4)})
    assert complaints("race", rv.state()) == []
    assert complaints("sweep_tasks", json.loads(rv("logs", "--json").stdout)) == []


def environment(pid: int) -> dict[str, str]:
    """The variables of a process."""
    pairs = (Path("/proc") / str(pid) / "environ").read_bytes().decode().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


def sleeping(race_id: str) -> list[int]:
    """The sleeps that tasks of a sweep still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_sleep = (path / "cmdline").read_bytes().startswith(b"sleep\x00300")
            if is_sleep and f"RV_INSTANCE={race_id}.".encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def batch_shell(job_id: str) -> int:
    """The process of a job's batch script, whose subshells came later."""
    scripts = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_script = b"/slurm_script" in (path / "cmdline").read_bytes()
            if is_script and environment(int(path.name))["SLURM_JOB_ID"] == job_id:
                scripts.append(int(path.name))
    return min(scripts)


def kill_batch_shell(job_id: str) -> None:
    """kill -9 of a job's batch script, and of all that it started."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            text = path.read_bytes()
            if f"SLURM_JOB_ID={job_id}\0".encode() in text:
                os.kill(int(path.parent.name), signal.SIGKILL)
        except OSError:
            continue


def test_whole_nodes_are_filled(rv: Rv) -> None:
    """On a node that Slurm gives whole four tasks of one GPU run at a time, a GPU and a port each."""
    line = "echo $CUDA_VISIBLE_DEVICES $MASTER_PORT; sleep 1"
    assert rv("sweep", "-p", "whole", "--array", "1-8", line).returncode == 0
    files = rv.last()
    assert most_at_a_time(files) == 4
    outputs = [path.read_text() for path in files.directory.glob("tasks/0/*.out")]
    assert Counter(text.split()[0] for text in outputs) == Counter(
        {str(gpu): 2 for gpu in range(4)}
    )
    assert len({text.split()[1] for text in outputs}) == 4


def test_few_jobs_take_all_tasks_in_turn(rv: Rv, eventually: Eventually) -> None:
    """With MaxSubmit 3 two workers serve; one whose time is over sends the next in its place.

    Time is over after each task here: the longest so far is said to have been longer than a day.
    """
    line = f"echo $RV_TASK_ID >> {rv.home}/starts; until [ -e {rv.home}/go ]; do sleep 0.1; done"
    assert rv("sweep", "-d", "-p", "few", "--array", "1-7", line).returncode == 0
    eventually(lambda: len(starts(rv)) == 2)
    files = rv.last()
    (files.directory / "longest").write_text("99999\n")
    (rv.home / "go").touch()
    assert rv("wait").returncode == 0
    assert starts(rv) == Counter({str(number): 1 for number in range(1, 8)})
    assert len(list(files.directory.glob("workers/*"))) >= 7


def test_workers_whose_time_is_over_are_all_replaced(rv: Rv, eventually: Eventually) -> None:
    """Also where all end at once, as those that began together do."""
    line = (
        f"echo $RV_TASK_ID >> {rv.home}/starts; n=$((RV_TASK_ID / 4));"
        f" until [ -e {rv.home}/go.$n ]; do sleep 0.1; done"
    )
    assert rv("sweep", "-d", "-p", "a100", "--max", "4", "--array", "0-8", line).returncode == 0
    eventually(lambda: len(starts(rv)) == 4)
    (rv.last().directory / "longest").write_text("99999\n")
    (rv.home / "go.0").touch()
    eventually(lambda: len(starts(rv)) == 8, timeout=60)
    (rv.home / "go.1").touch()
    (rv.home / "go.2").touch()
    assert rv("wait").returncode == 0
    assert starts(rv) == Counter({str(number): 1 for number in range(9)})


def test_a_task_cut_short_at_the_time_limit_stops_no_others(rv: Rv, eventually: Eventually) -> None:
    """Its worker, which had done others, sends the next as Slurm's TERM comes.

    SECONDS makes the worker think that most of its time is over.
    """
    line = (
        f"echo $RV_TASK_ID >> {rv.home}/starts;"
        f" [ $RV_TASK_ID -ne 1 ] || [ -e {rv.home}/go ] || sleep 300"
    )
    options = ("--time", "10m", "--env", "SECONDS=560", "--max", "1", "--array", "0-3")
    assert rv("sweep", "-d", "-p", "a100", *options, line).returncode == 0
    eventually(lambda: starts(rv) == Counter({"0": 1, "1": 1}))
    (pid,) = eventually(lambda: sleeping(rv.last().race_id))
    (rv.home / "go").touch()
    os.kill(batch_shell(environment(pid)["SLURM_JOB_ID"]), signal.SIGTERM)
    assert rv("wait").returncode == 1
    assert (rv.state()["sweep"]["done"], rv.state()["sweep"]["lost"]) == (3, 1)
    assert starts(rv) == Counter({str(number): 1 for number in range(4)})


def test_a_worker_without_a_seat_leaves_the_next_one_in_the_queue(
    rv: Rv, eventually: Eventually
) -> None:
    """It may be what a worker whose time is over has just sent in its place."""
    line = f"echo $RV_TASK_ID >> {rv.home}/starts; [ -e {rv.home}/go ] || sleep 300"
    options = ("-d", "-p", "a100,v100", "--max", "1", "--array", "0-1")
    assert rv("sweep", *options, line).returncode == 0
    files = rv.last()
    eventually(lambda: len(starts(rv)) == 1)
    script = str(files.directory / "jobs/1.sh")
    sent = rv.slurm("sbatch", "--parsable", "--begin=now+1hour", "--array=1", script).strip()
    eventually(lambda: len(files.claimants) == 2)
    eventually(lambda: rv.job_state(files.submitted[2][0]) == "COMPLETED")
    assert rv.job_state(sent) == "PENDING"
    (rv.home / "go").touch()
    for pid in sleeping(files.race_id):
        os.kill(pid, signal.SIGTERM)
    rv("wait")
    eventually(lambda: rv.job_state(sent) == "CANCELLED")


def test_stop_ends_all_and_what_is_left_can_be_run(rv: Rv, eventually: Eventually) -> None:
    """No task starts afterwards. Two clients that run the rest again at once make one sweep."""
    line = f"echo $RV_TASK_ID >> {rv.home}/starts; [ -e {rv.home}/go ] || sleep 300"
    assert rv("sweep", "-d", "-p", "a100", "--array", "0-19", line).returncode == 0
    eventually(lambda: len(starts(rv)) >= 4)
    stopped = rv.last()
    assert rv("stop").returncode == 0
    # Jobs that Slurm still ends are no end yet, and are said to be ended.
    state = rv.state()
    assert state["state"] == "CANCELLED" or "being cancelled" in state["why"]
    eventually(lambda: rv.state()["state"] == "CANCELLED")
    assert rv.state()["sweep"]["running"] == 0
    (rv.home / "go").touch()
    before = starts(rv)
    clients = [rv.launch("rerun", stopped.race_id, "--failed") for _ in range(2)]
    outputs = [client.communicate(timeout=120) for client in clients]
    assert sorted(client.returncode for client in clients) == [0, 2], outputs
    assert starts(rv) == before + Counter({str(number): 1 for number in range(20)})


def test_stop_ends_workers_whose_array_has_lost_its_first_id(
    rv: Rv, eventually: Eventually
) -> None:
    """Slurm 22.05 cancels no worker by an id of its own; the array's is the last worker's."""
    line = f"echo $RV_TASK_ID >> {rv.home}/starts; sleep 300"
    assert rv("sweep", "-d", "-p", "a100", "--array", "0-2", line).returncode == 0
    eventually(lambda: len(starts(rv)) == 3)
    files = rv.last()
    (array,) = files.submitted[1]
    os.kill(
        next(p for p in sleeping(files.race_id) if environment(p)["SLURM_JOB_ID"] == str(array)),
        signal.SIGKILL,
    )
    eventually(lambda: rv.job_state(f"{array}_3") in ("COMPLETED", ""))
    begun = time.monotonic()
    assert rv("stop").returncode == 0
    assert time.monotonic() - begun < 20
    eventually(lambda: sleeping(files.race_id) == [], timeout=10)


def test_values_reach_the_task_as_they_are(rv: Rv) -> None:
    """And no shell reads them; what a task leaves running ends with it."""
    values = [
        "; rm -rf $HOME",
        "it's",
        'a "b"',
        "line\nbreak",
        "$(id)",
        "`id`",
        "ünï",
        "*",
        "",
        "a,b",
    ]
    quoted = ",".join("'" + v + "'" if '"' in v else '"' + v + '"' for v in values)
    script = rv.home / "show.py"
    script.write_text(
        "import json, subprocess, sys\n"
        "subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "print(json.dumps(sys.argv[1:]))\n"
    )
    done = rv(
        "sweep", "-p", "a100", "--set", f"v={quoted}", "--", "python3", "show.py", "--v={v}", "{v}"
    )
    assert done.returncode == 0, done.stderr
    race = rv.last()
    for number, value in enumerate(values):
        shown = (race.directory / f"tasks/0/{number}.out").read_text()
        assert json.loads(shown) == [f"--v={value}", value]
    assert sleeping(race.race_id) == []


def test_a_worker_that_leaves_a_bad_node_takes_no_other_with_it(
    rv: Rv, eventually: Eventually
) -> None:
    """The array's last worker bears the id of the whole array. Where no node is left to one that
    waits, the others go on, and the sweep is not over.
    """
    line = f"echo $RV_TASK_ID >> {rv.home}/starts; [ -e {rv.home}/go ] || sleep 300"
    try:
        sandbox.set_fault(rv.box, "v2", "error")
        assert rv("sweep", "-d", "-p", "v100", "--array", "0-9", line).returncode == 0
        files = rv.last()
        eventually(lambda: len(starts(rv)) == 4 and files.names("declined") == ["v2"])
        eventually(lambda: len(sleeping(files.race_id)) == 4)
        sandbox.set_fault(rv.box, "v1", "error")
        kill_batch_shell(environment(sleeping(files.race_id)[0])["SLURM_JOB_ID"])
        eventually(lambda: files.names("exhausted") == ["1"])
        counts = rv.state()
        assert (counts["state"], counts["sweep"]["lost"]) == ("RUNNING", 1)
    finally:
        sandbox.set_fault(rv.box, "v1", None)
        sandbox.set_fault(rv.box, "v2", None)
    (rv.home / "go").touch()
    for pid in sleeping(files.race_id):
        os.kill(pid, signal.SIGTERM)
    assert rv("wait").returncode == 1
    assert starts(rv) == Counter({str(number): 1 for number in range(10)})
