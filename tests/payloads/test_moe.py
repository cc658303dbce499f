"""moe.py: a mixture of experts, sharded over ranks, that decodes what a whole model would."""

from pathlib import Path

import pytest

from tests.payloads.starting import python, torchrun

GIB = 1 << 30


def test_four_ranks_decode_as_a_whole_model_does(tmp_path: Path) -> None:
    """Under the real torchrun, with the hub's own classes: a quarter of the parameters each."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    done = torchrun("moe", tmp_path, "--device", "cpu", "--new-tokens", "4", ranks=4)

    assert done.code == 0, done.out + done.err
    assert {test["rank"] for test in done.result["tests"]} == {0, 1, 2, 3}
    assert done.test("moe.shard")["details"]["share"] == pytest.approx(0.25, abs=0.05)
    tokens = done.test("moe.tokens")
    assert (tokens["details"]["compared"], min(tokens["details"]["used"]) > 0) == (8 * 4, True)
    assert {metric["name"] for metric in tokens["metrics"]} == {"prompt_ms", "tokens"}


def test_without_transformers_that_is_a_skip(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "transformers.py").write_text("raise ImportError('hidden')\n")

    done = python("moe", tmp_path, "--device", "cpu", PYTHONPATH=str(tmp_path))

    assert (done.code, done.coded) == (77, {"moe": "tool_absent"})


def test_a_model_is_as_large_as_every_rank_has_room_for() -> None:
    """A MIG slice of 5 GB is sound though two models of eight layers do not fit."""
    pytest.importorskip("torch")
    from _moe.mixtral import HALF, SMALL, Room, fitting
    from contract.verdicts import NotPassed

    whole, part = Room(78 * GIB, 79 * GIB), Room(int(4.4 * GIB), int(4.75 * GIB))
    assert fitting([SMALL, HALF], [whole, whole]) is SMALL
    assert fitting([SMALL, HALF], [whole, part]) is HALF

    held, tiny = Room(GIB, 79 * GIB), Room(2 * GIB, 2 * GIB)
    absent = Room(78 * GIB, 79 * GIB, "no transformers")
    for room, said in (
        (held, ("ERROR", "out_of_memory")),
        (tiny, ("SKIP", "unsupported")),
        (absent, ("SKIP", "tool_absent")),
    ):
        with pytest.raises(NotPassed) as outcome:
            fitting([SMALL, HALF], [whole, room])
        assert (outcome.value.status, outcome.value.code) == said


def test_the_weights_are_counted_as_transformers_makes_them() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from _moe.mixtral import TINY, mixtral, parameters

    made = sum(each.numel() for each in mixtral(TINY, 1).parameters())

    assert parameters(TINY) == pytest.approx(made, rel=0.05)
