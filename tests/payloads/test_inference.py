"""inference.py: a network of ResNet-50's shape, whose every timed output is compared."""

from pathlib import Path

import pytest

from tests.payloads.starting import Launcher, torchrun


def test_the_network_has_the_papers_size_and_survives_half_precision() -> None:
    """25.6 million parameters, as torchvision's; rounding is far from the gate."""
    torch = pytest.importorskip("torch")
    from _inference.batches import TOLERANCE
    from _inference.resnet import FULL, images, resnet

    network, given = resnet(FULL, 42), images(FULL, 1, 1)
    assert sum(parameter.numel() for parameter in network.parameters()) == 25_557_032
    with torch.inference_mode():
        right = network(given)
        with torch.autocast("cpu", torch.float16):
            came = network(given)

    assert float((came.float() - right).norm() / right.norm()) < TOLERANCE["fp16"] / 5


def test_every_output_is_compared_on_each_rank(tmp_path: Path) -> None:
    """Under the real torchrun: both ranks report, and no speed is judged on a CPU."""
    pytest.importorskip("torch")
    done = torchrun("inference", tmp_path, "--device", "cpu", "--quick", "--duration", "0.2")

    assert done.code == 0, done.out + done.err
    assert {test["rank"] for test in done.result["tests"]} == {0, 1}
    details = done.test("inference.throughput")["details"]
    assert details["made"] == details["compared"] > 8
    [images] = done.test("inference.throughput")["metrics"]
    assert (images["unit"], images["size"], images["value"] > 0) == ("images/s", 4, True)


def test_another_rounding_is_told_and_fails_nothing(launch: Launcher, tmp_path: Path) -> None:
    words = ["--device", "cpu", "--quick", "--duration", "0.1", "--inject", "other-rounding:batch=7"]  # fmt: skip
    done = launch("inference", tmp_path, *words)

    assert (done.code, done.coded) == (0, {"inference.throughput": "not_repeatable"})


def test_images_come_out_alike_at_any_place_of_their_batch() -> None:
    """What the fault `wrong-place` changes: the last of four, none of the two that a CPU proves."""
    torch = pytest.importorskip("torch")
    from _inference.batches import PROVEN, Batches
    from _inference.resnet import TINY

    assert 0 <= Batches(TINY, 4, "cpu", 1).require_places() < 0.1
    struck = Batches(
        TINY, PROVEN + 1, "cpu", 1, (None, lambda out: torch.cat([out[:-1], -out[-1:]]))
    )
    assert struck.require_proven() < 0.1
