"""moe.py: a mixture of experts, sharded over ranks, that decodes what a whole model would."""

from pathlib import Path

import pytest

from tests.payloads.starting import python, slow_judging, torchrun

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


def test_with_a_torch_that_is_too_old_for_transformers_that_is_a_skip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its classes are placeholders then."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from _moe.mixtral import why_not
    from transformers.utils import import_utils

    assert why_not() == ""
    kind = import_utils.DummyObject("MixtralForCausalLM", (), {"_backends": ["torch"]})
    absent = {"torch": (lambda: False, "{0} requires PyTorch >= 9\nInstall it.")}
    monkeypatch.setattr(import_utils, "BACKENDS_MAPPING", absent)
    monkeypatch.setattr("transformers.MixtralForCausalLM", kind)

    assert why_not().endswith("requires PyTorch >= 9 Install it.")


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


@pytest.mark.parametrize("slow", ["0", "2"])
def test_ranks_that_are_skipped_wait_for_each_other(tmp_path: Path, slow: str) -> None:
    """torchrun ends all ranks at the first code, while one still asks who else was on its GPU."""
    pytest.importorskip("torch")
    (tmp_path / "transformers.py").write_text("raise ImportError('hidden')\n")
    done = torchrun("moe", tmp_path, "--device", "cpu", ranks=3, **slow_judging(tmp_path, slow))

    assert done.result["summary"]["status"] == "SKIP", done.out + done.err
    assert [each["rank"] for each in done.result["ranks"]] == [0, 1, 2]
    assert "KeyboardInterrupt" not in done.err
