"""What becomes of a race whose first job is no good, or that somebody began to stop."""

import json
from pathlib import Path

import pytest

from tests.slurm.launching import REPOSITORY, Rv, group, profile


@pytest.fixture
def two_models(fresh_sandbox, tmp_path) -> Rv:
    """Two models of unlike memory, so two jobs for one GPU, and `rv` on them."""
    large = group("a", "a100") | {"memory": "512G"}
    box = fresh_sandbox(profile([group("v", "v100"), large], {"volta": ["v"], "ampere": ["a"]}))
    return Rv(box=box, home=tmp_path)


def spoil_the_first_job(rv: Rv) -> None:
    """Make the script of submission 1 end before it does anything, as a failed prolog would."""
    own = rv.home / "config" / "rv" / "templates"
    own.mkdir(parents=True)
    text = (REPOSITORY / "templates" / "_preamble.sh.j2").read_text()
    spoiled = "{% if job.number == 1 %}exit 1\n{% endif %}\n"
    (own / "_preamble.sh.j2").write_text(spoiled + text)


def race_of(rv: Rv) -> Path:
    """The only race's directory."""
    (directory,) = (path for path in rv.races_root.iterdir() if not path.name.startswith("."))
    return directory


def states(rv: Rv) -> list[str]:
    """What `rv ps` says."""
    return [race["state"] for race in json.loads(rv("ps", "--json").stdout)["races"]]


def test_a_first_job_that_just_fails_is_followed_by_the_others(two_models):
    """The client goes on watching: it says how the race ended, not how its first job did."""
    rv = two_models
    spoil_the_first_job(rv)
    done = rv("up", "--gpu", "1", "--widen-after", "1h", "--run", rv.count_starts)
    assert done.returncode == 0, done.stderr
    assert "COMPLETED" in done.stderr
    assert sum(rv.starts.values()) == 1


def test_a_wave_that_was_sent_already_is_not_sent_again(two_models):
    """After a first job that Slurm refused, the second goes at once, and once."""
    rv = two_models
    own = rv.home / "config" / "rv" / "templates"
    own.mkdir(parents=True)
    text = (REPOSITORY / "templates" / "_directives.sh.j2").read_text()
    refused = "{% if job.number == 1 %}\n#SBATCH --reservation=none\n{% endif %}\n"
    (own / "_directives.sh.j2").write_text(text + refused)
    command = f"{rv.count_starts}; sleep 4"
    done = rv("up", "--gpu", "1", "--widen-after", "1s", "--run", command)
    assert done.returncode == 0, done.stderr
    assert len((race_of(rv) / "jobs" / "2.id").read_text().split()) == 1
    assert sum(rv.starts.values()) == 1


def test_what_a_stop_left_in_the_queue_the_next_command_takes_away(two_models, eventually):
    """A stop that was killed after its mark: nothing starts, and nothing stays."""
    rv = two_models
    for partition in ("volta", "ampere"):
        rv.slurm("sbatch", "-o", "/dev/null", "-p", partition, "--exclusive", "--wrap", "sleep 600")
    launched = rv("up", "--gpu", "1", "--fanout", "each", "--run", rv.count_starts, "-d")
    assert launched.returncode == 0, launched.stderr
    name = f"rv-{launched.stdout.strip()}"
    assert name in rv.slurm("squeue", "-h", "-O", "Name:40")
    (race_of(rv) / "stop").write_text("")
    rv("ps")
    eventually(lambda: name not in rv.slurm("squeue", "-h", "-O", "Name:40"))
    eventually(lambda: states(rv) == ["CANCELLED"])
    assert not rv.starts


def test_a_full_disk_does_not_keep_a_race_from_being_stopped(two_models, eventually):
    """No stop file can be written, so rv says so; the jobs are cancelled all the same."""
    rv = two_models
    launched = rv("up", "--gpu", "1", "--run", "sleep 600", "-d")
    race = race_of(rv)
    eventually((race / "claim").exists)
    (race / "stop").mkdir()  # where the stop file belongs, nothing can be put
    (race / "stop" / "kept").write_text("")
    stopped = rv("stop", launched.stdout.strip())
    assert stopped.returncode == 125
    assert "no stop file can be written" in stopped.stderr
    eventually(lambda: "rv-" not in rv.slurm("squeue", "-h", "-t", "R,PD", "-O", "Name:40"))


def test_an_empty_name_stops_nothing(two_models):
    """`rv stop "$RACE"` with the variable unset."""
    done = two_models("stop", "")
    assert done.returncode == 2
    assert "error[usage]" in done.stderr
