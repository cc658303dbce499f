"""What Slurm and its administrators do to jobs: holds, start times, suspension, limits, reservations."""

import getpass
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from tests.faults.scenarios.daemons import stopped
from tests.faults.scenarios.nodes import HEARS_OF_ITS_END, WAITS_BEFORE_ITS_CLAIM
from tests.faults.scenarios.registry import (
    END,
    START,
    held,
    launch,
    let_go,
    node_of,
    occupy,
    scenario,
    send,
    winner,
)
from tests.faults.world import Client, World, eventually


def _own_jobs(world: World) -> list[str]:
    return [row.split()[0] for row in world.rows_of_live_jobs()]


def _running_job(world: World) -> str:
    """The id of the one job that is held right before its claim."""
    world.reached("sync")
    (job,) = world.slurm("squeue", "-h", "-t", "R", "-o", "%A").split()
    return job


@scenario()
def submitted_with_a_hold(world: World, dice: Random) -> None:
    """All jobs are held by their user, and are released later."""
    send(world, "--sbatch", "hold", "--fanout", "each")
    for _ in range(2):
        world.ps()
    world.slurm("scontrol", "release", *_own_jobs(world))


@scenario()
def submitted_for_later(world: World, dice: Random) -> None:
    """No job is eligible before its time."""
    launch(world, "--sbatch", "begin=now+4", "--fanout", dice.choice(["auto", "each"]))


@scenario("CANCELLED", forgets=True)
def held_and_then_cancelled(world: World, dice: Random) -> None:
    """By hand and never eligible: accounting leaves such jobs out when it is asked by name."""
    send(world, "--sbatch", dice.choice(["hold", "begin=now+1hour"]))
    world.slurm("scancel", *_own_jobs(world))
    _forgotten(world)


@scenario()
def requeued_and_held_before_the_claim(world: World, dice: Random) -> None:
    """An administrator's `requeuehold`; released later, the job is a racer as before."""
    world.wrap("sync", HEARS_OF_ITS_END)
    launch(world, "-p", "fast")
    job = _running_job(world)
    world.slurm("scontrol", "requeuehold", job)
    eventually((world.path / "told").exists)
    world.go("sync")
    eventually(lambda: "JobState=PENDING" in world.slurm("scontrol", "show", "job", job))
    world.ps()
    world.slurm("scontrol", "release", job)


@scenario()
def the_winner_is_suspended(world: World, dice: Random) -> None:
    """And resumed, after rv was asked."""
    launch(world, command=held(world))
    eventually(world.starts)
    job = winner(world)
    world.slurm("scontrol", "suspend", job)
    world.ps()
    let_go(world)
    world.slurm("scontrol", "resume", job)


@scenario()
def suspended_before_the_claim(world: World, dice: Random) -> None:
    """Its sibling may win meanwhile; resumed, it leaves or claims."""
    world.wrap("sync", WAITS_BEFORE_ITS_CLAIM)
    launch(world, "-p", "fast")
    job = _running_job(world)
    world.slurm("scontrol", "suspend", job)
    world.go("sync")
    world.ps()
    world.slurm("scontrol", "resume", job)


@scenario("PREEMPTED")
def preempted_with_grace(world: World, dice: Random) -> None:
    """The winner is told to end, and has seconds for it."""
    launch(world, "--qos", "graceful", "--preemptible", "-p", "fast", command=held(world))
    eventually(world.starts)
    job = winner(world)
    eventually(lambda: "Requeue=0" in world.slurm("scontrol", "show", "job", job))
    occupy(world, node_of(world, job))()


@scenario("PREEMPTED")
def preempted_by_cancelling(world: World, dice: Random) -> None:
    """PreemptMode=CANCEL: the winner is not requeued."""
    launch(world, "--qos", "cancellable", "--preemptible", "-p", "fast", command=held(world))
    eventually(world.starts)
    occupy(world, node_of(world, winner(world)))()


