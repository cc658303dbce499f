"""What jobs measured of their GPUs, and the line that rv makes of it."""

import pytest

from rv.models.gpu_use import GpuSums, GpuUse, gpu_use, nominal_gb, smaller_card
from rv.race.gpu_use import read_gpu_sums

NAME = "gpus/7.0.0a1b2c3d.a1"
CARDS = (23028, 46068, 81920, 143771)


def test_segments_of_a_chain_add_up() -> None:
    """Each leaves a file of its own; those of other nodes stay apart."""
    files = {
        NAME: b"0 2 2 100 4096 81920 NVIDIA A100\n1 2 0 0 5 81920 NVIDIA A100\n",
        "gpus/8.1.0a1b2c3e.a1": b"0 1 1 80 9000 81920 NVIDIA A100\n",
        "gpus/8.1.0a1b2c3e.b1": b"0 1 1 20 10 81920 NVIDIA A100\n",
    }
    first, second, other = read_gpu_sums(files)
    assert (first.samples, first.utilization, first.peak_mib) == (3, 60.0, 9000)
    assert (second.samples, second.utilization) == (2, None)
    assert (other.node, other.samples) == ("b1", 1)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"0 0 0 0 0 81920 none", b"0 1 1 101 1 81920 too busy", b"0 1 2 0 1 81920 more",
        b"0 1 1 1 1 0 no card", b"-1 1 1 1 1 1 x", b"0 1 1 1 1", b"a b c d e f g", b"\xff\xfe",
    ],
)  # fmt: skip
def test_what_no_job_wrote_is_not_measured(line: bytes) -> None:
    """Nor is what lies there under another name."""
    assert read_gpu_sums({NAME: line}) == ()
    good = b"0 1 1 50 100 81920 NVIDIA A100\n"
    assert read_gpu_sums({"gpus/7.0.0a1b2c3d": good, "gpus/a1": good}) == ()
    assert len(read_gpu_sums({NAME: line + b"\n" + good})) == 1


def sums(peak_mib: int, *, busy: int = 10, total_mib: int = 81920) -> GpuSums:
    """One GPU, of a hundred samples."""
    return GpuSums(
        node="a1", index=0, model="x", samples=100, measured=100, busy=busy * 100,
        peak_mib=peak_mib, total_mib=total_mib,
    )  # fmt: skip


def test_the_mean_is_over_all_the_peak_of_the_fullest() -> None:
    """The card is that of the fullest."""
    assert gpu_use(()) is None
    use = gpu_use((sums(10, busy=0), sums(9216, busy=24, total_mib=46068)))
    assert use == GpuUse(gpus=2, samples=100, utilization=12.0, peak_mib=9216, card_mib=46068)


@pytest.mark.parametrize(
    ("peak_mib", "total_mib", "smaller"),
    [
        (9216, 81920, 23028),
        (19190, 81920, 23028),
        (19191, 81920, 46068),
        (38390, 81920, 46068),
        (38391, 81920, None),
        (9216, 23028, None),
        (9216, 46068, 23028),
        (0, 81920, None),
        (500, 81920, None),
        (60000, 143771, 81920),
    ],
)
def test_a_smaller_card_holds_the_peak_and_a_fifth(
    peak_mib: int, total_mib: int, smaller: int | None
) -> None:
    """No card is named that the cluster has not, nor for GPUs that were not used at all."""
    use = gpu_use((sums(peak_mib, total_mib=total_mib),))
    assert use is not None
    assert smaller_card(use, CARDS) == smaller
    assert smaller_card(use, (81920, 143771)) in (None, 81920)
    assert smaller_card(use, ()) is None


@pytest.mark.parametrize(
    ("shown", "called"),
    [
        (81920, 80), (81559, 80), (46068, 48), (49140, 48), (24576, 24), (23028, 24), (143771, 141),
        (15360, 16), (11441, 12), (11264, 11), (10240, 10), (32607, 32), (40960, 40), (183359, 180),
        (95830, 94), (97871, 96), (4096, 4), (50_000, 49),
    ],
)  # fmt: skip
def test_a_card_is_called_by_its_name(shown: int, called: int) -> None:
    """The one on its box, where there is one; nvidia-smi shows less."""
    assert nominal_gb(shown) == called
