"""Sites with habits: wrapped commands, plugins that rewrite, other languages, secrets, no database.

Each is a real cluster; what is odd about it stands between rv and Slurm, or in Slurm itself.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from rv import sandbox
from tests.faults.world import COUNTED, TINY, World, eventually
from tests.slurm.launching import Rv, rv_of

HOSTILE: Final = {
    "SQUEUE_STATES": "COMPLETED", "SQUEUE_FORMAT": "%i", "SQUEUE_FORMAT2": "JobID", "SQUEUE_USERS": "daemon", "SQUEUE_SORT": "-i",
    "SBATCH_JOB_NAME": "mine", "SBATCH_PARTITION": "nowhere", "SBATCH_ACCOUNT": "nobody", "SBATCH_TIMELIMIT": "1", "SBATCH_EXCLUSIVE": "1",
    "SBATCH_OUTPUT": "/nowhere/x", "SBATCH_HOLD": "1", "SBATCH_TEST_ONLY": "1", "SBATCH_EXPORT": "NONE", "SBATCH_ARRAY_INX": "0-3",
    "SINFO_FORMAT": "%n", "SACCT_FORMAT": "JobID", "SACCT_FEDERATION": "1", "SLURM_CLUSTERS": "mars", "SLURM_TIME_FORMAT": "relative",
    "SLURM_JOB_ID": "1", "SLURM_NTASKS": "7", "SLURM_BITSTR_LEN": "0", "SCONTROL_ONELINER": "0", "SCANCEL_STATE": "SUSPENDED", "SCANCEL_NAME": "x",
    "LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8", "LC_NUMERIC": "de_DE.UTF-8", "LANGUAGE": "de",
    "BASH_ENV": "/nowhere/profile", "ENV": "/nowhere/profile", "IFS": "/e1", "PS4": "$(touch hacked)", "SHELLOPTS": "xtrace:noglob", "BASHOPTS": "nullglob",
    "POSIXLY_CORRECT": "1", "CDPATH": "/tmp:/", "GLOBIGNORE": "*", "EXECIGNORE": "*/s*", "FUNCNEST": "1", "TMOUT": "1",
    "GREP_OPTIONS": "-v", "BASH_FUNC_scontrol%%": "() { echo hacked; }", "BASH_FUNC_cd%%": "() { false; }", "BASH_FUNC_printf%%": "() { :; }",
    "TMPDIR": "/nowhere", "COLUMNS": "3", "LINES": "1",
}  # fmt: skip
LUA: Final = """
function slurm_job_submit(desc, partitions, uid)
  local comment = desc.comment or ""
  if desc.partition == "fast" and io.open("%(refuse)s") then
    slurm.log_user("Liebe Nutzer, on fast only at night; to connect write to hpc@site.example")
    return slurm.ERROR
  end
  if desc.partition == "fast" then
    desc.partition = "night"
  end
  desc.comment = comment .. " seen by the site"
  desc.time_limit = 7
  return slurm.SUCCESS
end
function slurm_job_modify(desc, record, partitions, uid)
  return slurm.SUCCESS