@scenario()
def the_epilog_is_slow(world: World, dice: Random) -> None:
    """The winner is COMPLETING for a while after its command has ended."""
    slow = world.box.slurm_conf.parent / "epilog_is_slow"
    slow.touch()
    world.last.callback(slow.unlink, missing_ok=True)
    launch(world, "--fanout", dice.choice(["auto", "each"])).wait()
    world.ps()


@scenario("CANCELLED")
def stopped_while_completing(world: World, dice: Random) -> None:
    """`rv stop` of a job that Slurm is requeueing: it is not gone, and must not come back."""
    slow = world.box.slurm_conf.parent / "epilog_is_slow"
    slow.touch()
    world.last.callback(slow.unlink, missing_ok=True)
    world.wrap("sync", HEARS_OF_ITS_END)
    send(world, "-p", "fast")
    job = _running_job(world)
    world.slurm("scontrol", "requeue", job)
    world.ok("stop")
    eventually((world.path / "told").exists)
    world.go("sync")
    eventually(lambda: not world.live_jobs())  # and nobody looks after it
    name = f"--name=rv-{world.race_dir().name}-1"  # an id may have been another job's before
    runs = world.slurm("sacct", "-X", "-D", "-n", "-P", "-j", job, name, "-o", "State").split()
    assert runs == ["REQUEUED"], runs  # it never came back


@scenario("ENDED", "CANCELLED", forgets=True)
def cancelled_while_completing(world: World, dice: Random) -> None:
    """By hand, while Slurm is requeueing it: accounting says REQUEUED for ever, which is no loss."""
    slow = world.box.slurm_conf.parent / "epilog_is_slow"
    slow.touch()
    world.last.callback(slow.unlink, missing_ok=True)
    world.wrap("sync", HEARS_OF_ITS_END)
    send(world, "-p", "fast")
    job = _running_job(world)
    world.slurm("scontrol", "requeue", job)
    world.slurm("scancel", job)
    eventually((world.path / "told").exists)
    world.go("sync")
    _forgotten(world)


@scenario("CANCELLED", forgets=True)
def held_cancelled_and_never_acknowledged(world: World, dice: Random) -> None:
    """Its id was never learned, so that accounting can only be asked by name."""
    send(world, "--sbatch", dice.choice(["hold", "begin=now+1hour"]))
    world.slurm("scancel", *_own_jobs(world))
    for path in world.race_dir().glob("jobs/*.id"):
        path.unlink()
    _forgotten(world)
    for path in world.race_dir().glob("jobs/*.sent"):
        os.utime(path, (time.time() - 600, time.time() - 600))


@scenario("CANCELLED", forgets=True)
def accounting_hears_late_of_a_cancelled_job(world: World, dice: Random) -> None:
    """It answers, and the controller has yet to deliver what happened: sdiag counts that."""
    behind = world.path / "behind"
    behind.touch()
    news = 'echo "DBD Agent queue size: 2"'
    for name, answer in {"sacct": "exit 0", "sdiag": f"{{ {news}; exit 0; }}"}.items():
        world.wrap(name, f'[ ! -e {behind} ] || {answer}; exec "$real" "$@"')
    send(world, "--sbatch", dice.choice(["hold", "begin=now+1hour"]))
    world.slurm("scancel", *_own_jobs(world))
    _forgotten(world)
    world.ps()
    time.sleep(8)  # by then the job counts as missing
    world.forget_queue()
    world.ps()
    behind.unlink()


def _forgotten(world: World) -> None:
    """Wait until the controller knows no job any more, and make the race old."""
    eventually(lambda: not world.slurm("squeue", "-h", "-t", "all", "-o", "%j"))
    world.backdate()


def _submitted_jobs(world: World, user: str) -> list[int]:
    """The controller's own counts of a user's jobs, one for each account that has a limit."""
    shown = world.slurm("scontrol", "show", "assoc_mgr", f"users={user}", "flags=assoc")
    return [int(count) for count in re.findall(r"MaxSubmitJobs=\d+\((\d+)\)", shown)]


