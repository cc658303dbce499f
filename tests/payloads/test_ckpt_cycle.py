"""ckpt_cycle.py on a CPU: interrupted in every way, and every way to get it wrong is noticed."""

import signal
import time
from pathlib import Path

import pytest

from rv.payloads._checkpoint import segment
from tests.payloads.starting import PATIENCE, Launcher, Running

CASES = ("straight", "resumed", "usr1", "term", "killed", "truncated", "writers", "full", "reshard")


def test_a_training_comes_to_the_same_bits_in_every_way(launch: Launcher, tmp_path: Path) -> None:
    """All cases pass, with their figures, and leave nothing behind."""
    kept = tmp_path / "kept"
    run = launch("ckpt_cycle", tmp_path, "--device", "cpu", "--checkpoint-dir", kept)

    assert run.code == 0, run.out
    named = {test["name"]: test for test in run.result["tests"]}
    assert {f"checkpoint.{name}" for name in CASES} <= set(named)
    assert {test["status"] for test in named.values()} == {"PASS"}
    lost = {name: named[f"checkpoint.{name}"]["details"].get("lost_steps") for name in CASES}
    assert lost["usr1"] == lost["term"] == lost["resumed"] == 0
    assert lost["killed"] == lost["truncated"] == 4
    figures = {one["name"]: one["value"] for one in named["checkpoint.resumed"]["metrics"]}
    assert min(figures["save_s"], figures["save_rate"], figures["restore_s"]) > 0
    assert list(kept.iterdir()) == []


def test_every_detector_sees_its_fault(launch: Launcher, tmp_path: Path) -> None:
    """All at once: each strikes in a case of its own."""
    faults = ("forget-random", "ignore-signal", "in-place", "trust-newest", "shared-draft",
              "keep-draft", "reshard")  # fmt: skip
    words = (word for fault in faults for word in ("--inject", fault))
    run = launch("ckpt_cycle", tmp_path, "--device", "cpu", *words)

    assert run.code == 1
    assert run.coded == {
        "checkpoint.resumed": "resume_mismatch",
        "checkpoint.usr1": "signal_ignored",
        "checkpoint.term": "signal_ignored",
        "checkpoint.killed": "checkpoint_corrupt",
        "checkpoint.truncated": "checkpoint_lost",
        "checkpoint.writers": "checkpoint_corrupt",
        "checkpoint.full": "checkpoint_lost",
        "checkpoint.reshard": "reshard_mismatch",
    }
    assert "resumed: after resuming, step 13 gave other weights" in run.reasons


@pytest.mark.parametrize(
    ("fault", "case", "code"),
    [
        ("forget-optimizer", "resumed", "resume_mismatch"),
        ("repeat-step", "straight", "steps_lost"),
        ("corrupt-save", "straight", "checkpoint_corrupt"),
        ("lost-save", "straight", "checkpoint_corrupt"),
    ],
)
def test_a_forgotten_part_or_step_is_noticed(
    launch: Launcher, tmp_path: Path, fault: str, case: str, code: str
) -> None:
    """Optimizer state, a step that was logged twice, and a checkpoint that nobody goes on from."""
    run = launch("ckpt_cycle", tmp_path, "--device", "cpu", "--cases", case, "--inject", fault)

    assert run.code == 1
    assert run.coded == {f"checkpoint.{case}": code}


def wait_for_a_step(run: Running, folder: Path) -> None:
    """Wait until a segment has done a step, or is over."""
    deadline = time.monotonic() + PATIENCE
    while not segment.read_steps(folder) and not run.over:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["usr1", "term", "file"])
def test_a_segment_saves_when_told_and_the_next_goes_on(
    launch: Launcher, tmp_path: Path, how: str
) -> None:
    """By signal or by rv's file; 75 and `again`, then 0 and `done`; every step once."""
    kept = tmp_path / "kept"
    words = ("--device", "cpu", "--mode", "segment", "--steps", 40, "--checkpoint-dir", kept)
    run = launch.start("ckpt_cycle", tmp_path, *words, "--pause", 0.5)
    wait_for_a_step(run, kept)
    if how == "file":
        (kept / ".rv-stop").touch()
    else:
        run.signal({"usr1": signal.SIGUSR1, "term": signal.SIGTERM}[how])
    done = run.wait()

    assert done.code == 75, done.out
    assert (kept / ".rv-next").read_text() == "again"
    assert done.coded == {"checkpoint.segment": "preempted"}
    (kept / ".rv-stop").unlink(missing_ok=True)
    done = launch("ckpt_cycle", tmp_path, *words)
    assert done.code == 0, done.out
    assert (kept / ".rv-next").read_text() == "done"
    chain = done.test("checkpoint.chain")["details"]
    assert (chain["segments"], chain["lost_steps"]) == (2, 0)
    assert segment.coverage(segment.read_steps(kept)) == segment.Coverage(40, 0, "")