end
return slurm.SUCCESS
"""


def ran_once(world: World) -> None:
    """One command started, in one job that Slurm knows, and nothing is left."""
    assert world.starts() == 1
    assert world.race()["state"] == "COMPLETED"
    world.wait_for_the_end_of_jobs()
    assert Path(world.race_dir() / "jobs" / "1.id").read_text().split() == [
        str(world.race()["jobs"][0]["job_id"])
    ]


def without_ids(plan: str) -> str:
    """A plan, scripts and all, without what rv drew at random for it."""
    names = [job["name"] for job in json.loads(plan)["submissions"]]
    return re.sub(r"[0-9a-f]{32}", "NONCE", plan.replace(names[0].split("-")[1], "ID"))


BANNERS: Final = {
    "before": 'echo "*** Welcome ***"; echo "42 jobs wait" >&2; $real "$@"',
    "after": 'out=$($real "$@"); rc=$?; echo "$out"; printf "\\n  Cost: 3\\n"; echo bye >&2; exit $rc',
    "digits": 'out=$($real "$@"); rc=$?; echo 2026; echo "$out"; echo 31337; exit $rc',
    "only words": 'out=$($real "$@"); rc=$?; echo "Submitted as <${out}>"; exit $rc',
    "colours and returns": r'out=$($real "$@"); rc=$?; printf "\033[31mhello\033[0m\r\n%s\r\n" "$out"; exit $rc',
    "not UTF-8": r'printf "Gr\374\337e\n"; printf "Gr\374\337e\n" >&2; $real "$@"',
}  # fmt: skip


@pytest.mark.parametrize("name", BANNERS)
def test_a_wrapped_sbatch_that_talks(world: World, name: str) -> None:
    """Whatever stands around the id, it is the right job that rv takes for its own."""
    world.wrap("sbatch", BANNERS[name])
    done = world.rv("up", "--run", COUNTED)
    assert done.returncode == 0, done.stderr
    ran_once(world)


def test_other_wrapped_commands_that_talk(world: World) -> None:
    """Banners above and below every answer change nothing."""
    for command in ("squeue", "scontrol", "sacctmgr", "sacct", "scancel"):
        world.wrap(command, r'printf "=== \033[1mMOTD\033[0m 7 ===\n12|x\n"; $real "$@"; rc=$?; echo "-- bye"; exit $rc')  # fmt: skip
    assert world.rv("up", "--run", COUNTED).returncode == 0
    ran_once(world)


def test_hostile_surroundings(world: World) -> None:
    """What rv submits and reads is what it would be without them."""
    words = ("up", "--dry-run", "--json", "--run", COUNTED)
    plain, odd = world.rv(*words), world.rv(*words, env=HOSTILE)
    assert odd.returncode == 0, odd.stderr
    assert without_ids(odd.stdout) == without_ids(plain.stdout)
    done = world.rv("up", "--run", COUNTED, env=HOSTILE)
    assert done.returncode == 0, done.stderr
    assert "hacked" not in done.stdout + done.stderr
    assert not list(world.path.rglob("hacked"))
    ran_once(world)
    seen = json.loads(world.ok("ps", "-a", "--json", env=HOSTILE))["races"]
    assert [race["state"] for race in seen] == ["COMPLETED"]


def test_names_in_another_encoding(world: World) -> None:
    """Somebody's job name and comment in Latin-1, with a colour and a newline, hide nothing."""
    free = world.fill()
    odd = b"gr\xfc\xdfe \x1b[31m|7|\nrv-x"
    for _ in range(2):
        world.slurm("sbatch", "-J", os.fsdecode(odd), "--comment", os.fsdecode(odd), "-o", "/dev/null", "--wrap", "sleep 600")  # fmt: skip
    assert world.rv("up", "-d", "--run", COUNTED).returncode == 0
    assert world.race()["state"] == "PENDING"
    shown = world.rv("explain")
    assert shown.returncode == 0, shown.stderr
    assert "\x1b" not in shown.stdout + shown.stderr
    assert world.rv("status").returncode == 0
    free()
    assert world.settled("COMPLETED", "FAILED")["state"] == "COMPLETED"
    assert world.starts() == 1


def test_without_the_commands_of_accounting(world: World) -> None:
    """They are not installed: plans say what they do not know, and races end as they do."""
    for command in ("sacctmgr", "sacct"):
        world.wrap(command, f'echo "{command}: command not found" >&2; exit 127')
    done = world.rv("up", "--run", COUNTED)
    assert done.returncode == 0, done.stderr
    ran_once(world)