@scenario()
def the_limit_of_jobs_is_reached(world: World, dice: Random) -> None:
    """MaxSubmitJobs lets the first submission in, and not the second."""
    user = getpass.getuser()
    world.fill()
    change = ("sacctmgr", "-i", "modify", "user", user, "set")
    world.last.callback(world.slurm, *change, "MaxSubmitJobs=-1")
    world.slurm(*change, "MaxSubmitJobs=1000")  # the controller shows its count of a limit only
    counts = eventually(lambda: _submitted_jobs(world, user))
    world.slurm(*change, f"MaxSubmitJobs={max(counts) + 1}")
    send(world, "--fanout", "each")
    world.slurm("scancel", "-n", "hog")


_SUBMIT_PLUGIN = """
function slurm_job_submit(job, parts, uid)
  if job.partition == "slow" then
    slurm.log_user("partition slow is for members of the project only")
    return slurm.ERROR
  end
  job.comment = "seen by the site"
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, parts, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""


@contextmanager
def _job_submit_plugin(world: World) -> Iterator[None]:
    """Let the controller run a lua script on every submission."""
    conf = world.box.slurm_conf
    text, plugin = conf.read_text(encoding="utf-8"), conf.parent / "job_submit.lua"
    with stopped(world, "slurmctld"):
        plugin.write_text(_SUBMIT_PLUGIN, encoding="utf-8")
        conf.write_text(f"{text}JobSubmitPlugins=lua\n", encoding="utf-8")
    try:
        yield
    finally:
        with stopped(world, "slurmctld"):
            conf.write_text(text, encoding="utf-8")
            plugin.unlink()


@scenario()
def the_site_rejects_a_partition(world: World, dice: Random) -> None:
    """A job_submit plugin refuses one submission and changes the other."""
    with _job_submit_plugin(world):
        launch(world, "--fanout", "each").wait()


@scenario()
def maintenance_begins(world: World, dice: Random) -> None:
    """A reservation of all nodes keeps the jobs waiting until it is deleted."""
    name = f"maint-{world.path.name}"
    world.slurm(
        "scontrol", "create", "reservation", f"ReservationName={name}", "StartTime=now",
        "Duration=60", "Nodes=ALL", "Flags=MAINT,IGNORE_JOBS", f"Users={getpass.getuser()}",
    )  # fmt: skip
    try:
        if dice.random() < 0.5:  # the nodes bear the state some seconds later
            eventually(lambda: "maint" in world.slurm("sinfo", "-h", "-N", "-o", "%T"))
        send(world)
        eventually(lambda: "ReqNodeNotAvail" in "".join(world.rows_of_live_jobs()))
        world.ps()
    finally:
        world.slurm("scontrol", "delete", f"ReservationName={name}")


@scenario()
def the_command_leaves_a_daemon(world: World, dice: Random) -> None:
    """It ignores TERM and HUP in a session of its own; the job's end is the command's all the same."""
    daemon = "setsid bash -c \"trap '' TERM HUP; exec sleep 600\" </dev/null >/dev/null 2>&1 &"
    launch(world, command=f"{daemon} {held(world)}")
    eventually(world.starts)
    let_go(world)


@scenario()
def much_output(world: World, dice: Random) -> None:
    """More of it than anybody reads; 1 GB in the soak."""
    size = "1G" if os.environ.get("RV_SOAK") else "64M"
    launch(world, command=f"yes | head -c {size}; {held(world)}")
    let_go(world)


@scenario()
def three_login_nodes(world: World, dice: Random) -> None:
    """Clients on hosts of other names, with caches of their own, all look after the race."""
    world.wrap("scancel", '[ -z "$SLURM_JOB_ID" ] || exit 0; exec "$real" "$@"')
    world.fill()
    send(world, "--fanout", "each", command=held(world))
    world.slurm("scancel", "-n", "hog", "-p", dice.choice(["fast", "slow"]))
    for number in range(3):
        _login_node(world, number)
    eventually(world.starts)
    let_go(world)


_CHAIN = ("-p", "fast", "--checkpoint", "--time", "10m")


@scenario("CANCELLED")
def a_chain_is_cancelled_in_its_hand_over(world: World, dice: Random) -> None:
    """The next segment's job is there already, and must not begin, whoever looks.

    One that is killed at once cannot cancel it.
    """
    send(world, *_CHAIN, command=held(world))
    eventually(world.starts)
    job = winner(world)
    world.slurm("scancel", "--batch", "--signal=USR1", job)
    eventually((world.race_dir() / "segments" / "1.next").exists)
    is_seen_by_a_client = dice.random() < 0.3
    if is_seen_by_a_client:
        world.slurm("scontrol", "hold", *(world.race_dir() / "jobs" / "0.id").read_text().split())
    kill = ["--full", "--signal=KILL"] if dice.random() < 0.5 else []
    world.slurm("scancel", *kill, job)
    eventually(lambda: job not in _own_jobs(world))  # or its command might end by itself
    let_go(world)
    if not is_seen_by_a_client:
        eventually(lambda: not world.live_jobs())


_UNTIL_OTHERS = """
calls >/dev/null
for _ in {{1..200}}; do
  looked=({world}/looked.*)
  [ "${{#looked[@]}}" -lt 2 ] && [ "$(wc -l <{world}/calls.sbatch)" -lt 2 ] || break
  sleep 0.1
