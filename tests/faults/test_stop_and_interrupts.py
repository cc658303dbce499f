"""A race is stopped whole, Ctrl-C does what it says, and what a dead winner left is cancelled."""

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.faults.terminal import Terminal
from tests.faults.world import COUNTED, World, eventually, kill, processes_of

HELD = f"{COUNTED}; echo here; exec sleep 600"


def enough(world: World, last: str = "echo two; exit 5") -> str:
    """A command that waits for a file."""
    return f"{COUNTED}; echo one; until [ -e {world.path}/enough ]; do sleep 0.05; done; {last}"


# rv stop


def test_stop_finds_jobs_whose_ids_were_never_learned(world: World) -> None:
    """By name: the id files are gone, as after a client killed inside sbatch."""
    release = world.fill()
    world.ok("run", "-d", HELD)
    assert len(world.live_jobs()) == 2
    for path in world.race_dir().glob("jobs/*.id"):
        path.unlink()
    done = world.rv("stop")
    assert done.returncode == 0, done.stderr
    assert world.live_jobs() == []
    release()
    race = world.race()
    assert (race["state"], race["winner"]) == ("CANCELLED", None)
    assert world.starts() == 0


def test_stop_finds_jobs_that_their_user_renamed(world: World) -> None:
    """Their scripts' paths say whose they are; a race that runs is RUNNING under any name."""
    release = world.fill()
    world.ok("run", "-d", "-n", "waits", HELD)
    for row in world.rows_of_live_jobs():
        world.slurm("scontrol", "update", f"jobid={row.split()[0]}", "name=mine")
    world.forget_queue()
    assert world.race()["state"] == "PENDING"
    world.ok("stop", "waits")
    assert "mine" not in world.slurm("squeue", "-h", "-o", "%j")
    release()
    world.ok("run", "-d", "-n", "runs", HELD)
    eventually(lambda: world.starts() == 1 and len(world.live_jobs()) == 1)
    (row,) = world.rows_of_live_jobs()
    world.slurm("scontrol", "update", f"jobid={row.split()[0]}", "name=mine")
    world.forget_queue()
    states = {race["name"]: race["state"] for race in world.ps()}
    assert states == {"waits": "CANCELLED", "runs": "RUNNING"}
    world.ok("stop", "runs")
    assert "mine" not in world.slurm("squeue", "-h", "-t", "R", "-o", "%j")
    assert {race["state"] for race in world.ps()} == {"CANCELLED"}


def test_a_renamed_job_that_was_cancelled_is_not_sent_again(world: World) -> None:
    """Accounting has it under the name that its user gave it, in the race's directory."""
    release = world.fill()
    world.ok("run", "-d", HELD)
    ids = [row.split()[0] for row in world.rows_of_live_jobs()]
    for job in ids:
        world.slurm("scontrol", "update", f"jobid={job}", "name=mine")
    world.slurm("scancel", *ids)
    forgets = "slurm_load_jobs error: Invalid job id specified"
    world.wrap(
        "scontrol",
        f'[ "$1 $2" != "show job" ] || {{ echo "{forgets}" >&2; exit 1; }}; exec "$real" "$@"',
    )
    world.wrap("squeue", 'case "$*" in *--me*) [ "$1" = -h ] || exit 0 ;; esac; exec "$real" "$@"')
    world.backdate()
    world.forget_queue()
    eventually(lambda: world.race()["state"] == "CANCELLED")
    release()
    assert world.live_jobs() == []
    assert world.starts() == 0


def test_stop_reaches_a_command_that_slurm_does_not(world: World) -> None:
    """Its slurmstepd was killed: for Slurm the job is over, and nobody signals what it ran."""
    world.override("_watch.sh.j2", lambda text: text.replace("{{ stop_watch_seconds }}", "1"))
    client = world.start("run", "-d", f"{COUNTED}; exec sleep 606")
    assert client.wait() == 0
    eventually(lambda: world.starts() == 1 and len(world.live_jobs()) == 1)
    (row,) = world.rows_of_live_jobs()
    found = list(processes_of(int(row.split()[0]), world.box))
    kill([pid for pid, what in found if what != "below"])
    world.ok("stop")
    below = [pid for pid, what in found if what == "below"]
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))
    assert world.race()["state"] == "CANCELLED"


