"""`rv accept` on a real Slurm: runs and sweeps as a user starts them, and what they leave behind."""

import functools
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rv import sandbox
from rv.accept.baselines import golden_file
from rv.errors import RvError
from rv.render.quote import Quoted
from rv.transport.local import LocalTransport
from rv.workflow.drain import drain
from tests.slurm.launching import Rv, group, profile

pytest.importorskip("torch")


@pytest.fixture
def rv(small: sandbox.Sandbox, tmp_path: Path) -> Rv:
    """`rv` on the small sandbox, with a history and a memory of its own."""
    return Rv(box=small, home=tmp_path, more={"XDG_DATA_HOME": str(tmp_path / "data")})


def answer(rv: Rv, *words: str, code: int) -> dict[str, Any]:
    """Run `rv accept … --json` to the exit code expected; its answer."""
    done = rv("accept", *words, "--json")
    assert done.returncode == code, done.stderr[-3000:] + done.stdout[-3000:]
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def nodes(document: dict[str, Any]) -> dict[str, str]:
    return {result["node"]: result["status"] for result in document["results"]}


def test_every_node_of_a_run_reports_and_its_numbers_are_kept(rv: Rv, eventually: Any) -> None:
    """Two nodes, one GPU on each; then the kept run as JUnit, and its history."""
    run = answer(rv, "run", "check", "--gpu", "2", "--multi-node", "--layouts", "all", code=0)

    assert len(nodes(run)) == 2
    assert set(nodes(run).values()) == {"PASS"}
    devices = [
        test for each in run["results"] for test in each["tests"] if test["name"] == "device"
    ]
    assert [(test["status"], test["code"]) for test in devices] == [("SKIP", "fake_gpu")] * 2
    assert {result["reason"] for result in run["results"]} == {
        "without device: sandbox: 1 fake GPU(s), checked on CPU"
    }
    junit = rv("accept", "export", run["run"])
    assert junit.returncode == 0
    assert junit.stdout.count("<testsuite ") == 2
    history = answer(rv, "history", code=0)["history"]
    assert {trend["node"] for trend in history} == set(nodes(run))
    [kept] = answer(rv, "history", "--runs", code=0)["runs"]
    assert (kept["race_id"], kept["payloads"]) == (run["run"], ["check"])
    assert run["run"] in rv("accept", "history", "--runs").stdout
    assert answer(rv, "compare", "last", run["run"], code=0)["verdicts"] == []
    eventually(lambda: rv.queue() == [])


def test_a_node_that_fails_is_avoided_until_it_passes_again(rv: Rv, eventually: Any) -> None:
    """A wrong product on a1; plans leave a1 out and say why; a sweep clears it, as a repair does; v1
    cannot report.

    The GPUs of v1 are not the model that Slurm says: its job gives it up, and that is a row.
    """
    fault = ("--inject", "wrong-product")
    failed = answer(rv, "run", "check", *fault, "-x", "a2,v1,v2", code=1)
    assert nodes(failed) == {"a1": "FAIL"}
    assert any(test["code"] == "wrong_result" for test in failed["results"][0]["tests"])

    plan = json.loads(rv("up", "--dry-run", "--json", "--gpu", "4", "--type", "a100").stdout)
    excluded = {each["what"]: each["reason"] for each in plan["excluded"]}
    assert excluded["a1"].startswith("failed acceptance (check matmul.")
    assert "(made on purpose: --inject)); avoided until" in excluded["a1"]
    assert "--no-avoid asks for it" in excluded["a1"]
    asked = rv("up", "--dry-run", "--json", "--gpu", "4", "--no-avoid").stdout
    assert "failed acceptance" not in asked
    told = rv("accept", "avoid").stdout
    assert "a1 is avoided until" in told
    assert "a fault made on purpose (--inject" in told
    (avoided,) = rv.home.glob("data/rv/accept/avoid/*.json")
    kept = avoided.read_text()

    sandbox.set_fault(rv.box, "v1", "wrong-model")
    try:
        swept = answer(rv, "sweep", "check", "--nodes", "a1,v1", "--strict-gpu", code=99)
    finally:
        sandbox.set_fault(rv.box, "v1", None)

    assert nodes(swept) == {"a1": "PASS", "v1": "ERROR"}
    silent = next(result for result in swept["results"] if result["node"] == "v1")
    assert silent["reason"].startswith("no result reported: ")
    assert rv("accept", "avoid").stdout == "no node is known to be bad\n"
    avoided.write_text(kept)
    repaired = json.loads(rv("accept", "repaired", "a1", "--json").stdout)
    assert (repaired["nodes"], repaired["avoided"]) == (["a1"], ["a1"])
    assert rv("accept", "avoid").stdout == "no node is known to be bad\n"
    eventually(lambda: rv.queue() == [])


