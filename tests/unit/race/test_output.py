"""What a race's command wrote, read piece by piece: every byte once, in an order that makes sense."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rv.models.race import Chain, Race
from rv.race import output
from rv.race.directory import read_record
from rv.race.output import Chunk, OutputReader, read_sizes, start_of_last
from rv.transport import ScriptResult
from rv.transport.local import LocalTransport
from tests.unit.parsers import RACE


@pytest.fixture
def race(tmp_path: Path) -> Race:
    """A chain's directory."""
    for folder in ("output", "segments"):
        (tmp_path / folder).mkdir()
    record = read_record(json.dumps(RACE), str(tmp_path))
    assert record is not None
    assert isinstance(record.chain, Chain)
    return record


@pytest.fixture
def reader(race: Race) -> OutputReader:
    """All of its output."""
    return OutputReader(race, transport())


def transport() -> LocalTransport:
    """This machine's files and programs."""
    return LocalTransport({"PATH": "/usr/bin:/bin"})


def write(race: Race, name: str, text: str) -> None:
    """Append to a file of the race."""
    with (Path(race.directory) / name).open("a") as file:
        file.write(text)


def said(chunks: Sequence[Chunk]) -> list[tuple[int, int, str, str]]:
    """Segment, node, stream and text."""
    return [
        (one.segment, one.node, "err" if one.is_error else "out", one.data.decode())
        for one in chunks
    ]


