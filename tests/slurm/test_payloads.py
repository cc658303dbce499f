"""Payloads as users run them by name, through `rv run` on a real Slurm: verdicts and exit codes."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from rv import sandbox
from rv.payloads.contract.schema import RUNS
from tests.slurm.launching import Rv

SHORT = "--device cpu --epochs 1 --steps 10 --timeout 120"


@pytest.fixture
def rv(small: sandbox.Sandbox, tmp_path: Path) -> Rv:
    pytest.importorskip("torch")
    return Rv(box=small, home=tmp_path)


def result(rv: Rv, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((rv.last().directory / "results" / name).read_text())
    return loaded


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("check.py", 0),
        ("torchrun --nproc_per_node=2 check.py", 0),
        ("check.py --skip-exit-code 77", 77),
        ("python -c 'raise SystemExit(77)'", 77),
        ("python check.py; exit 3", 3),
        ("python check.py --device cpu --quick --dtypes fp32 --inject wrong-product | tee log", 1),
    ],
)
def test_a_skip_is_done_and_everything_else_is_what_it_is(rv: Rv, command: str, code: int) -> None:
    """A payload's SKIP is 0 also under torchrun, its FAIL is 1 in a pipe; a user's own code stays."""
    done = rv("run", command, "--gpu", "0", "--time", "5m")

    said = done.stdout + done.stderr
    assert done.returncode == code, said + rv.last().logs()
    assert rv.state()["state"] == ("FAILED" if code else "COMPLETED")
    if code == 0:
        assert "[RESULT] SKIP: no GPU was asked for, and there is none" in done.stdout
        assert re.search(r"SKIP: check on \S+: no GPU was asked for", done.stderr)
        assert result(rv, "check_result.json")["summary"]["status"] == "SKIP"


FAILS = "python check.py --device cpu --quick --dtypes fp32 --inject wrong-product"
PASSES = "python check.py --device cpu --quick --dtypes fp32"
HAS_BEGUN = f'until compgen -G "$RV_OUTPUT_DIR/{RUNS}/*.json"; do sleep 0.1; done'


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("python check.py --no-such-flag | tee log", 99, "left no result (the command"),
        (
            f"python check.py --device cpu & {HAS_BEGUN}; kill -9 $!; wait | cat",
            99,
            "left no result",
        ),
        (f"{FAILS}; {PASSES}", 1, "FAIL: check on a1: cpu fp32: 1 wrong elements"),
        ("python check.py --help | tail -n 1", 0, ""),
    ],
)
def test_no_run_of_a_payload_is_missed_or_hidden(
    rv: Rv, command: str, code: int, said: str
) -> None:
    """One that the kernel killed, say, or another behind it; and --help owes no verdict."""
    done = rv("run", command, "--gpu", "1", "--type", "a100", "--time", "5m")

    assert done.returncode == code, done.stdout + done.stderr + rv.last().logs()
    assert said in done.stderr


def test_a_chain_and_a_sweep_have_the_verdict_of_their_payloads(rv: Rv) -> None:
    """Whatever a pipe says; a skip is done, and what one task found is not another's."""
    some = ("--gpu", "0", "--time", "5m")
    failed = rv("run", "--checkpoint", *some, f"{FAILS} | tee log")
    assert (failed.returncode, rv.state()["state"]) == (1, "FAILED"), failed.stderr
    assert "FAIL: check on a1: cpu fp32: 1 wrong elements" in failed.stderr
    skipped = rv("run", "--checkpoint", *some, "check.py")
    assert (skipped.returncode, rv.state()["state"]) == (0, "COMPLETED"), skipped.stderr
    passed = rv("run", "--checkpoint", *some, f"{PASSES} | tee log")
    assert (passed.returncode, rv.state()["state"]) == (0, "COMPLETED"), passed.stderr

    line = f"{PASSES} $([ {{}} = 0 ] || echo --inject wrong-product) | tee log.{{}}"
    swept = rv("sweep", "--array", "0-1", *some, line)
    assert swept.returncode == 1, swept.stderr
    assert "1/2 done, 1 failed" in swept.stderr
    results = {task: result(rv, f"{task}/check_result.json")["summary"] for task in "01"}
    assert [results[task]["status"] for task in "01"] == ["PASS", "FAIL"]
    skips = rv("sweep", "--array", "0-1", *some, "check.py")
    assert skips.returncode == 0, skips.stderr


def test_a_bad_node_is_not_hidden_by_another(rv: Rv) -> None:
    """Both write a result of the same name; the second node fails first."""
    fault = "$([ $NODE_RANK = 0 ] || echo --inject wrong-product)"
    command = f"sleep $((4 - 4 * NODE_RANK)); {PASSES} {fault} | tee log.$NODE_RANK"
    done = rv("run", command, "--gpu", "2", "--multi-node", "--type", "a100", "--time", "5m")

    assert done.returncode == 1, done.stdout + done.stderr + rv.last().logs()
    assert "FAIL: check on a2: cpu fp32: 1 wrong elements" in done.stderr


def test_train_runs_by_name_on_two_ranks(rv: Rv) -> None:
    """With the sandbox's fake GPUs the CPU trains; the verdict is in the race's results."""
    done = rv("run", f"torchrun --nproc_per_node=2 train.py {SHORT}", "--gpu", "2", "--time", "5m")

    assert done.returncode == 0, done.stdout + done.stderr + rv.last().logs()
    assert "[TRAIN] cpu: world=2 ranks counted=2 loss " in done.stdout
    summary = result(rv, "train_result.json")["summary"]
    assert (summary["status"], summary["failed"], summary["errors"]) == ("PASS", 0, 0)


def test_an_error_under_torchrun_has_the_payloads_code(rv: Rv) -> None:
    """torchrun says 1 for everything; a run that was impossible is no failure of a node."""
    command = "torchrun --nproc_per_node=1 train_fsdp.py --device cpu --hf-model none/such"
    done = rv("run", command, "--gpu", "0", "--time", "5m")
    assert done.returncode == 99, done.stdout + done.stderr
    assert "[RESULT] ERROR: " in done.stdout


def test_races_share_one_copy_of_the_payloads(rv: Rv) -> None:
    """It lies beside their directories, whole again where a purge took a part of it away."""
    folders = set()
    for _ in range(2):
        done = rv("run", "check.py", "--gpu", "0", "--time", "5m")
        assert done.returncode == 0, done.stdout + done.stderr
        directory = rv.last().directory
        record = json.loads((directory / "race.json").read_text())
        folder = directory.parent / f".payloads-{os.geteuid()}" / record["payload_hash"]
        assert f"export RV_PAYLOADS={folder}\n" in (directory / "jobs" / "1.sh").read_text()
        assert not (directory / "payloads").exists()
        (folder / "_harness" / "main.py").unlink()
        folders.add(folder)
    assert list(folders.pop().parent.iterdir()) == [folder]
    assert rv("ps", "-a").returncode == 0