def test_a_node_that_failed_is_drained_with_its_failure_as_the_reason(rv: Rv) -> None:
    """First the ticket, with the log; then the line alone; then the node, and no other one.

    Whom Slurm does not let is told so, and who can.
    """
    answer(rv, "run", "check", "--inject", "wrong-product", "-x", "a2,v1,v2", code=1)
    ticket = rv("accept", "report", "--format", "md").stdout
    assert ticket.startswith("# a1: FAIL in acceptance tests")
    assert "    [RESULT] FAIL: " in ticket

    shown = rv("accept", "drain", "a1", "--dry-run")
    line = shown.stdout.strip()
    assert "note: that fault was made on purpose" in shown.stderr
    assert line.startswith("scontrol update NodeName=a1 State=DRAIN Reason='rv ")
    assert rv("accept", "drain", "a1").returncode == 2, "nobody is there to ask"
    assert rv("accept", "drain", "ALL", "--yes").returncode == 2
    assert drained(rv) == {}

    as_nobody = Quoted(f"setpriv --reuid=65534 --clear-groups {line}")
    with pytest.raises(RvError, match=r"let you drain nodes: .*Invalid user") as refusal:
        drain(as_nobody, LocalTransport(rv.environment))
    assert line in refusal.value.hint
    assert drained(rv) == {}

    try:
        assert answer(rv, "drain", "a1", "--yes", code=0)["drained"]
        assert drained(rv) == {"a1": shlex.split(line)[-1].removeprefix("Reason=")}
        assert "a1 is drained already: rv " in rv("accept", "drain", "a1", "--yes").stderr
    finally:
        rv.slurm("scontrol", "update", "NodeName=a1", "State=RESUME")


def drained(rv: Rv) -> dict[str, str]:
    """Every node that Slurm has drained, with the reason."""
    rows = rv.slurm("sinfo", "-h", "-N", "-t", "drain", "-o", "%N|%E").splitlines()
    return dict(row.split("|", 1) for row in rows)