def test_a_command_that_always_writes_is_read_to_where_it_is(
    race: Race, reader: OutputReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And all segments that there are by then; what comes while it is read is for the next time."""
    read_new = LocalTransport.read_new

    def while_it_writes(*words: Any) -> dict[str, bytes]:
        pieces = read_new(*words)
        write(race, "output/node0.out", "more\n")
        return pieces

    monkeypatch.setattr(LocalTransport, "read_new", while_it_writes)
    write(race, "output/node0.out", "one\ntwo\n")
    write(race, "segments/2.output", "4 output/node0.out\n")

    found = said(list(itertools.islice(reader.read_all(), 9)))

    assert found == [(1, 0, "out", "one\n"), (2, 0, "out", "two\nmore\n")]


def test_what_is_new_is_read_once(race: Race, reader: OutputReader) -> None:
    """By node in the order of numbers, stdout before stderr; nothing else in the folder counts."""
    assert reader.read() == ()
    for name in ("node10.out", "node2.out", "node2.err", "nodex.out", "node1.txt"):
        write(race, f"output/{name}", f"{name}\n")
    assert said(reader.read()) == [
        (1, 2, "out", "node2.out\n"),
        (1, 2, "err", "node2.err\n"),
        (1, 10, "out", "node10.out\n"),
    ]
    write(race, "output/node2.out", "more")
    assert said(reader.read()) == [(1, 2, "out", "more")]
    assert reader.read() == ()


@pytest.mark.parametrize(
    ("node", "streams", "expected"),
    [
        (None, ("err",), ["0e", "1e"]),
        (1, ("out", "err"), ["1o", "1e"]),
        (0, ("out",), ["0o"]),
        (7, ("out",), []),
    ],
)
def test_a_node_or_a_stream_alone(
    race: Race, node: int | None, streams: tuple[str, ...], expected: list[str]
) -> None:
    """What was not asked for is not read either."""
    for number in (0, 1):
        write(race, f"output/node{number}.out", f"{number}o")
        write(race, f"output/node{number}.err", f"{number}e")
    chunks = OutputReader(race, transport(), node, streams).read()
    assert [one.data.decode() for one in chunks] == expected


def segment(race: Race, number: int) -> None:
    """Begin a segment, as its job does."""
    folder = Path(race.directory)
    files = sorted(folder.glob("output/node*"))
    text = "".join(f"{path.stat().st_size} output/{path.name}\n" for path in files)
    (folder / f"segments/{number}.output").write_text(text)


def test_one_segment_is_read_after_the_other(race: Race, reader: OutputReader) -> None:
    """Over all files, also where one of them is silent for a segment, or appears later."""
    write(race, "output/node0.out", "one\n")
    write(race, "output/node0.err", "oh one\n")
    segment(race, 1)
    segment(race, 2)
    write(race, "output/node0.err", "oh two\n")
    segment(race, 3)
    write(race, "output/node0.out", "three\n")
    write(race, "output/node1.out", "new three\n")
    chunks: list[Chunk] = []
    while found := reader.read():
        chunks.extend(found)
    assert said(chunks) == [
        (1, 0, "out", "one\n"),
        (1, 0, "err", "oh one\n"),
        (2, 0, "err", "oh two\n"),
        (3, 0, "out", "three\n"),
        (3, 1, "out", "new three\n"),
    ]


def test_a_segment_that_begins_while_it_is_followed(race: Race, reader: OutputReader) -> None:
    """What comes after it is the next one's."""
    write(race, "output/node0.out", "one\n")
    assert [one.segment for one in reader.read()] == [1]
    segment(race, 2)
    assert reader.read() == ()
    write(race, "output/node0.out", "two\n")
    assert said(reader.read()) == [(2, 0, "out", "two\n")]


def test_large_output_comes_in_pieces(
    race: Race, reader: OutputReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them is larger than a piece, whatever there is, and together they are all of it."""
    monkeypatch.setattr(output, "_PIECE_BYTES", 1000)
    texts = {f"output/node{node}.out": f"{node}." * 1777 for node in range(3)}
    for name, text in texts.items():
        write(race, name, text)
    got = dict.fromkeys(texts, "")
    while chunks := reader.read():
        assert sum(len(chunk.data) for chunk in chunks) <= 1000
        for chunk in chunks:
            got[f"output/node{chunk.node}.out"] += chunk.data.decode()
    assert got == texts


@pytest.mark.parametrize("lines", [0, 1, 3, 200, 100_000])
def test_the_last_lines_of_each_file(race: Race, lines: int) -> None:
    """However far back they begin; what is written afterwards follows."""
    long = [f"{number} {'x' * 997}" for number in range(500)]
    write(race, "output/node0.out", "\n".join(long) + "\n")
    write(race, "output/node1.out", "a\nb\nc\nd")
    reader = OutputReader(race, transport())
    reader.skip_to_last(lines)
    first = "".join(f"{line}\n" for line in long[len(long) - min(lines, 500) :])
    second = {0: "", 1: "d", 3: "b\nc\nd"}.get(lines, "a\nb\nc\nd")
    expected = [(0, first), (1, second)]
    assert [(one.node, one.data.decode()) for one in reader.read()] == [
        pair for pair in expected if pair[1]
    ]
    write(race, "output/node0.out", "next\n")
    assert said(reader.read()) == [(1, 0, "out", "next\n")]


def test_a_line_without_an_end_is_not_searched_for_ever(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bar that redraws itself is one line of any length: its last part is shown."""
    monkeypatch.setattr(output, "_FIRST_WINDOW", 100)
    monkeypatch.setattr(output, "_LAST_WINDOW", 800)
    write(race, "output/node0.out", "x\r" * 5000)
    reader = OutputReader(race, transport())
    reader.skip_to_last(3)
    (chunk,) = reader.read()
    assert len(chunk.data) == 800


class LosingOnce(LocalTransport):
    """Its first script runs, and its answer is lost with the connection."""

    is_lost = False

    def run(self, script: str, *, timeout_s: float) -> ScriptResult:
        """Answer as a transport does whose connection broke."""
        done = super().run(script, timeout_s=timeout_s)
        first, self.is_lost = not self.is_lost, True
        return ScriptResult(returncode=255, stdout="", stderr="lost") if first else done


def test_an_answer_that_was_lost_is_asked_for_again(race: Race) -> None:
    """It says nothing of what is there: all of the output would be taken for the last lines."""
    write(race, "output/node0.out", "a\nb\n")
    reader = OutputReader(race, LosingOnce({"PATH": "/usr/bin:/bin"}))
    reader.skip_to_last(1)
    assert said(reader.read()) == [(1, 0, "out", "b\n")]


@pytest.mark.parametrize(
    ("data", "lines", "at"),
    [
        (b"a\nb\n", 1, 2), (b"a\nb", 1, 2), (b"a\nb\n", 2, None), (b"", 1, None), (b"\n", 1, None),
        (b"\n\n\n", 2, 1), (b"a", 1, None),
    ],
)  # fmt: skip
def test_where_the_last_lines_begin(data: bytes, lines: int, at: int | None) -> None:
    """A line that is not ended counts as one."""
    assert start_of_last(data, lines) == at


def test_sizes_of_other_files_do_not_count() -> None:
    """Nor does what is no size."""
    text = "5 output/node0.out\n-1 output/node1.out\n7 output/x\n9 ../output/node0.out\n6 output/node3.err"
    assert read_sizes(text) == {"output/node0.out": 5, "output/node3.err": 6}
