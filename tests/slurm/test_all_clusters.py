"""`--cluster all` on two real clusters, and one that nobody answers for."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from rv import sandbox
from tests.slurm.launching import Rv, group, profile

REFUSED = 125


class Clusters(NamedTuple):
    """`rv`, and the two clusters that its file names."""

    rv: Rv
    near: sandbox.Sandbox
    far: sandbox.Sandbox


@pytest.fixture
def rv(fresh_sandbox: Callable[..., sandbox.Sandbox], tmp_path: Path) -> "Clusters":
    """`rv` with two clusters in its file, and nothing else that says where a Slurm is."""
    near = fresh_sandbox(profile([group("n", "a40")]))
    far = fresh_sandbox(profile([group("f", "a100")]))
    home = tmp_path / "home"
    (home / "config" / "rv").mkdir(parents=True)
    (home / "config" / "rv" / "config.yaml").write_text(
        "clusters:\n"
        f"  near: {{host: 'sandbox:{near.name}', defaults: {{time: 10m}}}}\n"
        f"  far: {{host: 'sandbox:{far.name}', defaults: {{time: 20m}}}}\n"
    )
    return Clusters(Rv(box=near, home=home, more={"RV_CLUSTER": "all"}), near, far)


def on(rv: Rv, box: sandbox.Sandbox) -> Rv:
    """Slurm's own commands on one of them."""
    return replace(rv, box=box)


def fill(rv: Rv, node: str) -> None:
    """Give all GPUs of a node to a job, which runs."""
    job = rv.fill(node, 4, "--time=2:00:00")
    deadline = time.monotonic() + 30
    while rv.job_state(job) != "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(0.1)


def add_silent(rv: Rv, host: str) -> None:
    """A third cluster that does not answer."""
    path = rv.home / "config" / "rv" / "config.yaml"
    path.write_text(f"{path.read_text()}  gone: {{host: '{host}'}}\n")


def test_the_race_is_where_it_starts_first(rv: Clusters) -> None:
    """With what the file sets for that cluster; the other has no job, and both are told of."""
    run, near, _ = rv
    fill(on(run, near), "n1")
    done = run("up", "--run", "echo on $SLURM_CLUSTER_NAME $SLURMD_NODENAME", timeout=60)
    assert (done.returncode, done.stdout) == (0, "on raced f1\n"), done.stderr
    rows = {line.split()[0]: line.split()[1:3] for line in done.stderr.splitlines() if line}
    assert rows["far"] == ["now", "(idle)"]
    assert rows["near"][:1] != ["now"]
    assert "racing on far alone: races on two clusters would have no claim in common" in done.stderr
    assert "time is 20m by" in done.stderr
    assert on(run, near).queue() == []


def test_a_dry_run_shows_what_each_has(rv: Clusters) -> None:
    """In JSON beside the plan of the one that would be taken; nothing is submitted."""
    run, near, far = rv
    fill(on(run, far), "f1")
    done = run("run", "--dry-run", "--json", "hostname")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["cluster"] == "near"
    assert [each["cluster"] for each in shown["clusters"]] == ["near", "far"]
    assert shown["clusters"][0]["start_in_s"] == 0
    assert shown["clusters"][1]["start_in_s"] != 0
    assert {each["gpu"] for each in shown["strategies"]} == {"a40"}
    assert on(run, near).queue() == on(run, far).queue() == []
    text = run("up", "--dry-run")
    assert text.stdout.splitlines()[0].split() == ["CLUSTER", "START", "COST", "WITH"]


def test_the_answers_are_of_this_moment(rv: Clusters) -> None:
    """What was free a second ago may be taken."""
    run, near, _ = rv
    assert json.loads(run("up", "--dry-run", "--json").stdout)["cluster"] == "near"
    fill(on(run, near), "n1")
    assert json.loads(run("up", "--dry-run", "--json").stdout)["cluster"] == "far"


def test_a_cluster_that_does_not_answer_is_named_and_left_out(
    rv: Clusters,
) -> None:
    """Down, or silent for longer than the patience: the others are raced on."""
    run, _, _ = rv
    add_silent(run, "sandbox:nowhere")
    done = run("up", "--type", "a40", "--run", "true")
    assert done.returncode == 0, done.stderr
    assert "sandbox nowhere is not up" in done.stderr
    assert "racing on near alone" in done.stderr
    assert "far" in done.stderr


def test_silence_lasts_no_longer_than_the_patience(rv: Clusters, tmp_path: Path) -> None:
    """A login node that takes the connection and says nothing."""
    run, _, _ = rv
    add_silent(run, "mute")
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "ssh").write_text('#!/bin/sh\ncase "$*" in *-G*) exit 0 ;; esac\nexec sleep 300\n')
    (bin_ / "ssh").chmod(0o755)
    more = {**run.more, "PATH": f"{bin_}:{os.environ['PATH']}"}
    done = replace(run, more=more)("up", "--dry-run", "--json", "--patience", "6s", timeout=60)
    assert done.returncode == 0, done.stderr
    gone = json.loads(done.stdout)["clusters"][2]
    assert gone["error"]["message"] == "no answer within 6 s"


def test_where_no_cluster_can_serve_it_all_say_why(
    rv: Clusters,
) -> None:
    """An error of the kind that all of them are; nothing is submitted."""
    run, near, far = rv
    done = run("run", "--gpu", "1", "--type", "h200", "--json", "hostname")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["kind"]) == (REFUSED, "infeasible")
    assert "near: " in error["message"]
    assert "far: " in error["message"]
    sandbox.down(near.name)
    sandbox.down(far.name)
    down = run("up", "--dry-run")
    assert (down.returncode, down.stdout) == (REFUSED, "")
    assert "error[sandbox]: none of 2 clusters can serve it: near: " in down.stderr


def test_status_shows_all_of_them(rv: Clusters) -> None:
    """One that does not answer is named; it is an error only where none does."""
    run, _, _ = rv
    add_silent(run, "sandbox:nowhere")
    done = run("status", "--json")
    clusters = {each["cluster"]: each for each in json.loads(done.stdout)["clusters"]}
    assert done.returncode == 0
    assert [clusters[name]["gpus"][0]["gpu"] for name in ("near", "far")] == ["a40", "a100"]
    assert clusters["gone"]["error"]["kind"] == "sandbox"
    text = run("status")
    assert "gone: sandbox nowhere is not up" in text.stdout
    done = run("ps")
    assert done.returncode == 2
    assert "hint: name one of near, far, gone" in done.stderr
    run.home.joinpath("config", "rv", "config.yaml").write_text(
        "clusters: {a: {host: 'sandbox:x'}}\n"
    )
    assert run("status").returncode == REFUSED
