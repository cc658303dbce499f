"""The small words of Slurm: durations, memory, times, TRES, host lists, clean text."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rv.models.snapshot import GpuGroup
from rv.slurm import hostlist, values
from rv.slurm.printable import last_line, printable
from rv.slurm.scontrol import parse_node_gres, parse_record

DATA = Path(__file__).parents[2] / "data" / "slurm"
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1-02:03:04", timedelta(days=1, hours=2, minutes=3, seconds=4)),
        ("7-00:00:00", timedelta(days=7)),
        ("2-12", timedelta(days=2, hours=12)),
        ("20:00", timedelta(minutes=20)),
        ("04:00:00", 4 * HOUR),
        ("90", timedelta(minutes=90)),
        ("00:00:10.250", timedelta(seconds=10)),
        *(
            (word, None)
            for word in (
                "UNLIMITED",
                "NOT_SET",
                "INVALID",
                "Partition_Limit",
                "NONE",
                "",
                "-1",
                "²",
            )
        ),
    ],
)
def test_duration(text: str, expected: timedelta | None) -> None:
    """Slurm's durations, and its words for none."""
    assert values.duration(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8G", 8192), ("8192M", 8192), ("8000", 8000), ("1T", 1 << 20), ("2048K", 2), ("1.5G", 1536), ("4Gn", 4096), ("16GB", 16384), ("UNLIMITED", None), ("", None), ("?", None)],
)  # fmt: skip
def test_memory(text: str, expected: int | None) -> None:
    """Memory is MiB, whatever unit Slurm chose."""
    assert values.memory_mib(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "N/A",
        "Unknown",
        "None",
        "",
        "09:01:50",
        "Tomorr 04:00",
        "2026-13-40T00:00:00",
        "0000-01-01T00:00:00",
    ],
)
def test_no_time(text: str) -> None:
    """What is not a full time is no time, never a guess."""
    assert values.time(text) is None


def test_time() -> None:
    """A full time is read as Slurm's clock shows it."""
    assert values.time("2026-11-21T04:19:35") == datetime(2026, 11, 21, 4, 19, 35)  # noqa: DTZ001


def test_tres() -> None:
    """TRES are read by name, memory in MiB; what has no amount is left out."""
    assert values.parse_tres("cpu=4,mem=20G,gres/gpu:a100=2,x,fs/disk=N(0)") == (
        ("cpu", 4),
        ("mem", 20480),
        ("gres/gpu:a100", 2),
    )


def test_weights() -> None:
    """A memory weight per GiB becomes one per MiB; other weights stay."""
    assert values.parse_billing_weights("CPU=1.0,Mem=0.5G,GRES/gpu:a100=4") == (
        ("cpu", 1.0),
        ("mem", 0.5 / 1024),
        ("gres/gpu:a100", 4.0),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gres:gpu:nvidia_a100_1g.10gb:3", (3, {"nvidia_a100_1g.10gb"})),  # 22.05
        ("gres/gpu:4", (4, set())),  # 24.11
        ("gres/gpu:l40s:2,gres/shard:4", (2, {"l40s"})),
        ("cpu=20,gres/gpu=2", (2, set())),
        ("gres:gpu", (1, set())),
        ("gres:gpu:h200", (1, {"h200"})),
        ("N/A", (0, set())),
    ],
)
def test_gpus_asked(text: str, expected: tuple[int, set[str]]) -> None:
    """A request names a count and maybe a type, in the forms of either version."""
    assert values.parse_gpu_request(text) == expected


@pytest.mark.parametrize(
    ("gres", "used", "expected"),
    [
        ("gpu:a100:4(S:0-1)", "gpu:a100:3(IDX:0,2-3)", [("a100", 4, 3)]),
        ("gpu:2", "gpu:(null):1(IDX:0)", [("", 2, 1)]),
        ("gpu:2", "gpu:1", [("", 2, 1)]),
        ("gres/gpu:h200:8", "gres/gpu:h200:8", [("h200", 8, 8)]),
        ("gpu:a:2(S:0),gpu:a:2(S:1)", "gpu:a:3(IDX:0-2)", [("a", 4, 3)]),
        ("gpu:a:2,gpu:b_1g.5gb:7", "gpu:a:0(IDX:N/A),gpu:b_1g.5gb:3(IDX:4-6)", [("a", 2, 0), ("b_1g.5gb", 7, 3)]),
        ("gpu:a:2,gpu:b:2", "gpu:1", [("a", 2, 1), ("b", 2, 1)]),
        ("gpu:a:2,shard:8(S:0,1),mps:gpu:4", "gpu:a:1(IDX:0),shard:2(1/4,1/4)", [("a", 2, 1)]),
        ("gpu:a:no_consume:4", "", [("a", 4, 0)]),
        ("gpu:0", "gpu:0", []),
        ("(null)", "gpu:0", []),
        ("", "", []),
    ],
)  # fmt: skip
def test_gpus_of_a_node(gres: str, used: str, expected: list[tuple[str, int, int]]) -> None:
    """Every form of Gres and GresUsed; use of no known type counts against every type."""
    assert parse_node_gres(gres, used) == tuple(
        GpuGroup(type=t, total=n, used=u) for t, n, u in expected
    )