@pytest.fixture
def ruled(world: World) -> Iterator[Path]:
    """A site whose own plugin looks at every job; where the file is there, it refuses some."""
    conf = world.box.slurm_conf
    script, before = conf.parent / "job_submit.lua", conf.read_text()
    refuse = conf.parent / "refuse"
    script.write_text(LUA % {"refuse": refuse})
    conf.write_text(f"{before}JobSubmitPlugins=lua\n")
    world.slurm("scontrol", "reconfigure")
    world.slurm("scontrol", "create", "partitionname=night", "nodes=a[1-2]", "maxtime=1-0")
    yield refuse
    refuse.unlink(missing_ok=True)
    conf.write_text(before)
    world.slurm("scontrol", "reconfigure")
    script.unlink()


def test_a_plugin_that_refuses_is_heard_and_the_race_goes_on(world: World, ruled: Path) -> None:
    """Its own words are shown; the strategy that it lets pass runs."""
    ruled.touch()
    alone = world.rv("up", "-p", "fast", "--run", COUNTED)
    assert alone.returncode == 125
    assert "error[refused]" in alone.stderr
    assert "on fast only at night" in alone.stderr
    both = world.rv("up", "--fanout", "each", "--run", COUNTED)
    assert both.returncode == 0, both.stderr
    assert world.starts() == 1
    world.wait_for_the_end_of_jobs()


def test_a_job_that_a_plugin_rewrites_is_followed(world: World, ruled: Path) -> None:
    """To another partition, with another time and comment: it is still the race's job."""
    done = world.rv("up", "-p", "fast", "--run", f"{COUNTED}; scontrol show job $SLURM_JOB_ID -o")
    assert "Partition=night" in done.stdout, done.stdout + done.stderr
    assert "TimeLimit=00:07:00" in done.stdout
    assert done.returncode == 0, done.stderr
    ran_once(world)


HIDDEN: Final = "jobs,reservations,usage,users,accounts,cloud"


@pytest.fixture(scope="module")
def secretive(
    sandbox_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sandbox.Sandbox]:
    """A cluster that shows a plain user nothing of others."""
    path = tmp_path_factory.mktemp("profile") / "secretive.yaml"
    path.write_text(yaml.safe_dump({**TINY, "slurm_conf": {"PrivateData": HIDDEN}}))
    yield sandbox.up("secretive", path, users=("nobody",))
    sandbox.down("secretive")


@pytest.fixture
def plain_user(secretive: sandbox.Sandbox, sandbox_home: Path) -> Iterator[Rv]:
    """`rv` as nobody."""
    with rv_of("nobody", secretive, sandbox_home / "secretive-nobody") as rv:
        yield rv


@pytest.mark.skipif(os.getuid() != 0, reason="only root's sandbox serves other users")
def test_private_data(plain_user: Rv) -> None:
    """Of others nothing shows: a plan is made of what does, and its race is run and told whole."""
    hog = plain_user.fill("a1", 4)
    eventually(lambda: plain_user.job_state(hog) == "RUNNING")
    done = plain_user("up", "--time", "10m", "--run", plain_user.count_starts)
    assert done.returncode == 0, done.stderr
    assert sum(plain_user.starts.values()) == 1
    assert plain_user.state()["state"] == "COMPLETED"
    plain_user.slurm("scancel", hog)


@pytest.mark.skipif(os.getuid() != 0, reason="only root's sandbox serves other users")
def test_nodes_that_are_private(plain_user: Rv) -> None:
    """Without them there is no plan: rv says who hides what, in place of a silent controller."""
    conf = plain_user.box.slurm_conf
    before = conf.read_text()
    conf.write_text(before.replace(HIDDEN, f"{HIDDEN},nodes"))
    plain_user.slurm("scontrol", "reconfigure")
    done = plain_user("up", "--run", "true")
    conf.write_text(before)
    plain_user.slurm("scontrol", "reconfigure")
    assert done.returncode == 125
    assert "error[refused]: Slurm does not show its nodes to you" in done.stderr
    assert "PrivateData" in done.stderr
