"""Durations and memory: what people and Slurm write, and what Slurm is given."""

from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rv.errors import ErrorKind, RvError
from rv.models.quantities import (
    parse_duration,
    parse_memory_mib,
    short_duration,
    short_memory,
    slurm_time,
)

DURATIONS = st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=3650))
WHOLE_SECONDS = st.integers(1, 3650 * 86400).map(lambda seconds: timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90m", 5400),
        ("2h", 7200),
        ("1d12h", 129600),
        ("45s", 45),
        ("1.5h", 5400),
        (" 2H ", 7200),
        ("1h30m15s", 5415),
        ("30", 1800),
        ("30:00", 1800),
        ("2:59:00", 10740),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("1-12:30:15", 131415),
        ("0-0:1", 60),
        ("100:00:00", 360000),
        ("3650d", 3650 * 86400),
    ],
)
def test_durations_are_read_as_people_and_slurm_write_them(text: str, seconds: int) -> None:
    """A bare number is minutes and `a:b` minutes and seconds, as in Slurm."""
    assert timedelta(seconds=seconds) == parse_duration(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "0",
        "0s",
        "0:00:00",
        "-1h",
        "h",
        "2 h",
        "2x",
        "1h30",
        "1:2:3:4",
        "1-2:3:4:5",
        "1-",
        "nan",
        "inf",
        "1e3",
        "٣٠",
        "30m\n; rm -rf /",
        "3651d",
        "9" * 400,
        "9" * 400 + "d",
        "UNLIMITED",
        "9" * 5000,
        "9" * 5000 + "-1",
        "1:" + "9" * 5000,
        "0.0000001s",
    ],
)
def test_other_durations_are_refused(text: str) -> None:
    """Anything else, zero and more than ten years are usage errors that quote the text."""
    with pytest.raises(RvError, match="is not a duration") as caught:
        parse_duration(text)

    assert ErrorKind.USAGE is caught.value.kind
    assert "90m" in caught.value.hint
    assert len(caught.value.message) < 100


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("32G", 32768),
        ("500M", 500),
        ("1.5T", 1572864),
        ("64GiB", 65536),
        ("64gb", 65536),
        ("1024", 1024),
        ("1K", 1),
        ("1025k", 2),
        ("0.1M", 1),
        (" 2 G ", 2048),
    ],
)
def test_memory_is_read_as_people_and_slurm_write_it(text: str, mib: int) -> None:
    """Units are powers of 1024, a bare number is MiB, and a fraction is rounded up."""
    assert mib == parse_memory_mib(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0G",
        "-1G",
        "G",
        "1.G",
        "32 G B",
        "32P",
        "1e3",
        "32G;",
        "nan",
        "inf",
        "٣٢G",
        "9" * 400 + "T",
        "9" * 5000,
    ],
)
def test_other_amounts_of_memory_are_refused(text: str) -> None:
    """Anything else, zero and absurd amounts are usage errors."""
    with pytest.raises(RvError, match="is not an amount of memory") as caught:
        parse_memory_mib(text)

    assert ErrorKind.USAGE is caught.value.kind
    assert "32G" in caught.value.hint
    assert len(caught.value.message) < 100


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1, "00:01:00"),
        (60, "00:01:00"),
        (61, "00:02:00"),
        (10740, "02:59:00"),
        (86400, "1-00:00:00"),
        (131415, "1-12:31:00"),
        (0.1, "00:01:00"),
    ],
)
def test_walltime_is_written_in_whole_minutes(seconds: float, text: str) -> None:
    """Slurm's limits are whole minutes, so a walltime is rounded up to them."""
    assert text == slurm_time(timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (45, "45s"),
        (10740, "2h59m"),
        (10799, "2h59m"),
        (3 * 86400, "3d"),
        (86400 + 5, "1d5s"),
        (59.6, "1m"),
        (3661, "1h1m"),
    ],
)
def test_durations_are_shown_by_their_two_largest_units(seconds: float, text: str) -> None:
    """Two units say enough, and what is zero is left out."""
    assert text == short_duration(timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("mib", "text"),
    [
        (500, "500M"),
        (1024, "1G"),
        (1536, "1.5G"),
        (32768, "32G"),
        (1572864, "1.5T"),
        (1048575, "1T"),
        (10 * 1024 * 1024 * 1024, "10240T"),
        (1 << 40, "1048576T"),
    ],
)
def test_memory_is_shown_in_its_largest_unit(mib: int, text: str) -> None:
    """At most four digits, in the unit that keeps the number small."""
    assert text == short_memory(mib)


@given(DURATIONS)
@example(timedelta(seconds=60, microseconds=1))
def test_walltime_is_never_short_and_less_than_a_minute_long(duration: timedelta) -> None:
    """What Slurm is given covers the duration and adds less than a minute."""
    text = slurm_time(duration)
    days, _, clock = text.rpartition("-")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    written = timedelta(days=int(days or 0), hours=hours, minutes=minutes, seconds=seconds)

    assert timedelta(0) <= written - duration < timedelta(minutes=1)
    if written <= timedelta(days=3650):
        assert written == parse_duration(text)


@given(WHOLE_SECONDS)
def test_shown_duration_reads_back_within_its_second_unit(duration: timedelta) -> None:
    """What is shown is never more than the duration, and less by under a twenty-fourth."""
    shown = parse_duration(short_duration(duration))

    assert shown <= duration
    assert (duration - shown) * 24 < duration


@given(st.integers(1, 1 << 40))
def test_shown_memory_reads_back_within_a_thousandth(mib: int) -> None:
    """Four digits are kept."""
    assert abs(parse_memory_mib(short_memory(mib)) - mib) <= max(1, mib / 1000)


@given(st.integers(1, 1 << 40))
def test_bare_mib_reads_back_exactly(mib: int) -> None:
    """A number of MiB, with or without its unit, is that number."""
    assert mib == parse_memory_mib(str(mib)) == parse_memory_mib(f"{mib}M")


@given(st.text(max_size=20) | st.text(st.sampled_from("0123456789.:-dhmsgtkib "), max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes anything but a value in range or an `RvError`."""
    for parse in (parse_duration, parse_memory_mib):
        try:
            value = parse(text)
        except RvError:
            continue
        assert value > (timedelta(0) if isinstance(value, timedelta) else 0)