def test_stop_ends_a_running_race(world: World) -> None:
    """Its command gets TERM, its client learns of it."""
    client = world.start("run", HELD)
    client.prints("here")
    done = world.rv("stop", "--json")
    assert done.returncode == 0, done.stderr
    (stopped,) = json.loads(done.stdout)["stopped"]
    assert (len(stopped["cancelled"]), stopped["unconfirmed"]) == (1, "")
    assert client.wait() == 143
    world.wait_for_the_end_of_jobs()
    race = world.race()
    assert (race["state"], race["exit_code"]) == ("CANCELLED", 143)


def test_stop_cancels_again_what_slurm_did_not_take(world: World) -> None:
    """Its first two answers are errors, and nothing was cancelled."""
    world.wrap("scancel", '[ "$(calls)" -gt 2 ] || exit 1; exec "$real" "$@"')
    client = world.start("run", HELD)
    client.prints("here")
    done = world.rv("stop", "--json")
    assert done.returncode == 0, done.stderr
    (stopped,) = json.loads(done.stdout)["stopped"]
    assert (len(stopped["cancelled"]), stopped["unconfirmed"]) == (1, "")
    assert client.wait() == 143


def test_stop_between_the_claim_and_the_command_leaves_its_word(world: World) -> None:
    """The shell of the job outlives a TERM that comes before it has a command to pass it on to."""
    waiting = 'until [ -n "$rv_cause" ]; do sleep 0.1; done\n'
    world.override("_epilogue.sh.j2", lambda text: waiting + text)
    client = world.start("run", HELD)
    client.says("started on")
    world.ok("stop")
    assert client.wait() == 143
    world.wait_for_the_end_of_jobs()
    race = world.race()
    assert (race["state"], race["exit_code"]) == ("CANCELLED", 143)


def test_stop_all_and_stop_by_name_id_and_job(world: World) -> None:
    """Others are left alone; what is over is not stopped again."""
    release = world.fill()
    for name in ("one", "two", "three", "four", "five"):
        world.ok("run", "-d", "-n", name, HELD)
    by_name = {race["name"]: race for race in world.ps()}
    job_id = by_name["two"]["jobs"][0]["job_id"]
    for word in ("one", str(job_id), by_name["three"]["race"][:5]):
        world.ok("stop", word)
    states = {race["name"]: race["state"] for race in world.ps()}
    assert states == {
        "one": "CANCELLED",
        "two": "CANCELLED",
        "three": "CANCELLED",
        "four": "PENDING",
        "five": "PENDING",
    }
    assert len(world.live_jobs()) == 4
    rest = world.rv("stop", "--all", "--json")
    assert {row["race"] for row in json.loads(rest.stdout)["stopped"]} == {
        by_name["four"]["race"],
        by_name["five"]["race"],
    }
    assert world.live_jobs() == []
    release()
    assert {race["state"] for race in world.ps()} == {"CANCELLED"}
    assert json.loads(world.rv("stop", "--all", "--json").stdout) == {"stopped": []}
    assert world.starts() == 0


def test_all_of_one_name_are_stopped_where_that_is_said(world: World) -> None:
    """Another name is left alone; what is over is no question."""
    release = world.fill()
    for name in ("same", "same", "other"):
        world.ok("run", "-d", "-n", name, HELD)
    world.ok("stop", "same", "--all")
    states = [(race["name"], race["state"]) for race in world.ps()]
    assert sorted(states) == [
        ("other", "PENDING"),
        ("same", "CANCELLED"),
        ("same", "CANCELLED"),
    ]
    world.ok("stop")
    assert world.live_jobs() == []
    release()


def test_a_job_that_starts_after_stop_starts_nothing(world: World) -> None:
    """A submission that Slurm only now takes finds the stop mark."""
    release = world.fill()
    world.ok("run", "-d", HELD)
    world.ok("stop")
    release()
    script = world.race_dir() / "jobs" / "1.sh"
    late = world.slurm("sbatch", "--parsable", str(script)).strip()
    eventually(lambda: "JobState=COMPLETED" in world.slurm("scontrol", "show", "job", late))
    assert world.starts() == 0
    assert world.race()["state"] == "CANCELLED"


def test_stop_of_an_unknown_race_is_a_usage_error(world: World) -> None:
    """And says how to see them all."""
    done = world.rv("stop", "nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error[usage]: ")


# Ctrl-C


def test_interrupt_of_up_before_the_claim_stops_the_race(world: World) -> None:
    """Exit 130, no job left."""
    release = world.fill()
    client = world.start("up", "--run", HELD)
    client.says("waiting")
    client.interrupt()
    assert client.wait() == 130
    assert world.live_jobs() == []
    release()
    assert world.race()["state"] == "CANCELLED"
    assert world.starts() == 0
    assert "Traceback" not in client.err


