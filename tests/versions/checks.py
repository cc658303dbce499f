"""What tests/versions.sh runs in each chroot, after README's first command: rv on this Slurm.

checks.py FOLDER writes into it a line `check, ok or what failed, seconds` for each check (steps), a
dry run that must be the same with every Slurm (dry-run.json), and what Slurm printed (captured).
"""

import inspect
import json
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = Path(sys.argv[1])
HOME = Path.home()
SENTINEL = "rv0123456789abcdef"
ASK = 'echo "told $RV_GPU"; nvidia-smi --query-gpu=name --format=csv,noheader'
WORK = """
import os, time
from pathlib import Path
folder = Path(os.environ["RV_CHECKPOINT_DIR"])
starts = folder / "starts"
with starts.open("a") as file:
    file.write(os.environ["RV_SEGMENT"] + "\\n")
count = len(starts.read_text().split())
if count == 1:  # until it is preempted
    time.sleep(300)
(folder / f"work{count}").touch()
(folder / ".rv-next").write_text("again" if count == 2 else "done")
"""


def run(*argv: str, code: int | None = 0, timeout: float = 120) -> str:
    """Run a command, log it, and return what it printed."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout)
    print(f"$ {' '.join(argv)}\n{done.stdout}{done.stderr}-> {done.returncode}", flush=True)
    assert code is None or done.returncode == code, f"{argv[:3]} ended with {done.returncode}"
    return done.stdout


def rv(*words: str, code: int | None = 0) -> str:
    """Run rv as users do."""
    return run(str(Path(sys.executable).parent / "rv"), *words, code=code)


def answer(*words: str, code: int | None = 0) -> Any:
    """Run rv with --json."""
    return json.loads(rv(words[0], "--json", *words[1:], code=code))


def eventually(what: Callable[[], Any], timeout: float = 60) -> Any:
    """Wait until something holds."""
    deadline = time.monotonic() + timeout
    while not (value := what()):
        assert time.monotonic() < deadline, inspect.getsource(what).strip()
        time.sleep(0.5)
    return value


@contextmanager
def filled(partition: str, node: str, gpus: int = 4) -> Iterator[str]:
    """Hold all GPUs of a node by a job that is not rv's."""
    words = (f"-p{partition}", f"-w{node}", f"--gres=gpu:{gpus}", "--mem=100", "-t60")
    job = run("sbatch", "--parsable", "--output=/dev/null", *words, "--wrap=sleep 600").strip()
    eventually(lambda: state(job) == "R")
    try:
        yield job
    finally:
        run("scancel", job)
        eventually(lambda: not state(job))


def state(job: str) -> str:
    """Slurm's short word for a job's state."""
    return run("squeue", "-h", "-j", job, "-o", "%t", code=None).strip()


