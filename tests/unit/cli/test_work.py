"""`--gpu A-B`, `--work` and `--for` as typed: what they mean, and what is refused with which hint."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rv.errors import ErrorKind, RvError
from rv.models.request import Command, Objective, Pins, Work
from rv.workflow.options import RequestOptions, gpu_count
from rv.workflow.read_options import build_request

SNAPSHOT = str(Path(__file__).parents[3] / "tests/data/snapshots/campus.json")
PINNED = Command(line="torchrun --nproc_per_node=3 t.py", pins=Pins(processes_per_node=3))


def options(gpu: str = "1", **more: object) -> RequestOptions:
    return replace(RequestOptions(), gpu=gpu_count(gpu), **more)


@pytest.mark.parametrize(
    ("gpu", "command", "sizes"),
    [
        ("4", None, ()),
        ("4-4", None, ()),
        ("1-8", None, (1, 2, 4, 8)),
        ("3-6", None, (3, 4, 6)),
        ("2-9", PINNED, (3, 6, 9)),
        ("1-128", None, (1, 2, 4, 8, 16, 32, 64, 128)),
    ],
)
def test_a_range_has_its_ends_and_powers_of_two_or_what_the_command_pins(
    gpu: str, command: Command | None, sizes: tuple[int, ...]
) -> None:
    request = build_request(options(gpu), command)
    assert request.sizes == sizes
    assert request.gpus == (sizes[-1] if sizes else int(gpu[0]))


def test_the_work_has_its_reference() -> None:
    request = build_request(options("1-8", work="12gpuh", objective=Objective.FINISH), None)
    assert (request.work, request.objective) == (Work(gpu_hours=12.0), Objective.FINISH)
    assert build_request(options(work="0.5gpuh:h100"), None).work == Work(
        gpu_hours=0.5, reference="h100"
    )


@pytest.mark.parametrize(
    ("made", "hint"),
    [
        ({"work": "12"}, "write --work 12gpuh, GPU-hours, or 12gpuh:a100-80"),
        ({"work": "0gpuh"}, "write --work 12gpuh, GPU-hours, or 12gpuh:a100-80"),
        ({"work": "12h"}, "write --work 12gpuh, GPU-hours, or 12gpuh:a100-80"),
        ({"work": "8h:h100"}, "write --work 8gpuh, GPU-hours, or 12gpuh:a100-80"),
        ({"work": "1e3gpuh"}, "write --work 12gpuh, GPU-hours, or 12gpuh:a100-80"),
        ({"work": "5,000gpuh"}, "write --work 12gpuh, GPU-hours, or 12gpuh:a100-80"),
        ({"work": "3gpuh", "mig": True}, "leave --mig out"),
        ({"work": "3gpuh", "gpu": "0"}, "write --gpu 1-8"),
        ({"work": "3gpuh", "min_time": "1h"}, "leave --min-time out"),
        ({"work": "3gpuh", "typed": frozenset({"time"}), "time": "1h"}, "leave --time out"),
        ({"objective": Objective.FINISH, "mig": True}, "leave --mig out"),
        ({"gpu": "1-1024"}, "write a range such as --gpu 4-32"),
        ({"gpu": "1-8", "switch": True}, "add --checkpoint for a command that can resume"),
        ({"checkpoint": True, "switch": True}, "add --for finish, or --work 12gpuh"),
    ],
)
def test_what_makes_no_sense_says_what_to_type(made: dict[str, object], hint: str) -> None:
    with pytest.raises(RvError) as caught:
        build_request(options(**made), None)
    assert caught.value.kind is ErrorKind.USAGE
    assert caught.value.hint == hint


@pytest.mark.parametrize(("gpu", "hint"), [("8-1", "--gpu 1-8"), ("0-4", "--gpu 1-4")])
def test_a_range_the_wrong_way_round_says_the_right_one(gpu: str, hint: str) -> None:
    with pytest.raises(RvError) as caught:
        gpu_count(gpu)
    assert caught.value.hint.endswith(hint)


def test_a_time_of_a_file_gives_way_to_the_work_typed() -> None:
    assert build_request(options(work="3gpuh", time="4h"), None).work


def test_a_dry_run_names_finish_p90_sources_and_what_is_left_out() -> None:
    words = ["--gpu", "1-8", "--work", "12gpuh", "--for", "finish", "--snapshot", SNAPSHOT]
    argv = [sys.executable, "-m", "rv", "up", *words, "--dry-run"]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert "FINISH" in text.splitlines()[0]
    assert "(p90 " in text
    assert "published bf16 rate" in text
    assert "would finish at ~" in text
    assert "the work is 12 GPU-hours of a100-80 (rv's default)" in text
    done = subprocess.run([*argv, "--json"], capture_output=True, text=True, check=True)
    document = json.loads(done.stdout)
    ends = [each["finish_p50_s"] for each in document["strategies"]]
    assert ends == sorted(ends)
    assert document["objective"] == "finish"
    assert document["strategies"][-1]["left_out"]


def test_the_jobs_of_a_chain_have_the_time_that_the_work_takes() -> None:
    words = ["--gpu", "1", "--work", "60gpuh", "--for", "finish", "--snapshot", SNAPSHOT, "--json"]
    argv = [sys.executable, "-m", "rv", "up", *words, "--checkpoint", "--run", "true", "--dry-run"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    document = json.loads(done.stdout)
    best = document["strategies"][0]
    assert best["total_s"] > 1.5 * best["run_p50_s"] > 3600
    assert f"{best['total_s']}" in document["submissions"][0]["script"]
