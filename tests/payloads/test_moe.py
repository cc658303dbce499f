"""moe.py: a mixture of experts, sharded over ranks, that decodes what a whole model would."""

from pathlib import Path

import pytest

from tests.payloads.starting import python, torchrun


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
