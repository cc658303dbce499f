"""docs/acceptance.md: the commands of its rows, run as they stand there on a real Slurm."""

import json
import re
import shlex
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rv import sandbox
from tests.acceptance_rows import commands, rows
from tests.slurm.launching import Rv, group, profile

pytest.importorskip("torch")

SERVICE = ("D-01", "D-02", "D-03", "D-04")
"""Rows of one server that goes on over all of them."""
NO_GPU_BURN = r"ERROR: (CUDA toolkit \(nvcc\) not found|cannot compile|no sources of gpu-burn)"
PASSED = r"\[RESULT\] PASS"
ACCEPTED = r": PASS \(|\"verdict\": \"PASS\""
ENDINGS = {
    "A-13": (0, "alloc.workers ops_per_second"),
    "A-17": (1, "4 of 4 launches failed"),
    "A-24": (99, "use a smaller --memory or fewer --workers"),
    "B-08": (0, r": SKIP \("),
    "B-09": (0, "<testsuites"),
    "B-16": (0, "allreduce.all_reduce latency_us"),
    "C-01": (99, NO_GPU_BURN),
    "C-03": (99, NO_GPU_BURN),
    "C-05": (0, "race .*: (cancelled|no job)"),
    "C-08": (0, r"\[STRESS\] stopped process "),
    "C-09": (0, r"\[STRESS\] running as process "),
    "D-09": (0, "<testsuites"),
    "D-10": (0, "a100 .* check"),
    "D-14": (0, "<testsuites"),
    "B-19": (0, "all_reduce_perf of nccl-tests is not installed"),
    "E-10": (0, "allreduce.between_nodes busbw_a_node"),
}
"""The exit code of a row's last command and what it says, where that is not 0 and a PASS."""


def distinct() -> Iterator[Any]:
    """Each row's commands, once where several rows have the same."""
    seen: set[tuple[str, ...]] = set()
    for row in rows():
        words = tuple(commands(row))
        if words and words[0].startswith("rv ") and row not in SERVICE and words not in seen:
            seen.add(words)
            yield pytest.param(row, words, id=row)


@pytest.fixture(scope="module")
def rv(sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rv]:
    """Two GPU models and a MIG node; a folder with older results, and a history of one run."""
    home = tmp_path_factory.mktemp("rows")
    sliced = group("m", "a100", gpus=7)
    sliced["gres"][0] |= {"type": "1g.10gb", "mig": "1g.10gb"}
    groups = [group("a", "a100", nodes=2), group("v", "v100", nodes=2), sliced]
    spec = profile(groups, {"gpu": ["a", "v"], "mig": ["m"]})
    (home / "profile.yaml").write_text(json.dumps(spec))
    (home / "DIR").mkdir()
    for side in ("server", "client"):
        (home / "DIR" / f"{side}_test_results_20250109_143000.json").write_text(
            json.dumps(older(side))
        )
    (home / "FILE").write_text(json.dumps(older("client")))
    box = sandbox.up("rows", home / "profile.yaml")
    # Nothing of this machine's gpu-burn, and nothing from a network.
    more = {"XDG_DATA_HOME": str(home / "data"), "HOME": str(home), "GIT_ALLOW_PROTOCOL": "file"}
    made = Rv(box=box, home=home, more=more)
    assert made("accept", "run", "check").returncode == 0
    yield made
    sandbox.down("rows")


def older(side: str) -> dict[str, Any]:
    """A result as the first tensor service wrote it."""
    details = {"total_time_ms": 4.0, "serialization_time_ms": 1.0, "network_time_ms": 2.0}
    test = {"name": "relu", "status": "PASS", "details": details, "timing_ms": 1.5}
    return {f"{side}_info": {"hostname": "a1"}, "tests": [test]}


@pytest.fixture(autouse=True)
def _nothing_left(rv: Rv) -> Iterator[None]:
    """Whatever became of a row, the next one finds no job."""
    yield
    if rv.queue():
        rv("stop", "--all")


@pytest.mark.parametrize(("row", "words"), [*distinct()])
def test_the_commands_of_a_row_show_it(
    rv: Rv, row: str, words: tuple[str, ...], eventually: Any
) -> None:
    """They end as they should and say so, and leave no job."""
    ending = ENDINGS.get(row, (0, PASSED))
    for command in words:
        code, said = ending if command == words[-1] else (0, "")
        if command.startswith(("rv accept run", "rv accept sweep")) and said in ("", PASSED):
            said = ACCEPTED
        done = rv(*shlex.split(command)[1:])
        assert done.returncode == code, done.stdout + done.stderr
        assert re.search(said, done.stdout + done.stderr), done.stdout + done.stderr
    eventually(lambda: rv.queue() == [])


def test_a_server_in_a_job_answers_who_has_its_token(rv: Rv, eventually: Any) -> None:
    """D-01 to D-04: served in one job, asked by hand, and tested from another."""
    [serve], [about], [health], [client, stop] = (commands(row) for row in SERVICE)
    assert rv(*shlex.split(serve)[1:]).returncode == 0
    address = rv.home / "ADDRESS"
    eventually(address.exists, timeout=60)

    assert "POST /execute" in get(about, address)
    assert json.loads(get(health, address))["status"] == "healthy"
    tested = rv(*shlex.split(client)[1:])
    assert "[RESULT] PASS" in tested.stdout, tested.stdout + tested.stderr
    assert rv(*shlex.split(stop)[1:]).returncode == 0
    eventually(lambda: rv.queue() == [])


def get(curl: str, address: Path) -> str:
    """Ask what a curl command asks."""
    place = json.loads(address.read_text())
    path = curl.partition("SERVER")[2]
    token = (address.parent / "TOKEN").read_text().strip()
    url = f"http://{place['host']}:{place['port']}{path}"
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return str(answer.read().decode())