done
exec "$real" "$@"
"""


@scenario()
def login_nodes_send_the_next_segment(world: World, dice: Random) -> None:
    """After a preemption that cancels, three of them at once: one does."""
    first = f"{START}; exec sleep 600"
    command = f'touch "$RV_CHECKPOINT_DIR/step"; [ "$RV_SEGMENT" = 2 ] || {{ {first}; }}; {END}'
    send(world, *_CHAIN, "--qos", "cancellable", "--preemptible", command=command)
    eventually(world.starts)
    release = occupy(world, node_of(world, winner(world)))
    eventually((world.race_dir() / "segments" / "1.ended").exists)
    # It lasts until the two others have looked, or one of them sends too.
    world.wrap("sbatch", _UNTIL_OTHERS.format(world=shlex.quote(str(world.path))))
    for client in [_login_node(world, number) for number in range(3)]:
        client.wait()
    release()


def _login_node(world: World, number: int) -> Client:
    """A client on a host of another name, with a cache of its own, that looks three times."""
    cache = world.path / f"cache{number}"
    cache.mkdir()
    script = (
        f"hostname login{number}; export XDG_CACHE_HOME={cache}; "
        f"for _ in 1 2 3; do {sys.executable} -m rv ps; touch {world.path}/looked.{number}; done"
    )
    return world.start_program("unshare", "--uts", "bash", "-c", script)


_STEPPING_CLOCK = """
import time
from pathlib import Path

_real = time.time
time.time = lambda: _real() + float(Path({step!r}).read_text())
"""


@scenario()
def the_clients_clock_steps(world: World, dice: Random) -> None:
    """An hour ahead or back, while it waits and while its command runs."""
    folder = world.path / "clock"
    folder.mkdir()
    step = folder / "step"
    step.write_text("0", encoding="ascii")
    program = _STEPPING_CLOCK.format(step=str(step))
    (folder / "sitecustomize.py").write_text(program, encoding="utf-8")
    world.env["PYTHONPATH"] = f"{folder}:{world.env['PYTHONPATH']}"
    release = world.fill()
    client = launch(world, command=held(world))
    client.says("submitted 2 jobs")
    step.write_text(dice.choice(["3600", "-3600"]), encoding="ascii")
    release()
    eventually(world.starts)
    step.write_text(dice.choice(["0", "-7200"]), encoding="ascii")
    let_go(world)
