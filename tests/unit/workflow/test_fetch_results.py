"""Results are fetched by the scripts that run on a login node, here on this machine."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from rv.errors import RvError
from rv.models.code import Code
from rv.models.race import Race
from rv.transport import LOST, ScriptResult
from rv.transport.local import LocalStream, LocalTransport
from rv.workflow.fetch_results import Fetched, Listing, fetch, list_results, parse_results
from rv.workflow.read_options import output_pattern

SECOND: Final = 1_000_000_000
THEN: Final = 1_700_000_000 * SECOND + 123_456_789


def transport() -> LocalTransport:
    """What runs on the login node, with the locale that scripts have there."""
    return LocalTransport({"PATH": os.environ["PATH"], "LC_ALL": "C"})


@dataclass
class Pulls:
    """Races whose files lie below `there`, fetched into `here`."""

    there: Path
    here: Path
    over: LocalTransport = field(default_factory=transport)

    def race(self, name: str = "abcd2345") -> Race:
        """Make a race that has a copy of the code."""
        directory = self.there / name
        (directory / "code").mkdir(parents=True, exist_ok=True)
        return Race(
            race_id=name, directory=str(directory), cluster="c", name=name, command="true",
            payload="", is_shell=False, submitted_at=0, min_job_age=timedelta(0),
            message_timeout=timedelta(0), entries=(), waves=(), code=Code(project="p", tree="t"),
        )  # fmt: skip

    def write(self, text: str, at_ns: int, path: str = "out/a", race: str = "abcd2345") -> Path:
        """Write a file of a race."""
        return write(Path(self.race(race).directory) / "code" / path, text, at_ns)

    def list(self, *patterns: str, race: str = "abcd2345") -> Listing:
        """List what matches."""
        return list_results(self.race(race), patterns, transport())

    def pull(self, listing: Listing, race: str = "abcd2345", *, force: bool = False) -> Fetched:
        """Fetch what was listed."""
        return fetch(
            self.race(race), listing.results, self.here, self.here.with_name("memory"),
            force=force, transport=self.over, report=lambda _: None,
        )  # fmt: skip


@pytest.fixture
def pulls(tmp_path: Path) -> Pulls:
    """A folder for both sides."""
    made = Pulls(there=tmp_path / "there", here=tmp_path / "here")
    made.here.mkdir()
    return made


def write(path: Path, text: str, at_ns: int) -> Path:
    """Write a file that was changed at that time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(at_ns, at_ns))
    return path


def names(listing: Listing) -> list[bytes]:
    """The paths that were listed."""
    return [result.path for result in listing.results]


def test_a_later_race_replaces_what_was_fetched_of_an_earlier(pulls: Pulls) -> None:
    """And what the user changed is left."""
    pulls.write("first", THEN, race="race1")
    pulls.write("second", THEN + 7, race="race2")
    assert pulls.pull(pulls.list("out", race="race1"), "race1").paths == ("out/a",)
    assert pulls.pull(pulls.list("out", race="race2"), "race2").paths == ("out/a",)
    assert (pulls.here / "out/a").read_text() == "second"
    write(pulls.here / "out/a", "mine", THEN + 9)
    assert pulls.pull(pulls.list("out", race="race1"), "race1").left == ("out/a",)
    assert (pulls.here / "out/a").read_text() == "mine"


