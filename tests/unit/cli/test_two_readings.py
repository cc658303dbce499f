"""Options that have two readings are refused, with the words for each."""

import pytest

from rv.errors import ErrorKind, RvError
from rv.workflow.options import RequestOptions, gpu_count
from rv.workflow.read_options import build_request


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"vram": "80"}, "write 80G or 80M"),
        ({"mem": "32"}, "write 32G or 32M"),
        ({"mem": " 1.5 "}, "write 1.5G or 1.5M"),
        ({"type": "30m"}, "write --time 30m"),
        ({"type": "1:30:00"}, "write --time 1:30:00"),
        ({"type": "a100,2h"}, "write --time 2h"),
    ],
)
def test_what_has_two_readings_is_refused(options: dict[str, str], hint: str) -> None:
    """A size without a unit is MiB to Slurm and GiB to people; Slurm's -t is a time."""
    with pytest.raises(RvError) as caught:
        build_request(RequestOptions(**options), None)
    assert (caught.value.kind, caught.value.hint) == (ErrorKind.USAGE, hint)


def test_models_that_are_numbers_are_types() -> None:
    """A 3090 is a GPU."""
    assert build_request(RequestOptions(type="3090,a100"), None).types == ("3090", "a100")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a100:2", "write --gpu 2 --type a100"),
        ("gpu:a100:2", "write --gpu 2 --type a100"),
        ("two", "write --gpu 4"),
        ("-1", "write --gpu 4"),
        ("1" * 5000, "write --gpu 4"),
    ],
)
def test_slurms_way_to_ask_for_gpus_is_explained(text: str, hint: str) -> None:
    """`--gpus=a100:2` is sbatch's."""
    with pytest.raises(RvError) as caught:
        gpu_count(text)
    assert caught.value.hint == hint
