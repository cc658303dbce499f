"""Ten states of the live wait, as a terminal shows them; a command's output has stdout to itself.

tests/golden/live_wait.txt has them all; `GOLDEN=write tests/run.sh tests/unit/ui/test_wait_screens.py`
rewrites it. Real terminals are in tests/faults/test_live_wait.py.
"""

import io
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.text import Text

from rv.models.race import RaceStatus, StateFiles
from rv.race.output import Chunk
from rv.race.sources import Sources
from rv.race.status import resolve
from rv.race.submit import SubmitOutcome, SubmitResult
from rv.ui import console, live_wait
from rv.ui.live_wait import LiveWait
from rv.ui.progress import Progress
from tests.unit.race.test_status import CLAIM, RACE, SENT, T0, ended, record
from tests.unit.ui.test_wait_views import ENTRIES, pending, waiting

GOLDEN = Path(__file__).parents[2] / "golden" / "live_wait.txt"
HEIGHT = 12


class Screen:
    """What stands on a terminal: what was said, and below it what is drawn again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
        self.columns, self.said, self.drawn = columns, "", list[str]()
        size = os.terminal_size((columns, HEIGHT))
        keys = SimpleNamespace(is_open=True, open=str, close=str, pressed=str)
        drawing = SimpleNamespace(show=self.show, clear=self.clear)
        monkeypatch.setattr(live_wait, "terminal_size", lambda: size)
        monkeypatch.setattr(live_wait, "Keys", lambda: keys)
        monkeypatch.setattr(live_wait, "Redrawn", lambda: drawing)
        monkeypatch.setattr(live_wait, "time", SimpleNamespace(time=lambda: T0 + 42))
        monkeypatch.setattr(console, "_write", self.write)

    def show(self, lines: list[str]) -> None:
        self.drawn = list(lines)

    def clear(self) -> None:
        self.drawn = []

    def write(self, stream: object, text: str) -> None:
        self.said += text

    def text(self, *, styles: bool = False) -> str:
        """What rich makes of it; nothing is wider than the terminal but what was said."""
        assert all(Text.from_ansi(line).cell_len <= self.columns for line in self.drawn)
        recorder = Console(record=True, width=self.columns, file=io.StringIO(), force_terminal=True)
        recorder.print(Text.from_ansi(self.said + "\n".join(self.drawn)))
        lines = recorder.export_text(styles=styles).splitlines()
        return "".join(f"{line.rstrip()}\n" for line in lines)


def queued() -> RaceStatus:
    return waiting(pending(1, 300), pending(2, 142, "Resources"))


def checking() -> RaceStatus:
    return waiting(record("RUNNING", 1), record("CANCELLED", 2))


def rejected() -> RaceStatus:
    files = replace(SENT, declined=(("n1", "nvidia-smi does not answer"),))
    records = (pending(1, None, "BeginTime"), pending(2, 142, "Resources"))
    race = replace(RACE, entries=ENTRIES)
    return resolve(race, files, Sources(records=records, now_s=T0, queue_answered=True))


def won(**changes: object) -> RaceStatus:
    files = StateFiles(job_ids=SENT.job_ids, claim=CLAIM, **changes)  # type: ignore[arg-type]
    race = replace(RACE, entries=ENTRIES)
    sources = Sources(records=(record("RUNNING", 1),), now_s=T0, queue_answered=True)
    return resolve(race, files, sources)


def is_submitted(wait: LiveWait | Progress) -> None:
    wait.submitted(
        [SubmitResult(number=n, outcome=SubmitOutcome.ACCEPTED, job_id=10 + n) for n in (1, 2)]
    )
    wait.status(waiting())


def is_over(wait: LiveWait | Progress) -> None:
    wait.status(queued())
    wait.status(won())
    wait.output(Chunk(node=0, is_error=False, data=b"step 1\nstep 2\n"))
    wait.finish(won(ended=ended()))


def falls_silent(wait: LiveWait | Progress) -> None:
    wait.status(queued())
    wait.say("Slurm has not answered since 12:00:30: the race goes on, and Slurm is asked again")
    wait.status(queued())


STATES: dict[str, tuple[int, Callable[[LiveWait | Progress], None]]] = {
    "submitted": (100, is_submitted),
    "waiting for planned starts": (100, lambda wait: wait.status(queued())),
    "no start is planned": (100, lambda wait: wait.status(waiting(pending(1, None), pending(2, None)))),
    "checking its node": (100, lambda wait: wait.status(checking())),
    "a node was rejected": (100, lambda wait: wait.status(rejected())),
    "a winner": (100, lambda wait: (wait.status(queued()), wait.status(won()))[0]),
    "the end": (100, is_over),
    "Slurm is silent": (100, falls_silent),
    "80 columns": (80, lambda wait: wait.status(queued())),
    "60 columns": (60, lambda wait: wait.status(queued())),
}  # fmt: skip


def progress() -> Progress:
    return Progress(json_only=False)


def drawn(monkeypatch: pytest.MonkeyPatch, name: str) -> Screen:
    columns, happens = STATES[name]
    screen = Screen(monkeypatch, columns)
    happens(LiveWait(progress(), ctrl_c="cancels", may_leave=True))
    return screen


def test_each_state_is_shown_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the difference: it is what users will see."""
    shown = "".join(f"== {name}\n{drawn(monkeypatch, name).text()}\n" for name in STATES)
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(shown, encoding="utf-8")
    assert shown == GOLDEN.read_text(encoding="utf-8"), "GOLDEN=write rewrites it"


@pytest.mark.parametrize("name", STATES)
def test_no_color_is_no_colour(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With NO_COLOR the same text stands there, without a style."""
    coloured = drawn(monkeypatch, name).text()
    monkeypatch.setenv("NO_COLOR", "1")
    assert drawn(monkeypatch, name).text(styles=True) == coloured


def test_a_style_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1m" in drawn(monkeypatch, "checking its node").text(styles=True)


def test_a_job_that_nobody_hears_of_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """It is sent again and again, and each attempt wrote the line."""
    lost = SubmitResult(number=1, outcome=SubmitOutcome.UNKNOWN, text="no answer from sbatch")
    plain = progress()
    for _ in range(3):
        plain.submitted([lost])
    plain.submitted([replace(lost, text="Unable to contact slurm controller")])
    assert capsys.readouterr().err.splitlines() == [
        "job 1 is unconfirmed: no answer from sbatch; see rv ps",
        "job 1 is unconfirmed: Unable to contact slurm controller; see rv ps",
    ]


def test_without_a_terminal_the_same_is_said_in_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sentence once, and no table."""
    screen = Screen(monkeypatch, 100)
    plain = progress()
    is_submitted(plain)
    plain.status(queued())
    plain.status(queued())
    is_over(plain)
    assert screen.drawn == []
    lines = screen.text().strip().splitlines()
    assert "submitted 2 jobs: 11, 12" in lines
    assert sum(line.startswith("waiting: ") for line in lines) == 1
    assert sum(line.startswith("started on a1") for line in lines) == 1
    assert lines[-1].startswith("race abcdefgh COMPLETED, exit code 0")