def test_a_run_whose_job_is_cancelled_is_an_error(rv: Rv, eventually: Any) -> None:
    """No result is never a pass, and the exit code is 99."""
    with rv.launch("accept", "run", "check", "membw", "--json") as process:
        try:
            eventually(lambda: list(rv.races_root.glob("[!.]*/claim")), timeout=90)
            rv.slurm("scancel", rv.last().claim["owner"].partition(".")[0])
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()

    assert process.returncode == 99, err
    document = json.loads(out)
    assert document["verdict"] == "ERROR"
    assert "no result reported" in document["results"][-1]["reason"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("sweep", "check", "--nodes", "a1", "--snapshot", "x.json"), "submitted to a snapshot"),
        (("sweep", "check", "--nodes", "zz"), "there is no node 'zz'"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_runs(
    rv: Rv, words: tuple[str, ...], reason: str
) -> None:
    """Nothing is submitted, and nothing is ignored."""
    done = rv("accept", *words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert reason in done.stderr
    assert rv.files() == []


def test_a_run_whose_client_is_killed_is_judged_by_another(rv: Rv, eventually: Any) -> None:
    """By its race, with what it was to run, once it is over; the race is not begun again."""
    with rv.launch("accept", "run", "check", "membw") as process:
        try:
            eventually(lambda: list(rv.races_root.glob("[!.]*/claim")), timeout=90)
        finally:
            process.kill()
    race = rv.last().race_id
    for name in (race, "last"):
        said = rv("accept", "report", name).stderr
        assert f"run {race} was begun here, and has no verdict yet" in said

    judged = answer(rv, "run", "--resume", "last", code=0)
    assert judged["run"] == race
    assert {(each["payload"], each["status"]) for each in judged["results"]} == {
        ("check", "PASS"),
        ("membw", "PASS"),
    }
    values = json.loads(rv("accept", "history", "--json").stdout)["history"]
    again = answer(rv, "run", "--resume", race, code=0)
    assert again == judged
    assert json.loads(rv("accept", "history", "--json").stdout)["history"] == values
    assert len(rv.files()) == 1


def test_a_detached_run_is_judged_later_and_nothing_else_is(rv: Rv) -> None:
    """--detach says what to type; a race of another command is none to judge."""
    sent = rv("accept", "run", "check", "--detach")
    assert sent.returncode == 0, sent.stderr
    race = sent.stdout.strip()
    assert f"rv accept run --resume {race} waits for it and judges it" in sent.stderr
    assert rv("up", "--run", "true").returncode == 0
    other = rv.last().race_id

    refused = rv("accept", "run", "--resume", other)
    assert refused.returncode == 2
    assert f"race {other} is no acceptance run" in refused.stderr
    assert answer(rv, "run", "--resume", "last", code=0)["run"] == race


def test_what_is_judged_again_takes_nothing_away(rv: Rv) -> None:
    """Neither a newer pass of the node, nor results that only this machine still has."""
    there = ("run", "check", "-x", "a2,v1,v2", "--no-avoid")
    failed = answer(rv, *there, "--inject", "wrong-product", code=1)["run"]
    assert "a1" in rv("accept", "avoid").stdout
    passed = answer(rv, *there, code=0)["run"]
    assert answer(rv, "run", "--resume", failed, code=1)["run"] == failed
    assert rv("accept", "avoid").stdout == "no node is known to be bad\n"

    shutil.rmtree(rv.races_root / passed / "results")
    assert nodes(answer(rv, "run", "--resume", passed, code=0)) == {"a1": "PASS"}


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_whose_client_is_ended_says_how_it_goes_on(
    rv: Rv, eventually: Any, signal_number: signal.Signals
) -> None:
    with rv.launch("accept", "sweep", "stress", "--nodes", "v1") as process:
        eventually(lambda: rv.files() and rv.last().submitted)
        process.send_signal(signal_number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal_number
    assert re.search("detached: rv accept sweep --resume sweep-[0-9a-f]{8} goes on", said)
    assert rv("stop", "--all").returncode == 0


def test_a_verdict_that_cannot_be_written_is_not_to_be_measured_again(rv: Rv) -> None:
    """Whoever typed it again would have a second job."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*rv.prefix, sys.executable, "-m", "rv", "accept", "run", "check", "--json"],
            cwd=rv.home, env=rv.client_environment(None), stdout=full,
            stderr=subprocess.PIPE, text=True, timeout=120,
        )  # fmt: skip
    race = rv.last().race_id
    assert (done.returncode, f"rv accept run --resume {race}" in done.stderr) == (125, True)
    assert answer(rv, "run", "--resume", race, code=0)["run"] == race
    assert len(rv.files()) == 1


def test_broken_golden_values_are_told_before_anything_is_submitted(
    rv: Rv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could judge what the job finds: there would be no verdict, and no avoided node."""
    assert rv("run", "true").returncode == 0
    monkeypatch.setenv("XDG_DATA_HOME", str(rv.home / "data"))
    path = golden_file(rv.last().record["cluster"])
    path.parent.mkdir(parents=True)
    path.write_text("references: [")

    for words in (("run", "check"), ("sweep", "check", "--nodes", "a1")):
        done = rv("accept", *words)
        assert (done.returncode, str(path) in done.stderr) == (125, True), done.stderr
    assert len(rv.files()) == 1


def test_a_run_and_a_sweep_that_were_stopped_accuse_no_node(rv: Rv, eventually: Any) -> None:
    """Nothing of them is a failure: whoever stopped them knows why there is no result."""

    def are_running(jobs: int) -> bool:
        return [race["state"] for race in rv.states().values()].count("RUNNING") == jobs

    for words, jobs in ((("run", "stress"), 1), (("sweep", "stress", "--nodes", "a1,v1"), 2)):
        with rv.launch("accept", *words, "--profile", "accept", "--json") as process:
            eventually(functools.partial(are_running, jobs), timeout=60)
            assert rv("stop", "--all").returncode == 0
            told = json.loads(process.communicate(timeout=90)[0])
        assert process.returncode == 99
        assert set(nodes(told).values()) == {"ERROR"}
        tests = [test for each in told["results"] for test in each["tests"]]
        assert "FAIL" not in {test["status"] for test in tests}
        assert {test["code"] for test in tests if test["status"] == "ERROR"} == {"interrupted"}
    assert answer(rv, "avoid", code=0)["avoided"] == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("run", "--resume", ""), "name is empty"),
        (("run", "--resume", "last", "--gpu", "8"), "option but --cluster, --json and --strict"),
        (("run", "--resume", "last", "--dcgm", "3"), "option but --cluster, --json and --strict"),
        (("run", "--resume", "last", "--profile", "smoke"), "every option but --cluster"),
        (("run", "check", "--resume", "last"), "leave out payloads"),
        (("sweep", "--resume", ""), "no sweep was named"),
        (("sweep", "check", "--resume", "last"), "payloads cannot change"),
        (("sweep", "--resume", "last", "--nodes", "a1"), "nodes cannot change"),
        (("sweep", "--resume", "last", "--time", "7m"), "time cannot change"),
        (("sweep", "--nodes", ","), "is no name of a node"),
        (("sweep", "-p", "nosuch"), "there is no partition 'nosuch'"),
    ],
)
def test_resume_begins_nothing(rv: Rv, words: tuple[str, ...], reason: str) -> None:
    """A variable that is empty in a script takes no GPU, and nothing that is typed is ignored."""
    done = rv("accept", *words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert reason in done.stderr
    assert rv.files() == []


def test_a_sweep_goes_on_where_it_was_cut_off(rv: Rv, eventually: Any) -> None:
    """The client is killed with one node's job in the queue; --resume ends with both nodes.

    What was lost here since is fetched again.
    """
    state = rv.home / "data" / "rv" / "accept" / "sweeps"
    busy = rv.fill("v2", 4)
    words = ("accept", "sweep", "check", "--nodes", "v2,a2", "--max-jobs", "1", "--json")
    words += ("--time", "7m", "--setup", "echo as begun $OF_SWEEP", "--env", "OF_SWEEP=1")
    with rv.launch(*words) as process:
        try:
            eventually(
                lambda: any('"sent"' in p.read_text() for p in state.glob("sweep-*.json")),
                timeout=90,
            )
        finally:
            process.kill()
            rv.slurm("scancel", busy)

    swept = answer(rv, "sweep", "--resume", "last", code=0)

    assert nodes(swept) == {"v2": "PASS", "a2": "PASS"}
    assert [race.record["request"]["setup"] for race in rv.files()] == [
        ["echo as begun $OF_SWEEP"]
    ] * 2
    assert [race.record["request"]["walltime"] for race in rv.files()] == [420.0] * 2
    assert "as begun 1\n" in (rv.last().directory / "output" / "node0.out").read_text()
    result = next((state.parent / "runs" / rv.last().race_id).rglob("check_result.json"))
    result.write_text("")
    assert nodes(answer(rv, "sweep", "--resume", "last", code=0)) == {"v2": "PASS", "a2": "PASS"}
    shutil.rmtree(state.parent / "runs" / rv.last().race_id)
    assert nodes(answer(rv, "sweep", "--resume", "last", code=0)) == {"v2": "PASS", "a2": "PASS"}
    one = rv("accept", "run", "--resume", rv.last().race_id)
    assert (one.returncode, "rv accept sweep --resume sweep-" in one.stderr) == (2, True)


def test_a_sweep_over_pairs_names_the_slow_node(
    fresh_sandbox: Any, tmp_path: Path, eventually: Any
) -> None:
    """Three nodes meet in three jobs on two nodes each; the one that is slow is named alone."""
    box = fresh_sandbox(profile([group("a", "a100", nodes=3, gpus=1)]))
    rv = Rv(box=box, home=tmp_path, more={"XDG_DATA_HOME": str(tmp_path / "data")})

    swept = answer(rv, "sweep", "--pairs", "--inject", "slow-host:host=a2", code=1)

    verdicts = {each["node"]: each["verdict"] for each in swept["nodes"]}
    assert verdicts == {"a1": "PASS", "a2": "FAIL", "a3": "PASS"}
    assert [each["node"] for each in swept["avoided"]] == ["a2"]
    assert {frozenset((p["one"], p["other"])) for p in swept["pairs"]} == {
        frozenset(pair) for pair in [("a1", "a2"), ("a1", "a3"), ("a2", "a3")]
    }
    eventually(lambda: rv.queue() == [])