def test_interrupt_of_up_after_the_claim_detaches(world: World) -> None:
    """The job goes on; `rv logs -f` follows it to its end and has its code."""
    client = world.start("up", "--run", enough(world))
    client.prints("one")
    client.interrupt()
    assert client.wait() == 130
    assert "detached" in client.err.splitlines()[-1]
    assert world.race()["state"] == "RUNNING"
    follower = world.start("logs", "-f")
    follower.prints("one")
    (world.path / "enough").touch()
    assert follower.wait() == 5
    assert follower.out == "one\ntwo\n"
    assert world.starts() == 1
    world.wait_for_the_end_of_jobs()


def test_interrupt_of_run_detaches_even_before_the_claim(world: World) -> None:
    """It says how to come back, and the race goes on by itself."""
    release = world.fill()
    client = world.start("run", COUNTED)
    client.says("waiting")
    client.interrupt()
    assert client.wait() == 130
    (directory,) = world.races()
    assert f"rv logs -f {directory.name}" in client.err.splitlines()[-1]
    assert len(world.live_jobs()) == 2
    release()
    assert world.settled("COMPLETED")["exit_code"] == 0
    assert world.starts() == 1
    world.wait_for_the_end_of_jobs()


def test_interrupt_of_logs_leaves_the_race_alone(world: World) -> None:
    """Exit 130."""
    world.ok("run", "-d", enough(world, "true"))
    follower = world.start("logs", "-f")
    follower.prints("one")
    follower.interrupt()
    assert follower.wait() == 130
    (world.path / "enough").touch()
    assert world.settled("COMPLETED")["exit_code"] == 0


@pytest.mark.parametrize("command", ["up", "run"])
def test_interrupt_at_any_moment_leaves_nothing_behind_or_one_start(
    world: World, command: str
) -> None:
    """During the import, the probe, the staging, inside sbatch: no traceback, exit 130."""
    for step in range(6):
        words = ["up", "--run", COUNTED] if command == "up" else ["run", COUNTED]
        client = world.start(*words)
        time.sleep(0.05 + 0.12 * step)
        client.interrupt()
        code = client.wait()
        # On a busy machine Python itself may still be starting, and then it says so with a 1.
        is_early = code == 1 and "/rv/" not in client.err
        assert is_early or code in (130, 0, -signal.SIGINT), client.err
        assert "error[" not in client.err
    for path in world.races():
        world.backdate_race(path)
    eventually(lambda: {race["state"] for race in world.ps()} <= {"COMPLETED", "CANCELLED"})
    world.wait_for_the_end_of_jobs()
    won = [race for race in world.ps() if race["winner"]]
    assert world.starts() == len(won)


# Other ends of a client


@pytest.mark.parametrize("claimed", [True, False], ids=["running", "waiting"])
def test_a_client_that_is_told_to_end_says_how_to_go_on(world: World, *, claimed: bool) -> None:
    """SIGTERM of `rv run`, as by a supervisor: exit 143, and the race goes on by itself."""
    release = world.fill() if not claimed else lambda: None
    client = world.start("run", enough(world, "true"))
    client.prints("one") if claimed else client.says("waiting")
    client.process.terminate()
    assert client.wait() == 143
    (directory,) = world.races()
    assert client.err.splitlines()[-1].startswith(f"detached: rv logs -f {directory.name} ")
    release()
    (world.path / "enough").touch()
    assert world.settled("COMPLETED")["exit_code"] == 0
    assert world.starts() == 1
    world.wait_for_the_end_of_jobs()


def test_a_detached_start_that_is_told_to_end_loses_no_race(world: World) -> None:
    """SIGTERM of `rv run -d` when the job is in the queue, and sbatch has not said so yet."""
    world.ok("up", "--dry-run")
    world.wrap("sbatch", 'out=$("$real" "$@"); at; echo "$out"')
    client = world.start("run", "-d", enough(world, "true"))
    world.reached("sbatch")
    client.process.terminate()
    world.go("sbatch")
    assert client.wait() == 143
    (directory,) = world.races()
    assert client.err.splitlines()[-1].startswith(f"detached: rv logs -f {directory.name} ")
    (world.path / "enough").touch()
    assert world.settled("COMPLETED")["exit_code"] == 0
    assert world.starts() == 1
    world.wait_for_the_end_of_jobs()