def test_a_file_that_went_with_the_code_is_current(pulls: Pulls) -> None:
    """It has the same time there, in whole seconds; what the race made of it is another."""
    write(pulls.here / "out/a", "sent", THEN)
    pulls.write("sent", THEN // SECOND * SECOND)
    assert pulls.pull(pulls.list("out")).left == ()
    pulls.write("made", THEN + SECOND)
    assert pulls.pull(pulls.list("out")).left == ("out/a",)


def test_without_a_memory_what_is_the_same_becomes_known(pulls: Pulls) -> None:
    """An older rv kept it elsewhere; what it fetched may be replaced all the same."""
    pulls.write("first", THEN)
    write(pulls.here / "out/a", "first", THEN)
    pulls.here.with_name("memory").write_bytes(b"5 1700000000123456789 out/a\0")
    assert pulls.pull(pulls.list("out")).paths == ()
    pulls.write("second", THEN + 7)
    assert pulls.pull(pulls.list("out")).paths == ("out/a",)


def test_a_disk_here_with_coarser_times(pulls: Pulls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is compared with how it looked here, not with how it was listed."""
    pulls.write("first", THEN)
    exact = os.utime
    coarse = 2 * SECOND
    monkeypatch.setattr(
        os, "utime", lambda path, ns: exact(path, ns=tuple(one // coarse * coarse for one in ns))
    )
    assert pulls.pull(pulls.list("out")).paths == ("out/a",)
    fetched = pulls.pull(pulls.list("out"))
    assert (fetched.paths, fetched.left) == ((), ())


@pytest.mark.parametrize(("later", "at_ns"), [("longer than", THEN), ("other", THEN + SECOND)])
def test_a_file_that_changes_while_it_is_fetched(pulls: Pulls, later: str, at_ns: int) -> None:
    """It is named, and the next pull fetches it again, for as long as it differs from the list."""
    pulls.write("short", THEN)
    listing = pulls.list("out")
    pulls.write(later, at_ns)
    fetched = pulls.pull(listing)
    assert (fetched.paths, fetched.changing) == (("out/a",), ("out/a",))
    fetched = pulls.pull(pulls.list("out"))
    assert (fetched.paths, fetched.left, fetched.changing) == (("out/a",), (), ())
    assert (pulls.here / "out/a").stat().st_mtime_ns == at_ns
    assert pulls.pull(pulls.list("out")).paths == ()
    pulls.write("at the end", THEN + 9 * SECOND)
    assert pulls.pull(pulls.list("out")).paths == ("out/a",)


def test_links_that_a_pattern_names_are_followed(pulls: Pulls) -> None:
    """To files and folders; of others, and of those that lead nowhere, it is said."""
    away = write(pulls.there / "scratch" / "f", "away", THEN).parent
    code = pulls.write("a", THEN).parents[1]
    (code / "runs").symlink_to(away)
    (code / "best").symlink_to(away / "f")
    (code / "out" / "data").symlink_to(away)
    (code / "out" / "nowhere").symlink_to("none")
    listing = pulls.list("runs", "best", "out")
    assert set(names(listing)) == {b"out/a", b"best", b"runs/f"}
    assert listing.links == ("out/data", "out/nowhere")
    assert set(pulls.pull(listing).paths) == {"out/a", "best", "runs/f"}
    assert [(pulls.here / name).read_text() for name in ("best", "runs/f")] == ["away", "away"]
    assert not (pulls.here / "best").is_symlink()
    assert (names(pulls.list("r*")), pulls.list("r*").links) == ([], ("runs",))
    assert names(pulls.list("r*/f")) == [b"runs/f"]
    assert pulls.list("out", "out/data").links == ("out/nowhere",)


def test_any_name_comes(pulls: Pulls) -> None:
    """Also one that is no UTF-8, and one whose bytes leave no room for a longer name beside it."""
    wanted = {b"out/\xff\n ", b"out/" + "漢".encode() * 85, b"out/-x", b"out/a\\b", b"out/e[1]"}
    for name in wanted:
        pulls.write("x", THEN, os.fsdecode(name))
    listing = pulls.list("out")
    assert set(names(listing)) == wanted
    assert names(pulls.list("out/e[1]")) == [b"out/e[1]"]
    assert set(map(os.fsencode, pulls.pull(listing).paths)) == wanted
    assert {
        os.fsencode(path.relative_to(pulls.here)) for path in pulls.here.glob("out/*")
    } == wanted


def test_what_is_not_there_yet_is_no_error(pulls: Pulls) -> None:
    """Whatever else is; the folder as a whole is named by a dot."""
    assert pulls.list("out", "*.pt") == Listing((), ())
    pulls.write("x", THEN)
    for patterns in (["none", "out"], ["out", "none"], ["."], ["**"], ["out", "o*/a"]):
        assert names(pulls.list(*patterns)) == [b"out/a"], patterns


@pytest.mark.parametrize("text", ["./runs", "./runs/", "runs/", "runs//", ".//./runs/."])
def test_a_pattern_is_read_as_paths_are_listed(text: str) -> None:
    """However it is written."""
    assert output_pattern(text) == "runs"
    assert (output_pattern("."), output_pattern("./")) == (".", ".")
    assert output_pattern("./a/**/*.pt") == "a/**/*.pt"


def test_a_file_that_is_listed_twice_comes_once(pulls: Pulls) -> None:
    """It grew from one pattern to the next."""
    pulls.write("longer", THEN)
    text = b"1 1700000000.0 ./out/a\0" + b"6 1700000000.123456789 ./out/a\0"
    fetched = pulls.pull(parse_results(text, ["out"]))
    assert fetched.paths == ("out/a",)


@pytest.mark.parametrize(
    ("patterns", "named", "others"),
    [
        (["runs"], ["runs", "runs/a", "runs/b/c"], ["a", "runs2", "x/runs", "Makefile"]),
        (["."], ["a", "a/b", ".hidden"], [".git/hooks/pre-commit", "a/.GIT/config"]),
        (["*"], ["a", ".hidden/b"], [".git/config"]),
        (["*.pt"], ["a.pt", ".pt", "a.pt/b"], ["a/b.pt", "apt", "a.pth"]),
        (["**/*.pt"], ["a.pt", "x/y/a.pt"], ["a.py", "x/a.pts"]),
        (["out/**"], ["out/a", "out/a/b"], ["outer/a", "b"]),
        (["a?[0-9]", "b"], ["ax7", "b/c"], ["a7", "a/7", "ax77/../x"]),
        (["step[1]"], ["step[1]", "step1"], ["step/1"]),
        (["a\\*b"], ["a*b"], ["axb"]),
        (["ä*"], ["äx"], ["bx"]),
    ],
)
def test_only_what_was_asked_for_is_listed(
    patterns: list[str], named: list[str], others: list[str]
) -> None:
    """Whatever the login node answers, and nothing that git would take for its own."""
    told = b"".join(b"1 1700000000.0 ./" + os.fsencode(path) + b"\0" for path in named + others)
    listed = {os.fsdecode(path) for path in names(parse_results(told, patterns))}
    assert listed == set(named)


@pytest.mark.parametrize(
    "pattern",
    [".", "*", "**", "**/x", "a*", "a/**/x", "[ab]*", "a?", "[[:alpha:]]b", "[!a]*", "ä", "\\a"],
)
def test_what_bash_finds_counts_as_asked_for(pulls: Pulls, pattern: str) -> None:
    """Of every kind of pattern, and with names that look like one."""
    paths = ["ab", "b", "ä", ".x", "a/x", "a/b/x", "a/b/c/x", "[ab]*", "a?", "\\a", "a b"]
    for path in paths:
        pulls.write("1", THEN, path=path)
    words = ["bash", "-O", "globstar", "-O", "nullglob", "-O", "dotglob", "-c"]
    code = Path(pulls.race().directory) / "code"
    expanded = "*" if pattern == "." else pattern
    found = subprocess.run(
        [*words, f'printf "%s\\n" ./{expanded}'],
        cwd=code,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    files = {path[2:] for path in found if (code / path).is_file()}
    assert files <= {os.fsdecode(path) for path in names(pulls.list(pattern))}
    assert files or pattern == "\\a"


def test_two_fetches_into_one_folder_each_put_a_whole_file(pulls: Pulls) -> None:
    """They write drafts of their own."""
    text = "x" * 600_000
    pulls.write(text, THEN)
    listing = pulls.list("out")
    arguments = (pulls.race(), listing.results, pulls.here, pulls.here.with_name("memory"))
    other: list[Fetched] = []

    class Slow(LocalTransport):
        """Another fetch comes and goes while this one's file comes."""

        def open_stream(self, line: str) -> LocalStream:
            stream = super().open_stream(line)
            read = stream.read

            def reads(most: int) -> bytes:
                if not other and list(pulls.here.rglob("*.rv-new")):
                    other.append(pulls.pull(listing))
                return read(min(most, 10_000))

            stream.read = reads  # type: ignore[method-assign]
            return stream

    slow = Slow({"PATH": os.environ["PATH"], "LC_ALL": "C"})
    mine = fetch(*arguments, force=True, transport=slow, report=lambda _: None)
    assert other[0].paths == ("out/a",)
    assert (mine.paths, mine.left) == ((), ("out/a",))
    assert (pulls.here / "out" / "a").read_text() == text
    assert list(pulls.here.rglob("*.rv-new")) == []


def test_what_a_killed_fetch_left_is_removed_the_day_after(
    pulls: Pulls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what another is writing, and no other file."""
    pulls.write("1", THEN)
    left = write(pulls.here / "out" / ".a.0123abcd.rv-new", "", THEN)
    other = write(pulls.here / "out" / ".a", "", THEN)
    pulls.pull(pulls.list("out"))
    assert left.exists()
    monkeypatch.setattr("rv.workflow.fetch_results._STALE_S", 0)
    pulls.write("2", THEN)
    pulls.write("3", THEN, "out/b")
    assert pulls.pull(pulls.list("out")).paths
    assert (left.exists(), other.exists()) == (False, True)


DEEP: Final = "/".join(["out", *["f" * 240] * 12])
"""A folder with so long a path that few files have many bytes of names."""


def test_more_names_than_a_command_takes(pulls: Pulls) -> None:
    """A pattern may match any number of files."""
    for number in range(1000):
        pulls.write("", THEN, f"{DEEP}/{number}")
    assert len(pulls.list("**/[0-9]*").results) == 1000


class Breaking(LocalTransport):
    """A connection that breaks in the middle of an archive."""

    def open_stream(self, line: str) -> LocalStream:
        """Start a bash line."""
        stream = super().open_stream(line)
        read, left = stream.read, iter([64 << 10])

        def some(size: int) -> bytes:
            if not (most := next(left, 0)):
                raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            return read(min(size, most))

        stream.read = some  # type: ignore[method-assign]
        return stream


def test_a_connection_that_breaks_within_a_file(pulls: Pulls) -> None:
    """It is no fault of the folder here, and no part of the file is left."""
    pulls.write("x" * 500_000, THEN)
    pulls.over = Breaking({"PATH": os.environ["PATH"]})
    with pytest.raises(RvError, match="the results were cut off"):
        pulls.pull(pulls.list("out"))
    assert list((pulls.here / "out").iterdir()) == []


def test_many_names_are_sent_to_somebody_who_reads_them(pulls: Pulls) -> None:
    """Neither side waits for the other to read; in a process that can be ended."""
    for number in range(200):
        pulls.write("x" * 600, THEN, f"{DEEP}/{number}")
    with subprocess.Popen(
        [sys.executable, "-c", _PULL, str(pulls.there), str(pulls.here)],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as child:  # fmt: skip
        try:
            assert child.communicate(timeout=60)[0] == "200\n"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


_PULL = """
import sys
from pathlib import Path
from tests.unit.workflow.test_fetch_results import Pulls
pulls = Pulls(*map(Path, sys.argv[1:]))
print(len(pulls.pull(pulls.list("out")).paths))
"""


class Cut:
    """A login node of which an answer says how it was cut off."""

    def __init__(self, **answer: object) -> None:
        self._answer = answer

    def run(self, script: str, *, timeout_s: float) -> ScriptResult:
        """Answer."""
        return ScriptResult(**{"stdout": "", "stderr": "", **self._answer})  # type: ignore[arg-type]


CUTS: Sequence[tuple[dict[str, object], str]] = (
    ({"returncode": 124, "timed_out": True}, "the login node took too long"),
    ({"returncode": 137}, "killed on the login node"),
    ({"returncode": LOST, "stderr": "the connection was lost: x"}, "the connection was lost"),
)


@pytest.mark.parametrize(("answer", "why"), CUTS)
def test_a_list_that_was_cut_off_says_why(
    pulls: Pulls, answer: dict[str, object], why: str
) -> None:
    """It is not the disk's fault."""
    with pytest.raises(RvError, match=why) as caught:
        list_results(pulls.race(), ["out"], Cut(**answer))  # type: ignore[arg-type]
    assert caught.value.kind == "unreachable"