def newcomer() -> None:
    """README's first five commands as they stand there, then acceptance by a payload without torch.

    Nobody has installed torch here, which the second command needs; check.py makes a WARN of it.
    """
    rv("sandbox", "up", "--profile", "campus")
    readme = (HERE.parents[1] / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## First five commands")[2]
    lines = section.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert len(lines) == 5, lines
    said = [typed(line) for line in lines]
    assert "sbatch -p " in said[0]
    assert "torchrun: command not found" in said[1]
    assert "[RESULT] WARN: no torch" in said[2]
    assert said[2].rpartition("race ")[2][:8] in said[3]
    assert "[RESULT] WARN: no torch" in said[4]
    assert json.loads(rv("accept", "run", "storage_net", "--json"))["verdict"] == "PASS"
    rv("sandbox", "down")


def typed(line: str) -> str:
    """Type a line of README, and return all that it said."""
    path = f"PATH={Path(sys.executable).parent}:$PATH"
    code = 127 if "torchrun" in line else 0
    return run("bash", "-c", f"{path}\n{{ {line.partition('#')[0]}; }} 2>&1", code=code)


def start() -> None:
    """The cluster of this folder comes up, from nothing."""
    rv("sandbox", "down")
    rv("sandbox", "up", "--profile", str(HERE / "cluster.yaml"))
    (box,) = (HOME / ".local/state/rv/sandbox").glob("*.json")
    os.environ["SLURM_CONF"] = json.loads(box.read_text())["directory"] + "/slurm.conf"


def dry_run() -> None:
    """One plan for every Slurm: only what names the moment or this Slurm is left out."""
    plans = {}
    for words in (
        "--gpu 1",
        "--gpu 4",
        "--gpu 8 --multi-node",
        "--mig",
        "--gpu 4 -p mixed",
        "--checkpoint -p low",
    ):
        text = rv("up", "--dry-run", "--json", "--time", "10m", "--run", "true", *words.split())
        race = json.loads(text)["submissions"][0]["name"].split("-")[1]
        plans[words] = json.loads(re.sub(r"\b[0-9a-f]{32}\b", "NONCE", text.replace(race, "RACE")))
    text = json.dumps(plans, indent=1, sort_keys=True)
    (FOLDER / "dry-run.json").write_text(re.sub(r"/root/[^ \"'\\]*", "PATH", text))


def race() -> None:
    """The command's output and exit code come back."""
    end = answer(
        "run",
        "--gpu",
        "2",
        "-p",
        "volta",
        "--time",
        "10m",
        "--",
        "sh",
        "-c",
        "nvidia-smi -L; exit 7",
        code=7,
    )
    assert (end["state"], end["exit_code"]) == ("FAILED", 7)


def two_nodes() -> None:
    """A race over two nodes, each of which prints."""
    rv("run", "--gpu", "8", "-p", "volta", "--multi-node", "--time", "10m", "--", "hostname")
    lines = answer("logs")["output"]
    assert {line["node"] for line in lines} == {0, 1}, lines


def mig() -> None:
    """One slice."""
    out = rv("run", "--mig", "--time", "10m", ASK)
    assert "told 1g.10gb" in out


def merged() -> None:
    """One job for several strategies, where only the last of them can start."""
    with filled("volta", "v1"), filled("volta", "v2"):
        became("volta,ampere", "a40", "m")
    with filled("mixed", "u1"):
        became("mixed", "a40", "w")


def became(partitions: str, model: str, node: str) -> None:
    out = rv("up", "-p", partitions, "--gpu", "4", "--single-node", "--time", "10m", "--run", ASK)
    assert f"told {model}" in out
    assert out.count("NVIDIA A40") == 4
    end = answer("ps")["races"][0]
    assert "submitted 1 job" in out or len(end["jobs"]) == 1, end["jobs"]
    assert end["winner"]["strategy"].startswith(f"{model}/")
    assert end["winner"]["nodes"].startswith(node)


def chain() -> None:
    """Two segments; the first is preempted, and goes on where it was."""
    folder = HOME / "chain"
    folder.mkdir(exist_ok=True)
    (folder / "work.py").write_text(WORK)
    words = ("--checkpoint", "-p", "low", "--time", "2h", "--gpu", "4", "-d")
    started = answer("run", *words, "--", "python3", str(folder / "work.py"))["race"]
    eventually(lambda: answer("ps")["races"][0]["state"] == "RUNNING")
    # The command itself starts after the claim.
    begun = Path(answer("ps")["races"][0]["directory"]) / "checkpoints" / "starts"
    eventually(begun.exists)
    with filled("high", "p1"):
        eventually(lambda: answer("ps")["races"][0]["state"] == "PENDING")
    end = eventually(lambda: ended(started), 120)
    assert end["state"] == "COMPLETED", end
    assert end["chain"]["segment"] == 3
    assert [one["next"] for one in end["chain"]["segments"]][1:] == ["again", "done"]


def ended(race: str) -> Any:
    """The race, when it is over."""
    (found,) = [one for one in answer("ps", "-a")["races"] if one["race"] == race]
    return found if found["state"] not in ("STAGED", "PENDING", "RUNNING") else None


def commands() -> None:
    """ps, logs, status, explain and stop, of a race that waits and one that runs."""
    with filled("volta", "v1"), filled("volta", "v2"):
        words = ("--gpu", "8", "--multi-node", "-p", "volta", "--time", "10m", "-d")
        waits = answer("run", *words, "--", "sleep", "600")["race"]
        why = answer("explain", waits)
        assert why["jobs"][0]["state"] == "PENDING", why
        assert why["jobs"][0]["why"], why
        (volta,) = [one for one in answer("status")["gpus"] if one["partition"] == "volta"]
        assert (volta["free"], volta["total"]) == (0, 8), volta
        stopped = answer("stop", waits)["stopped"]
        assert [one["unconfirmed"] for one in stopped] == [[]] or not stopped[0]["unconfirmed"]
    runs = answer(
        "run",
        "--gpu",
        "1",
        "-p",
        "volta",
        "--time",
        "10m",
        "-d",
        "--",
        "sh",
        "-c",
        "echo hello; sleep 600",
    )
    eventually(lambda: "hello" in rv("logs", runs["race"]))
    rv("stop", runs["race"])
    states = {one["race"]: one["state"] for one in answer("ps", "-a")["races"]}
    assert states[waits] == states[runs["race"]] == "CANCELLED", states
    eventually(lambda: not run("squeue", "-h").strip())


def records() -> None:
    """What this Slurm prints of jobs and nodes is read as what it means; the texts are kept."""
    from rv.slurm import probe, sacct, scontrol, squeue, squeue_scripts
    from rv.slurm.script import parse_outputs

    submit = ("sbatch", "--output=/dev/null", "--parsable", "-pvolta", "-t60", "--mem=100", "-J")
    whole_node = ("-wv1", "--gres=gpu:4")
    runs = run(*submit, "rv-captured-1", *whole_node, "--wrap=sleep 600").strip()
    run(*submit, "odd SLUID=s1 UserId=x(1) JobState=FAILED", "-d", f"afterok:{runs}", "--wrap=true")
    jobs = {
        "rv-captured-1": (runs, "RUNNING"),
        "rv-captured-2": (run(*submit, "rv-captured-2", "--wrap=true"), "COMPLETED"),
        "rv-captured-3": (run(*submit, "rv-captured-3", "--wrap=exit 3"), "FAILED"),
        "rv-captured-4": (run(*submit, "rv-captured-4", *whole_node, "--wrap=true"), "PENDING"),
    }
    eventually(lambda: state(runs) == "R")
    eventually(lambda: len(run("squeue", "-h", "-tPD,R,CG", "-o%A").split()) == 3)
    care = "reservation=care nodes=w1 flags=maint user=root start=now duration=60"
    run("scontrol", "create", *care.split())
    ids = [int(job) for job, _ in jobs.values()]
    since = datetime.now() - timedelta(hours=1)  # noqa: DTZ005 - on Slurm's clock
    questions = {
        "own_queue": (squeue_scripts.squeue_own_script(SENTINEL), squeue.parse_squeue_own),
        "own_show_jobs": (scontrol.show_job_script(ids, SENTINEL), scontrol.parse_show_job),
        "own_sacct": (sacct.sacct_script(list(jobs), since, SENTINEL), sacct.parse_sacct),
    }
    expected = {name: state for name, (_, state) in jobs.items()}

    def told(what: str) -> bool:
        script, parse = questions[what]
        text = run("bash", "-c", script)
        (FOLDER / f"{what}.txt").write_text(text)
        states = {job.name: job.state.value for job in parse(text, SENTINEL) or ()}
        return {name: states.get(name) for name in jobs} == expected

    for what in questions:
        eventually(lambda what=what: told(what), 20)
    eventually(lambda: "maint" in run("sinfo", "-h", "-nw1", "-o%t"))
    text = run("bash", "-c", probe.probe_script(SENTINEL))
    (FOLDER / "probe.txt").write_text(text)
    snapshot = probe.build_snapshot(parse_outputs(text, SENTINEL) or {}, SENTINEL)
    assert "MAINT" in {node.name: node.states for node in snapshot.nodes}["w1"]
    run("scontrol", "delete", "reservation=care")
    run("scancel", "--user=root")
    eventually(lambda: not run("squeue", "-h").strip())


def down() -> None:
    """No process and no folder of the sandbox is left, though a job ran."""
    run("sbatch", "--output=/dev/null", "--gres=gpu:1", "-pvolta", "-t60", "--wrap=srun sleep 600")
    eventually(lambda: len(programs("slurmstepd")) >= 2)
    rv("sandbox", "down")
    left = [one for name in ("slurm", "munged", "mariadbd", "sleep") for one in programs(name)]
    assert not left, left
    assert not list(Path("/var/lib").glob("rv-sandbox/*"))


def programs(start: str) -> list[str]:
    """Running processes by the beginning of their name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = path.read_text()
        except OSError:  # it ended meanwhile
            continue
        if f" ({start}" in stat and ") Z " not in stat:
            found.append(stat)
    return found


def boots() -> None:
    """The profile campus comes up from nothing, three times."""
    for _ in range(3):
        run("rm", "-rf", str(HOME / ".cache/rv"))
        rv("sandbox", "up", "--profile", "campus")
        rv("sandbox", "down")


CHECKS = [
    newcomer,
    start,
    dry_run,
    race,
    two_nodes,
    mig,
    merged,
    chain,
    commands,
    records,
    down,
    boots,
]


def main() -> int:
    """Run every check; one that fails does not keep the others."""
    failed = 0
    for check in CHECKS:
        begun = time.monotonic()
        print(f"== {check.__name__}", flush=True)
        try:
            check()
            result = "ok"
        except Exception as error:
            traceback.print_exc()
            result = f"FAILED: {error}".replace("\n", " ")[:100]
            failed += 1
        seconds = round(time.monotonic() - begun)
        with (FOLDER / "steps").open("a") as file:
            file.write(f"{check.__name__}\t{result}\t{seconds}\n")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