def test_a_client_whose_output_cannot_be_written_says_how_to_go_on(world: World) -> None:
    """Who typed it again would have two races."""
    command = [sys.executable, "-m", "rv", "run", enough(world, "true")]
    client = world.start_program("bash", "-c", 'exec "$@" >/dev/full', "bash", *command)
    assert client.wait() == 125
    (directory,) = world.races()
    error, hint = client.err.splitlines()[-2:]
    assert error == "error[stage]: the output could not be written: No space left on device"
    assert hint.startswith(f"  hint: race {directory.name} goes on: rv logs -f {directory.name} ")
    (world.path / "enough").touch()
    assert world.settled("COMPLETED")["exit_code"] == 0
    assert world.starts() == 1
    world.wait_for_the_end_of_jobs()


# Waiting, and not waiting


def test_wait_timeout_cancels_the_whole_race(world: World) -> None:
    """Exit 124."""
    release = world.fill()
    done = world.rv("up", "--wait-timeout", "3s", "--run", HELD)
    assert done.returncode == 124, done.stderr
    assert world.live_jobs() == []
    assert "gave up" in done.stderr.splitlines()[-1]
    release()
    assert world.race()["state"] == "CANCELLED"


def test_detached_returns_at_once_and_slurm_holds_the_later_waves(world: World) -> None:
    """The race id on stdout; the second job has --begin, and goes when the first has won."""
    world.ok("up", "--dry-run")
    release = world.drain()
    done = world.rv("run", "-d", "--widen-after", "10m", enough(world, "true"))
    assert done.returncode == 0, done.stderr
    (directory,) = world.races()
    assert done.stdout == f"{directory.name}\n"
    assert len(world.live_jobs()) == 2

    def held() -> list[str]:
        rows = world.slurm("squeue", "-h", "-t", "PD", "-o", "%j %r").splitlines()
        return [row for row in rows if row.endswith("BeginTime")]

    eventually(held)
    assert held() == [f"rv-{directory.name}-2 BeginTime"]
    release()
    eventually(lambda: world.starts() == 1)
    eventually(lambda: world.live_jobs() == [f"rv-{directory.name}-1"])
    (world.path / "enough").touch()
    world.settled("COMPLETED")


def test_a_detached_race_widens_by_itself(world: World) -> None:
    """The first wave's nodes stay shut: the second starts without any client."""
    world.ok("up", "--dry-run")
    world.nodes("state=drain", "reason=test", prefix="a")
    try:
        world.ok("run", "-d", "--widen-after", "2s", COUNTED)
        race = world.settled("COMPLETED")
    finally:
        world.nodes("state=resume", prefix="a")
        world.idle()
    assert race["winner"]["nodes"].startswith("v")
    assert world.starts() == 1
    world.wait_for_the_end_of_jobs()


def test_what_a_dead_winner_left_is_reaped_by_the_next_command(world: World) -> None:
    """The job could not cancel its siblings: any rv command does, and the winner is left alone."""
    world.override(
        "_preamble.sh.j2", lambda text: text.replace("rv_slurm scancel -Q", "false scancel -Q")
    )
    world.ok("up", "--dry-run")
    world.nodes("state=drain", "reason=test", prefix="v")
    try:
        world.ok("run", "-d", "--fanout", "each", enough(world, "true"))
        eventually(lambda: world.starts() == 1)
        assert len(world.live_jobs()) == 2, "nobody has cancelled the sibling"
        eventually(lambda: world.race() and len(world.live_jobs()) == 1)
        (world.path / "enough").touch()
        assert world.settled("COMPLETED")["exit_code"] == 0
    finally:
        world.nodes("state=resume", prefix="v")
        world.idle()
    world.wait_for_the_end_of_jobs()
    assert world.starts() == 1


# Which one, among several


@pytest.mark.parametrize("words", [("same",), ()])
def test_several_races_are_named_and_none_is_stopped_unasked(
    world: World, terminals: list[Terminal], words: tuple[str, ...]
) -> None:
    """Two of one name, or no name: without a terminal an error, on one a question."""
    release = world.fill()
    for _ in range(2):
        world.ok("run", "-d", "-n", "same", HELD)
    ids = {race["race"] for race in world.ps()}
    refused = world.rv("stop", *words)
    assert refused.returncode == 2
    assert all(race in refused.stderr for race in ids)
    assert "--all stops all of them" in refused.stderr
    for answer, state in (("n", "PENDING"), ("y", "CANCELLED")):
        terminals.append(Terminal(world, "stop", *words))
        terminals[-1].shows("Stop all of them? [y/N]")
        terminals[-1].types(answer)
        terminals[-1].wait()
        assert {race["state"] for race in world.ps()} == {state}
    release()