def test_gpu_use_without_gresused() -> None:
    """Where GresUsed is missing, AllocTRES says what is used: no GPU looks free that is not."""
    assert parse_node_gres("gpu:a:4", "", "cpu=4,gres/gpu=3")[0].free == 1


def test_fields_keep_spaces_and_the_first_of_two() -> None:
    """Values hold spaces; a key inside free text at the end cannot replace the real one."""
    value = parse_record(
        "NodeName=a OS=Linux 6.1 #1 SMP State=IDLE AllocTRES= Reason=bad State=DOWN x=y"
    )
    assert (value["OS"], value["State"], value["AllocTRES"]) == ("Linux 6.1 #1 SMP", "IDLE", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain; ünïcode", "plain; ünïcode"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x\x1b]52;c;ZXZpbA==\x1b\\y", "xy"),
        ("a\u202eb\u2066c\u200bd", "abcd"),
        ("a\nb\tc\u2028d\x00e\x85f", "a b c de f"),
        ("\x9b31mz\x7f", "z"),
    ],
)
def test_printable(text: str, expected: str) -> None:
    """Nothing that moves a cursor, recolours, reorders or breaks a line survives."""
    assert printable(text) == expected


@given(st.text())
def test_printable_is_always_printable(text: str) -> None:
    """Whatever goes in, one printable line comes out, and cleaning it again changes nothing."""
    cleaned = printable(text)
    assert cleaned.isprintable()
    assert printable(cleaned) == cleaned


def test_last_line() -> None:
    """The last line with something on it."""
    assert last_line("one\n\x1b[1mtwo\x1b[0m\n \n") == "two"
    assert last_line("\n") == ""


OPTIONAL = (type(None),)
PARSERS = {
    "number": (values.number, "12", 12, (int, *OPTIONAL)),
    "time": (values.time, "2026-11-21T04:19:35", datetime(2026, 11, 21, 4, 19, 35), (datetime, *OPTIONAL)),  # noqa: DTZ001
    "duration": (values.duration, "1-00:00:00", timedelta(1), (timedelta, *OPTIONAL)),
    "config_seconds": (values.config_seconds, "5 min", timedelta(minutes=5), (timedelta, *OPTIONAL)),
    "memory_mib": (values.memory_mib, "8G", 8192, (int, *OPTIONAL)),
    "comma_list": (values.comma_list, "a,b", ("a", "b"), tuple),
    "allow_list": (values.allow_list, "a,b", {"a", "b"}, frozenset),
    "expand": (hostlist.expand, "a[1-2]", ("a1", "a2"), tuple),
    "parse_tres": (values.parse_tres, "cpu=4", (("cpu", 4),), tuple),
    "parse_billing_weights": (values.parse_billing_weights, "CPU=1.5", (("cpu", 1.5),), tuple),
    "parse_gpu_request": (values.parse_gpu_request, "gres:gpu:a100:2", (2, {"a100"}), tuple),
    "parse_record": (parse_record, "NodeName=a State=IDLE", {"NodeName": "a", "State": "IDLE"}, dict),
    "last_line": (last_line, "one\ntwo", "two", str),
    "parse_node_gres": (lambda text: parse_node_gres(text, text, text), "gpu:a:2", (GpuGroup(type="a", total=2, used=2),), tuple),
}  # fmt: skip


@pytest.mark.parametrize("name", PARSERS)
def test_any_text_has_a_value_of_the_parsers_type(name: str) -> None:
    """No text makes a parser raise, or give something else; and a good one is read all the while."""
    parse, good, expected, kind = PARSERS[name]
    slurmish = st.lists(
        st.sampled_from(
            [*"[](),-=:|/ 019", "gpu", "a100", "(null)", "9" * 20, "UNLIMITED", "G", "T"]
        )
    ).map("".join)

    @given(st.text() | slurmish)
    def check(text: str) -> None:
        assert isinstance(parse(text), kind)
        assert parse(good) == expected

    check()
