"""Waiting for races, racing again, notices and chains that go on, on one small cluster."""

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from rv import sandbox
from tests.slurm.launching import Rv, group, profile

Eventually = Callable[..., None]
MODELS = ("v100", "a6000", "a40", "a100")


@pytest.fixture(scope="module")
def box(sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sandbox.Sandbox]:
    """Four models that do not merge, and passes in which jobs that came together start together."""
    groups = [
        group(f"{model}n", model, gpus=8) | {"memory": f"{round(64 * 1.4**index)}G"}
        for index, model in enumerate(MODELS)
    ]
    passes = {"defer": "", "sched_interval": 1, "batch_sched_delay": 0, "bf_interval": 3}
    spec = profile(groups, {model: [f"{model}n"] for model in MODELS}, scheduler=passes)
    path = tmp_path_factory.mktemp("profile") / "four.yaml"
    path.write_text(yaml.safe_dump(spec))
    yield sandbox.up("four", path)
    sandbox.down("four")


@pytest.fixture
def rv(box: sandbox.Sandbox, tmp_path: Path) -> Rv:
    return Rv(box=box, home=tmp_path)


def launched(rv: Rv, *arguments: str) -> str:
    """Submit a race and return its id at once."""
    done = rv("run", "-d", "--time", "10m", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def posts() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A URL, and what was posted there."""
    got: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/hook?it=1", got
        server.shutdown()
        thread.join()


def test_notices_come_once_from_the_winner_and_never_from_losers(
    rv: Rv, posts: tuple[str, list[dict[str, Any]]], eventually: Eventually
) -> None:
    """Of races whose four jobs start together; a notice that hangs or fails changes no code."""
    url, got = posts
    told = rv.home / "told"
    tell = f'echo "$RV_RACE $RV_EVENT $RV_STATE $RV_EXIT_CODE $SLURM_JOB_ID" >> {told}; exit 7'
    begun = time.monotonic()
    races = [
        launched(rv, "--fanout", "each", "--notify", f"start,end,fail={tell}",
                 "--notify", f"start,fail={url}", "--notify", "end=exec sleep 3600",
                 f"sleep 1; exit {code}")
        for code in (0, 3, 0, 3)
    ]  # fmt: skip
    waited = rv("wait", *races, "--json")
    assert waited.returncode == 3, waited.stderr
    eventually(lambda: not rv.queue(), timeout=60)
    assert time.monotonic() - begun < 100
    ends = {race["race"]: race for race in map(json.loads, waited.stdout.splitlines())}
    assert set(ends) == set(races)
    expected = Counter()
    for race in races:
        code, job = ends[race]["exit_code"], ends[race]["winner"]["job_id"]
        event, state = ("fail", "FAILED") if code else ("end", "COMPLETED")
        expected += Counter(
            [f"{race} start RUNNING  {job}", f"{race} {event} {state} {code} {job}"]
        )
        posted = [(post["event"], post["exit_code"]) for post in got if post["race"] == race]
        assert posted == [("start", None)] + ([("fail", 3)] if code else [])
        assert rv.job_state(job) in ("", "COMPLETED", "FAILED")
    assert Counter(lines(told)) == expected
    assert sum(len(files.begun) > 1 for files in rv.files()) > 0, "no race was contested"
    assert "the command for start ended with code 7" in "".join(each.logs() for each in rv.files())


def test_a_stop_is_told_too(rv: Rv, eventually: Eventually) -> None:
    """The job ends by Slurm's TERM, and has time to say so.

    A race is RUNNING from its claim on; one stopped before its command begins tells nothing.
    """
    told, begun = rv.home / "told", rv.home / "begun"
    told_to = f'end=echo "$RV_EVENT $RV_STATE" >> {told}'
    race = launched(rv, "--notify", told_to, f"touch {begun}; sleep 600")
    eventually(begun.exists)
    assert rv("stop", race).returncode == 0
    eventually(lambda: lines(told) == ["fail CANCELLED"])


def test_a_wait_tells_each_end_and_comes_to_the_worst_code(rv: Rv, eventually: Eventually) -> None:
    """One query of the queue serves all; a timeout and Ctrl-C leave the races alone."""
    gate = rv.home / "gate"
    held = f"while [ ! -e {gate} ]; do sleep 0.1; done"
    for name, command in (
        ("one", "true"),
        ("pair", f"{held}; exit 4"),
        ("pair", f"{held}; exit 9"),
    ):
        launched(rv, "--name", name, command)
    assert rv("wait", "one").returncode == 0
    gave_up = rv("wait", "pair", "--timeout", "1")
    assert (gave_up.returncode, gave_up.stdout) == (124, "")
    assert "pair go on; rv wait waits again" in gave_up.stderr
    with rv.launch("wait", "--all") as waiting:
        assert waiting.stderr
        assert "waiting for" in waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=60)
    assert waiting.returncode == 130
    assert "stopped waiting" in said
    with rv.launch("wait", "one", "pair") as waiting:
        assert waiting.stderr
        assert "waiting for" in waiting.stderr.readline()
        gate.touch()
        out, said = waiting.communicate(timeout=120)
    assert waiting.returncode == 9, said
    assert len(out.splitlines()) == 3
    assert "exit code 4" in out
    nothing = rv("wait", "--all")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert rv("wait").returncode == 9, "the latest"


def test_a_race_is_raced_again_as_it_was(rv: Rv) -> None:
    """With its environment, folder and options; `--failed` only where it did not succeed."""
    folder = rv.home / "project"
    folder.mkdir()
    first = rv("run", "--time", "10m", "--env", "WORD=it's", "--name", "n",
               'echo "$WORD $PWD" >> log; [ -e good ]', cwd=folder)  # fmt: skip
    assert first.returncode == 1, first.stderr
    old = rv.last().race_id
    again = rv("rerun", old, "--failed", "--time", "20m", "--type", "a100", "--json")
    assert again.returncode == 1, again.stderr
    race = json.loads(again.stdout)
    assert (race["retry_of"], race["name"]) == (old, "n")
    assert race["winner"]["strategy"].startswith("a100")
    assert rv.last().record["entries"][0]["walltime"] == 1200
    (folder / "good").touch()
    assert rv("rerun").returncode == 0
    unneeded = rv("rerun", "--failed")
    assert unneeded.returncode == 0
    assert "not raced again" in unneeded.stderr
    assert lines(folder / "log") == [f"it's {folder}"] * 3


def test_an_old_record_says_what_to_type(rv: Rv) -> None:
    """One that an rv wrote which did not record requests."""
    assert rv("run", "--time", "10m", "echo it").returncode == 0
    path = rv.last().directory / "race.json"
    record = json.loads(path.read_text())
    del record["request"]
    path.write_text(json.dumps(record))
    done = rv("rerun")
    assert done.returncode == 2
    assert "hint: rv run --gpu 1 'echo it'" in done.stderr


COUNT = """
import os, sys, time
from pathlib import Path
kept = Path(os.environ["RV_CHECKPOINT_DIR"], "step")
step = int(kept.read_text()) if kept.exists() else 0
with open("steps", "a") as log:
    log.write(f"{step}\\n")
if step == 1 and not Path("mended").exists():
    sys.exit(5)
kept.write_text(str(step + 1))
if step == 0:
    time.sleep(600)
"""


def test_a_chain_goes_on_by_its_name_and_never_beside_itself(
    rv: Rv, eventually: Eventually
) -> None:
    """From the checkpoint of one that was stopped or crashed; after a success it begins anew."""
    (rv.home / "count.py").write_text(COUNT)
    up = ("run", "--checkpoint", "--time", "30m", "--name", "x", "python count.py")
    told = rv.home / "told"
    notify = ("--notify", f'start,end=echo "$RV_EVENT" >> {told}')
    first = launched(rv, *notify, "--checkpoint", "--name", "x", "python count.py")
    eventually(lambda: lines(rv.home / "steps") == ["0"])
    beside = rv(*up)
    assert beside.returncode == 2
    assert f"the chain {first} of the name x is not over" in beside.stderr
    assert rv("stop", first).returncode == 0
    verdict = rv.last().directory / "verdict.json"
    eventually(lambda: rv.states()[first]["state"] == "CANCELLED" and verdict.exists())
    # By a client that got no answer of the disk.
    verdict.write_text(json.dumps(json.loads(verdict.read_text()) | {"saved_at": None}))
    second = rv(*up)
    assert second.returncode == 5, second.stderr
    assert f"goes on from race {first} (CANCELLED)" in second.stderr
    assert rv.state()["resumes"] == first
    (rv.home / "mended").touch()
    third = rv("rerun", "x")
    assert third.returncode == 0, third.stderr
    assert "goes on from" in third.stderr
    fourth = rv(*up, "-d")
    assert fourth.returncode == 0, fourth.stderr
    assert "goes on" not in fourth.stderr
    eventually(lambda: lines(rv.home / "steps") == ["0", "1", "1", "0"])
    assert lines(told) == ["start", "fail"]
    assert rv("stop", "x").returncode == 0


def test_of_clients_at_once_one_goes_on_from_a_chain(rv: Rv, eventually: Eventually) -> None:
    """By its name or by `rv rerun`; the others say which race does, and start nothing."""
    (rv.home / "count.py").write_text(COUNT.replace("if step == 0", "if True"))
    (rv.home / "mended").touch()
    first = launched(rv, "--checkpoint", "--name", "z", "python count.py")
    eventually(lambda: lines(rv.home / "steps") == ["0"])
    assert rv("stop", first).returncode == 0
    eventually(lambda: rv.states()[first]["state"] == "CANCELLED")
    up = ("run", "-d", "--checkpoint", "--time", "10m", "--name", "z", "python count.py")
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: rv(*up), range(4)))
    assert sorted(each.returncode for each in done) == [0, 2, 2, 2], [d.stderr for d in done]
    (second,) = [each.stdout.strip() for each in done if not each.returncode]
    for each in done:
        assert not each.returncode or second in each.stderr
    eventually(lambda: lines(rv.home / "steps") == ["0", "1"])
    again = rv("rerun", first, "-d")
    assert again.returncode == 2
    assert f"the chain {second} of the name z is not over" in again.stderr
    assert rv("stop", second).returncode == 0
    eventually(lambda: rv.states()[second]["state"] == "CANCELLED")
    third = rv("rerun", first, "-d")
    assert third.returncode == 0, third.stderr
    eventually(lambda: lines(rv.home / "steps") == ["0", "1", "2"])
    assert rv("stop", third.stdout.strip()).returncode == 0


def test_a_lost_chain_that_may_still_run_is_told_to_stop(rv: Rv, eventually: Eventually) -> None:
    """Its node may be only out of touch: what runs there ends, and the new one goes on."""
    (rv.home / "count.py").write_text(COUNT)
    (rv.home / "mended").touch()
    first = launched(rv, "--checkpoint", "--name", "y", "python count.py")
    eventually(lambda: lines(rv.home / "steps") == ["0"])
    lost = rv.last().directory
    job = rv.last().claim["owner"].split(".")[0]

    def gone() -> bool:
        """Slurm kills one process after the other: a shell may have begun another meanwhile."""
        rv.slurm("scancel", "--full", "--signal=KILL", job, check=False)
        return not rv.queue()

    eventually(gone)
    (lost / "lost").write_text("a1 lost touch\n")
    eventually(lambda: rv.state()["state"] == "LOST")
    again = rv("rerun", first)
    assert again.returncode == 0, again.stderr
    assert f"goes on from race {first} (LOST)" in again.stderr
    assert (lost / "stop").exists()
    assert rv.states()[first]["state"] == "LOST"
    assert (lost / "checkpoints" / "step").exists()
    assert lines(rv.home / "steps") == ["0", "1"]
