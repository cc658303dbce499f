"""How a wave of jobs is sent: in which order, how many at a time, and what a failed sbatch means.

The sbatch here only takes its time: order and turns are the shell's. tests/slurm/test_rank.py sees
the same of a real one.
"""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from rv.models.race import Race
from rv.models.request import Objective, Request
from rv.race.submit import PARALLEL, SubmitOutcome, submit_once, submit_together
from rv.transport import ScriptResult
from rv.transport.local import LocalTransport
from tests.unit.race.test_status import RACE

SLACK_S = 1.0
SBATCH = """#!/bin/bash
number=${!#//[^0-9]/}
printf '%s %s\\n' "$EPOCHREALTIME" "$number" >>"calls"
read -r seconds code < <(grep "^$number " "plan" | cut -d' ' -f2-)
sleep "${seconds:-0}"
echo "sbatch: a banner" >&2
[ -z "$code" ] || kill -"$code" $$
echo "$((1000 + number))"
"""


@pytest.fixture(name="race")
def ready(tmp_path: Path) -> Race:
    """A race whose jobs are ready to be sent."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text(SBATCH)
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    return replace(RACE, directory=str(tmp_path))


def transport(race: Race) -> LocalTransport:
    return LocalTransport({"PATH": f"{race.directory}/bin:{os.environ['PATH']}"})


def plan(race: Race, seconds: Mapping[int, float], signal: str = "") -> None:
    """Say how long each sbatch takes, and what it dies of."""
    lines = [f"{number} {taken} {signal}".strip() + "\n" for number, taken in seconds.items()]
    (Path(race.directory) / "plan").write_text("".join(lines))


def calls(race: Race) -> list[tuple[int, float]]:
    """The numbers in the order in which sbatch was called, and when."""
    lines = (Path(race.directory) / "calls").read_text().splitlines()
    return [(int(number), float(at)) for at, number in sorted(line.split() for line in lines)]


def send(race: Race, numbers: Sequence[int]) -> list[int]:
    """Submit, and return what was sent, in order."""
    submit_once(race, numbers, transport(race))
    return [number for number, _ in calls(race)]


def test_the_first_eight_are_sent_in_order(race: Race) -> None:
    """The eighth too, which the ninth to the twelfth do not overtake."""
    plan(race, {})
    for _ in range(8):
        (Path(race.directory) / "calls").unlink(missing_ok=True)
        sent = send(race, range(1, 13))
        assert sent[:PARALLEL] == list(range(1, PARALLEL + 1))
        assert sorted(sent) == list(range(1, 13))


def test_none_waits_long_for_the_one_before(race: Race) -> None:
    """Though others that are late end meanwhile."""
    plan(race, {**{number: 2.4 - 0.1 * number for number in range(1, 5)}, 5: 4.0})
    sent = send(race, range(1, PARALLEL + 1))
    gaps = [later - earlier for (_, earlier), (_, later) in pairwise(calls(race))]
    assert sent == list(range(1, PARALLEL + 1))
    assert max(gaps) < 0.5 + SLACK_S


def test_some_that_hang_hold_up_no_others(race: Race) -> None:
    """Three of eight turns are taken for long: the other five are not, by those that ended."""
    late = {number: 0.7 + 0.06 * number for number in range(1, 7)}
    plan(race, late | dict.fromkeys((7, 8, 9), 15.0))
    began_s = time.time()
    assert sorted(send(race, range(1, 13))) == list(range(1, 13))
    assert max(at for _, at in calls(race)) - began_s < 14.0


def test_no_more_than_eight_run_at_a_time(race: Race) -> None:
    plan(race, dict.fromkeys(range(1, 20), 1.0))
    send(race, range(1, 20))
    began = [at for _, at in calls(race)]
    assert all(
        later - earlier > 0.9 for earlier, later in zip(began, began[PARALLEL:], strict=False)
    )


def test_one_by_one_where_the_cheapest_has_to_start_first(race: Race) -> None:
    plan(race, dict.fromkeys(range(1, 5), 0.3))
    cheapest = replace(race, request=replace(Request(), objective=Objective.COST))
    assert send(cheapest, range(1, 5)) == [1, 2, 3, 4]
    assert all(later - earlier > 0.25 for (_, earlier), (_, later) in pairwise(calls(race)))


def test_many_races_take_turns_too(race: Race) -> None:
    """Of twelve three hang: the others are sent."""
    races = []
    for number in range(12):
        each = replace(race, directory=f"{race.directory}/{number}")
        Path(each.directory, "jobs").mkdir(parents=True)
        plan(each, {1: 10.0 if number < 3 else 0.2})
        races.append(each)
    sent = submit_together([(each, (1,), ()) for each in races], transport(race))
    assert [results[0].outcome for results in sent] == [SubmitOutcome.ACCEPTED] * 12
    began = sorted(calls(each)[0][1] for each in races)
    assert began[-1] - began[0] < 9.0


def test_a_client_that_is_gone_holds_up_nothing(race: Race) -> None:
    """SIGPIPE kills each shell that tells of its job: it gives no turn back."""

    class Unheard(LocalTransport):
        def run(self, script: str, *, timeout_s: float) -> ScriptResult:
            read_end, write_end = os.pipe()
            os.close(read_end)
            env = {"PATH": f"{race.directory}/bin:{os.environ['PATH']}"}
            subprocess.run(
                ["bash", "-c", script], env=env, stdout=write_end, timeout=60, check=True
            )
            os.close(write_end)
            return ScriptResult(returncode=0, stdout="", stderr="", timed_out=False)

    plan(race, {})
    submit_once(race, range(1, 13), Unheard({}))
    assert sorted(number for number, _ in calls(race)) == list(range(1, 13))


@pytest.mark.parametrize("signal", ["SEGV", "ABRT", "HUP", "PIPE", "KILL"])
def test_an_sbatch_that_crashed_is_no_refusal(race: Race, signal: str) -> None:
    """Slurm may have taken the job: its name will tell."""
    plan(race, {1: 0.0}, signal)
    (result,) = submit_once(race, [1], transport(race))
    assert result.outcome is SubmitOutcome.UNKNOWN
    assert not Path(race.directory, "jobs", "1.refused").exists()


def send_one(race: Race, sbatch: str) -> SubmitOutcome:
    """Submit one job with an sbatch of these lines."""
    (Path(race.directory) / "bin" / "sbatch").write_text(f"#!/bin/bash\n{sbatch}\n")
    (result,) = submit_once(race, [1], transport(race))
    return result.outcome


FAILED = "sbatch: error: Batch job submission failed: "
TIMED_OUT = f"{FAILED}Socket timed out on send/recv operation"
NOT_ALLOWED = f"{FAILED}Job violates accounting/QOS policy"
UNKNOWN_OPTION = """sbatch: unrecognized option '--x=y'
Try "sbatch --help" for more information"""
FOOTER = "\\nWrite to the help desk." * 40


@pytest.mark.parametrize(
    "sbatch",
    [
        rf"printf 'Welcome\r\n{TIMED_OUT}\r\n' >&2; exit 1",
        rf"printf 'Welcome\f{TIMED_OUT}\n' >&2; exit 1",
        f"printf '{TIMED_OUT}{FOOTER}' >&2; exit 1",
        f"printf '{TIMED_OUT}\\n{NOT_ALLOWED}\\n' >&2; exit 1",
        f"printf '{TIMED_OUT}\\n' >&2; head -c 99999 /dev/zero | tr '\\0' x >&2; exit 1",
        "echo 1001; echo logger: cannot write >&2; exit 1",
        f"echo '{FAILED}Header lengths are longer than data received' >&2; exit 1",
        f"echo '{FAILED}Unexpected message received' >&2; exit 1",
        f"echo '{FAILED}Insane message length' >&2; exit 1",
        f"echo '{FAILED}Slurm backup controller in standby mode' >&2; exit 1",
        f"echo '{FAILED}Rate limit exceeded, please retry later' >&2; exit 1",
        "echo 'login: Permission denied (publickey).' >&2; exit 255",  # of ssh
        f"printf '{NOT_ALLOWED}\\nConnection to login closed.\\n' >&2; exit 255",
        f"echo '{NOT_ALLOWED}' >&2; exit 137",
    ],
)
def test_what_slurm_may_have_taken_is_no_refusal(race: Race, sbatch: str) -> None:
    assert send_one(race, sbatch) is SubmitOutcome.UNKNOWN


@pytest.mark.parametrize(
    "sbatch",
    [
        f"echo '{NOT_ALLOWED}' >&2; exit 1",
        f"printf '{NOT_ALLOWED}{FOOTER}' >&2; exit 1",
        f"printf 'cannot connect to the motd\\n{NOT_ALLOWED}\\r\\n' >&2; exit 1",
        # An option of the user's own that sbatch does not take: it asks nobody.
        f"cat <<'EOF' >&2; exit 255\n{UNKNOWN_OPTION}\nEOF\n",
        "echo 'sbatch: error: Invalid --begin specification' >&2; exit 255",
    ],
)
def test_what_slurm_refused_is_not_sent_again(race: Race, sbatch: str) -> None:
    assert send_one(race, sbatch) is SubmitOutcome.REFUSED


@pytest.mark.parametrize(
    "sbatch",
    [
        "printf 'Welcome\\r\\n1001;campus\\r\\n'",
        "printf 1001",
        "head -c 3000000 /dev/zero | tr '\\0' ' '; echo; echo 1001",
        "echo 1001; sleep 60 &",  # it keeps the descriptors
    ],
)
def test_an_id_is_read_whatever_is_around_it(race: Race, sbatch: str) -> None:
    began_s = time.monotonic()
    assert send_one(race, sbatch) is SubmitOutcome.ACCEPTED
    assert time.monotonic() - began_s < 30, "it waited for what sbatch left behind"


def test_an_old_answer_is_not_taken_for_a_new_one(race: Race) -> None:
    """Where the answer has no place, nothing is sent."""
    assert send_one(race, f"echo '{NOT_ALLOWED}' >&2; exit 1") is SubmitOutcome.REFUSED
    Path(race.directory, "jobs", "1.out").unlink()
    Path(race.directory, "jobs", "1.out").mkdir()
    assert send_one(race, "touch called") is SubmitOutcome.UNSENT
    assert not Path(race.directory, "called").exists()