def test_two_ranks_stop_at_the_same_step(launch: Launcher, tmp_path: Path) -> None:
    """Only one of them is told; both go on afterwards to the bits of a straight run."""
    kept = tmp_path / "kept"
    words = ("--device", "cpu", "--mode", "segment", "--steps", 30, "--checkpoint-dir", kept)
    run = launch.start("ckpt_cycle", tmp_path, *words, "--pause", 0.5, world=2)
    wait_for_a_step(run, kept)
    run.signal(signal.SIGUSR1, rank=1)
    done = run.wait()
    assert done.codes == [75, 75], done.out

    done = launch("ckpt_cycle", tmp_path, *words, world=2)
    assert done.codes == [0, 0], done.out
    assert segment.coverage(segment.read_steps(kept)) == segment.Coverage(30, 0, "")


def test_a_segment_from_other_weights_is_noticed_at_the_end(
    launch: Launcher, tmp_path: Path
) -> None:
    """The chain's bits are those of a straight run, or it fails."""
    words = ("--device", "cpu", "--mode", "segment", "--checkpoint-dir", tmp_path / "kept")
    assert launch("ckpt_cycle", tmp_path, *words, "--steps", "20").code == 0
    for kept in sorted((tmp_path / "kept").glob("step-*.pt"))[-1:]:
        kept.unlink()
    run = launch("ckpt_cycle", tmp_path, *words, "--steps", "20", "--inject", "forget-random")

    assert run.code == 1
    assert "resume_mismatch" in run.coded.values()


@pytest.mark.parametrize(
    "words", [("--mode", "segment"), ("--cases", "x"), ("--pause", "-1"), ("--steps", "0")]
)
def test_wrong_words_are_refused(launch: Launcher, tmp_path: Path, words: tuple[str, ...]) -> None:
    """With 2."""
    assert launch("ckpt_cycle", tmp_path, *words).code == 2


def test_a_folder_that_cannot_be_written_is_an_error(launch: Launcher, tmp_path: Path) -> None:
    """Checkpoints have nowhere to go."""
    (tmp_path / "file").write_text("")
    words = ("--device", "cpu", "--mode", "segment", "--checkpoint-dir", tmp_path / "file")
    run = launch("ckpt_cycle", tmp_path, *words)

    assert run.code == 99
    assert run.coded == {"checkpoint.segment": "could_not_run"}


def log(*lines: tuple[int, int, str]) -> list[segment.Step]:
    """A log of steps."""
    return [segment.Step(*line) for line in lines]


@pytest.mark.parametrize(
    ("lines", "last", "lost", "wrong"),
    [
        ([(1, 1, "a"), (1, 2, "b"), (2, 3, "c")], 3, 0, ""),
        ([(1, 1, "a"), (1, 2, "b"), (2, 2, "b"), (2, 3, "c")], 3, 1, ""),
        ([(1, 1, "a"), (1, 1, "a")], 1, 0, "step 1 of segment 1 repeated"),
        ([(1, 1, "a"), (2, 3, "c")], 1, 0, "step 3 of segment 2 comes after step 1"),
        ([(1, 2, "b")], 0, 0, "step 2 of segment 1 comes after step 0"),
        ([(1, 1, "a"), (1, 2, "b"), (2, 2, "x")], 1, 1, "step 2 done again gave other weights"),
        ([], 0, 0, ""),
    ],
)
def test_what_a_log_of_steps_says(
    lines: list[tuple[int, int, str]], last: int, lost: int, wrong: str
) -> None:
    """Done once, done again after a crash, skipped, repeated."""
    assert segment.coverage(log(*lines)) == segment.Coverage(last, lost, wrong)


def test_half_a_line_is_one_that_was_being_written(tmp_path: Path) -> None:
    """A process killed in the middle of it."""
    (tmp_path / segment.STEPS_LOG).write_text("1 1 aa\n1 2 bb\n1 3")
    assert [step.step for step in segment.read_steps(tmp_path)] == [1, 2]
