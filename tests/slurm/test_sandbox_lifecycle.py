"""Sandboxes come up, are recovered from every kind of death, and leave nothing behind."""

import dataclasses
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from rv import sandbox
from rv.errors import RvError
from rv.sandbox import lifecycle, processes, records

ROOT = Path(__file__).parents[2]
Slurm = Callable[..., str]
Eventually = Callable[..., None]


@pytest.fixture
def name(sandbox_home: Path) -> Iterator[str]:
    """A name that is free, and free again afterwards."""
    yield "life"
    sandbox.down("life")


def python(code: str) -> list[str]:
    """A command that runs code against this checkout."""
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"]


def record_of(name: str) -> records.Record:
    record = records.read(name)
    assert record is not None
    return record


def leftovers(record: records.Record) -> list[object]:
    """Processes and files of a sandbox that should be gone."""
    paths = [
        Path(record.directory),
        Path(record.run),
        *records.state_root().glob(f"{record.name}*"),
    ]
    return [*processes.marked(record.identity), *(path for path in paths if path.exists())]


def works(box: sandbox.Sandbox, slurm: Slurm) -> bool:
    """Whether a job runs there."""
    return slurm(box, "srun", "-N1", "echo", "ran").strip() == "ran"


def test_up_is_idempotent_and_down_leaves_nothing(name: str, slurm: Slurm) -> None:
    """Twice in a row; the second up of a healthy one keeps its processes."""
    for _ in range(2):
        box = sandbox.up(name, "small")
        record = record_of(name)
        before = records.processes(record.layout)
        assert sandbox.up(name, "small") == box == sandbox.find(name)
        assert records.processes(record.layout) == before
        assert works(box, slurm)
        assert sandbox.down(name)
        assert leftovers(record) == []
        assert sandbox.find(name) is None
    assert not sandbox.down(name)


def test_the_second_start_makes_no_database(name: str, slurm: Slurm) -> None:
    """It comes from its saved copy, which takes a tenth of the time, and the cluster works."""
    sandbox.up(name, "small")
    sandbox.down(name)
    said: list[str] = []
    box = sandbox.up(name, "small", progress=said.append)
    assert not [line for line in said if "making the accounting database" in line]
    assert works(box, slurm)


def test_status_tells_what_runs(name: str) -> None:
    """Nodes, daemons and the line to use it by hand."""
    box = sandbox.up(name, "small")
    status = sandbox.status(name)
    assert (status.nodes_up, status.nodes_total) == (4, 4)
    assert [daemon.name for daemon in status.daemons if daemon.pid] == [
        "munged",
        "mariadbd",
        "slurmdbd",
        "slurmctld",
    ]
    assert status.export == f"export SLURM_CONF={box.slurm_conf}"


def test_the_most_recent_live_one_is_found(small: sandbox.Sandbox, name: str) -> None:
    """Without a name, and without the dead ones."""
    sandbox.up(name, "small")
    found = sandbox.find()
    assert found is not None
    assert found.name == name
    sandbox.down(name)
    found = sandbox.find()
    assert found is not None
    assert found.name != name


def test_two_come_up_at_once(sandbox_home: Path, slurm: Slurm) -> None:
    """Different names at the same moment do not collide, the same name comes up once."""
    names = ["life", "life2", "life2"]
    code = "from rv import sandbox; sandbox.up(sys.argv[1], 'small')"
    try:
        running = [subprocess.Popen([*python(code), each]) for each in names]
        assert [process.wait(60) for process in running] == [0, 0, 0]
        boxes = [sandbox.find(each) for each in set(names)]
        assert all(box and works(box, slurm) for box in boxes)
        ports = [port for box in boxes if box for port in ports_of(box)]
        assert len(ports) == len(set(ports))
    finally:
        for each in set(names):
            sandbox.down(each)


def ports_of(box: sandbox.Sandbox) -> list[str]:
    text = box.slurm_conf.read_text(encoding="utf-8")
    return [word.partition("=")[2] for word in text.split() if "Port=" in word]


@pytest.mark.parametrize("seed", range(6))
def test_a_killed_up_is_recovered(name: str, slurm: Slurm, seed: int) -> None:
    """kill -9 at any moment: the next up works, and nothing of the first one is left."""
    sandbox.up(name, "small")  # the saved database exists: `up` takes about a second
    sandbox.down(name)
    moment = random.Random(seed).uniform(0.1, 1.5)
    code = f"from rv import sandbox; sandbox.up({name!r}, 'small')"
    victim = subprocess.Popen(python(code))
    processes.wait_until(lambda: victim.poll() is not None, timeout_s=moment)
    victim.kill()
    victim.wait()
    first = records.read(name)
    box = sandbox.up(name, "small")
    assert works(box, slurm)
    if first and first.identity != record_of(name).identity:
        assert processes.marked(first.identity) == ()
    second = record_of(name)
    sandbox.down(name)
    assert leftovers(second) == []


def test_down_ends_what_a_killed_up_started(name: str) -> None:
    """Even what it had no time to write down."""
    code = f"from rv import sandbox; sandbox.up({name!r}, 'small')"
    victim = subprocess.Popen(python(code))
    assert processes.wait_until(
        lambda: (
            (found := records.read(name)) is not None and len(processes.marked(found.identity)) > 1
        ),
        timeout_s=30,
    )
    victim.kill()
    victim.wait()
    record = record_of(name)
    for role in records.processes(record.layout):
        records.erase(record.layout, role)
    assert sandbox.down(name)
    assert leftovers(record) == []


def test_down_outlasts_what_still_writes(name: str, tmp_path: Path) -> None:
    """A child of a killed `up` that was between fork and exec has no marker when it is looked for."""
    sandbox.up(name, "small")
    record = record_of(name)
    until = time.time() + 2
    write = (
        f"import itertools, os, time\nwith open({str(tmp_path / 'begun')!r}, 'w'): pass\n"
        f"for n in itertools.takewhile(lambda _: time.time() < {until}, itertools.count()):\n"
        f"    os.mkdir(f'{record.directory}/{{n}}')\n"
    )
    with subprocess.Popen(python(write), stderr=subprocess.DEVNULL):
        assert processes.wait_until((tmp_path / "begun").exists, timeout_s=10)
        assert sandbox.down(name)
    assert leftovers(record) == []


def test_what_the_last_look_finds_gone_is_no_failure(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine so busy that one removal takes all of the time there is."""
    sandbox.up(name, "small")
    record = record_of(name)
    remove, looks = lifecycle._remove, iter([[record.layout.directory]])
    monkeypatch.setattr(lifecycle, "_REMOVE_S", 0)
    monkeypatch.setattr(lifecycle, "_remove", lambda layout: next(looks, None) or remove(layout))
    assert sandbox.down(name)
    assert leftovers(record) == []


def test_another_boot_is_recovered(name: str, slurm: Slurm) -> None:
    """Its pids mean nothing then: they are not touched, and the cluster is made anew."""
    sandbox.up(name, "small")
    record = record_of(name)
    processes.end(processes.marked(record.identity))
    with subprocess.Popen(["sleep", "60"]) as bystander:
        started = processes.started_at(bystander.pid)
        assert started is not None
        stranger = processes.Process(pid=bystander.pid, started=started)
        records.note(record.layout, "slurmctld", stranger)
        records.write(dataclasses.replace(record, boot="another"))
        assert sandbox.find(name) is None
        assert works(sandbox.up(name, "small"), slurm)
        assert stranger.live
        bystander.kill()


def test_a_recycled_pid_is_not_killed(name: str) -> None:
    """Pid and start time both count."""
    sandbox.up(name, "small")
    record = record_of(name)
    with subprocess.Popen(["sleep", "60"]) as bystander:
        stale = processes.Process(pid=bystander.pid, started=1)
        records.note(record.layout, "slurmd.zz", stale)
        sandbox.down(name)
        assert bystander.poll() is None
        bystander.kill()


def test_what_ended_is_started_again(name: str, slurm: Slurm) -> None:
    """A node and a daemon, without touching the others and with the jobs that run."""
    box = sandbox.up(name, "small")
    sandbox.stop_daemon(box, "slurmdbd")
    sandbox.stop_daemon(box, "slurmctld")
    sandbox.stop_node(box, "v2")
    before = records.processes(record_of(name).layout)
    assert sandbox.find(name) is None
    assert sandbox.up(name, "small").live
    after = records.processes(record_of(name).layout)
    assert before.items() <= after.items()
    assert works(box, slurm)


def test_a_machine_that_killed_everything_is_recovered(name: str, slurm: Slurm) -> None:
    """As after an out-of-memory or a stopped container, in the same boot."""
    sandbox.up(name, "small")
    processes.end(processes.marked(record_of(name).identity))
    assert works(sandbox.up(name, "small"), slurm)


def test_down_ends_running_jobs(
    name: str, slurm: Slurm, eventually: Eventually, tmp_path: Path
) -> None:
    """Also a process that left its job's session, and one that ignores TERM."""
    box = sandbox.up(name, "small")
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\ntrap '' TERM\nsetsid sleep 1000 &\ndisown\nsleep 1000\n")
    slurm(box, "sbatch", "-o", "/dev/null", str(script))
    record = record_of(name)

    def sleeping() -> bool:
        return len(pids_of(record, "sleep")) == 2

    eventually(sleeping)
    sandbox.down(name)
    assert leftovers(record) == []


def pids_of(record: records.Record, program: str) -> list[int]:
    found = []
    for process in processes.marked(record.identity):
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        if words[0].decode().endswith(program):
            found.append(process.pid)
    return found


def test_another_profile_under_the_same_name_is_refused(name: str) -> None:
    """Rather than pretending."""
    sandbox.up(name, "small")
    with pytest.raises(RvError, match="is up with profile small already"):
        sandbox.up(name, "campus")
    assert sandbox.up(name, None).profile == "small"


def test_a_folder_of_ones_own(name: str, sandbox_home: Path, slurm: Slurm) -> None:
    """Found by its name, with sockets elsewhere when its path is too long for them."""
    place = sandbox_home / ("deep-" * 20) / "box"
    box = sandbox.up(name, "small", directory=place)
    record = record_of(name)
    assert box.slurm_conf.parent == place.resolve()
    assert Path(record.run).parent == Path("/tmp")
    assert works(box, slurm)
    sandbox.down(name)
    assert leftovers(record) == []


def test_a_folder_with_something_in_it_is_refused(name: str, tmp_path: Path) -> None:
    """Down would remove it."""
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(RvError, match="is not empty"):
        sandbox.up(name, "small", directory=tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_missing_packages_leave_nothing_behind(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, one command, no record."""
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("rv.sandbox.processes.DAEMON_PATH", "/nonexistent")
    with pytest.raises(RvError) as caught:
        sandbox.up(name, "small")
    assert "apt-get install -y --no-install-recommends slurmctld" in caught.value.hint
    assert list(records.state_root().glob(f"{name}*")) == []


def test_a_cluster_without_accounting(
    fresh_sandbox: Callable[..., sandbox.Sandbox], slurm: Slurm
) -> None:
    """No MariaDB, no slurmdbd, and jobs run."""
    profile: dict[str, object] = {
        "cluster": "plain",
        "accounting": False,
        "nodes": [{"prefix": "n", "gres": [{"count": 2}]}],
        "partitions": [{"name": "all", "nodes": ["n"], "default": True}],
    }
    box = fresh_sandbox(profile)
    assert works(box, slurm)
    assert [daemon.name for daemon in sandbox.status(box.name).daemons] == ["munged", "slurmctld"]


def test_a_profile_slurm_refuses_says_why(fresh_sandbox: Callable[..., sandbox.Sandbox]) -> None:
    """The daemon's own words, in one line, and nothing left."""
    profile: dict[str, object] = {
        "cluster": "bad",
        "accounting": False,
        "nodes": [{"prefix": "n"}],
        "partitions": [{"name": "all", "nodes": ["n"], "max_time": "soon"}],
    }
    with pytest.raises(RvError, match="slurmctld ended at once: ") as caught:
        fresh_sandbox(profile)
    assert "\n" not in caught.value.message


OTHER = """
from rv import sandbox
import os, subprocess
box = sandbox.up("mine", "small")
env = os.environ | {"SLURM_CONF": str(box.slurm_conf)}
script = "#!/bin/sh\\nid -u; nvidia-smi -L | wc -l\\n"
argv = ["sbatch", "--wait", "--export=NONE", "-o", "out"]
subprocess.run(argv, input=script, env=env, text=True, check=True, capture_output=True)
print(open("out").read().split(), oct(box.directory.stat().st_mode & 0o777))
sandbox.down("mine")
left = [d for d, _, files in os.walk(os.environ["XDG_STATE_HOME"]) if files]
print("left", left, sandbox.list_all())
"""


def test_an_ordinary_user_has_a_sandbox_too(sandbox_home: Path) -> None:
    """All daemons as that user, closed to others, and gone afterwards."""
    home = sandbox_home / "ordinary"
    home.mkdir()
    (home / "tmp").mkdir()
    uid = 65534 if os.getuid() == 0 else os.getuid()
    os.chown(home, uid, -1)
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(packages(home))}
    env |= {"XDG_STATE_HOME": str(home / "s"), "XDG_CACHE_HOME": str(home / "c")}
    drop = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    drop = drop if os.getuid() == 0 else []
    argv = [*drop, interpreter(drop), "-c", OTHER]
    done = subprocess.run(argv, env=env, cwd=home, capture_output=True, text=True, timeout=90)
    assert done.stdout.splitlines() == [f"['{uid}', '4'] 0o700", "left [] ()"], done.stderr


def packages(home: Path) -> Path:
    """What the sandbox needs of Python, where any user may read it: a checkout may be private."""
    import platformdirs
    import yaml

    target = home / "lib"
    target.mkdir()
    shutil.copytree(ROOT / "rv", target / "rv")
    for module in (platformdirs, yaml):
        assert module.__file__
        shutil.copytree(Path(module.__file__).parent, target / module.__name__)
    return target


def interpreter(drop: list[str]) -> str:
    """A Python that the ordinary user may run: this one may lie in root's home."""
    test = "import sys; sys.exit(sys.version_info < (3, 11))"
    for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        if subprocess.run([*drop, path, "-c", test], capture_output=True).returncode == 0:
            return path
    raise AssertionError("no Python that an ordinary user can run")


def test_signals_reach_only_the_recorded_process() -> None:
    """A process with another start time is left alone."""
    with subprocess.Popen(["sleep", "60"]) as bystander:
        assert not processes.send(processes.Process(pid=bystander.pid, started=1), signal.SIGKILL)
        assert bystander.poll() is None
        bystander.kill()


UNIFIED = """
mount --make-rprivate / && umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup || exit 77
exec "$@"
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
def test_a_machine_of_cgroup_v2_alone_without_systemd(name: str) -> None:
    """As in a virtual machine or container: slurmd's own choice of plugin gives up there."""
    code = python(f"from rv import sandbox; print(sandbox.up({name!r}).live)")
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", UNIFIED, "bash", *code],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip("this machine cannot mount cgroup v2")
    assert done.stdout.strip() == "True", done.stderr


ELSEWHERE = ["unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh"]


@pytest.mark.parametrize(
    "before",
    [
        pytest.param([], id="name-of-this-machine"),
        pytest.param(ELSEWHERE, id="name-not-on-loopback", marks=pytest.mark.skipif(os.getuid() != 0, reason="needs a namespace")),
    ],
)  # fmt: skip
def test_it_listens_on_loopback_alone(name: str, slurm: Slurm, before: list[str]) -> None:
    """Controller, database's daemon and nodes; whatever this machine is called."""
    code = f"from rv import sandbox; sandbox.up({name!r}, 'small', progress=print)"
    done = subprocess.run([*before, *python(code)], capture_output=True, text=True, check=True)
    if "no loopback address" in done.stdout:
        pytest.skip("an ordinary user, on a machine whose name is not on loopback")
    addresses = {
        connection.laddr.ip
        for process in processes.marked(record_of(name).identity)
        for connection in psutil.Process(process.pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert len(addresses) == 1
    assert all(address.startswith("127.") for address in addresses)
    box = sandbox.find(name)
    assert box is not None
    said = slurm(box, "srun", "-N2", "-l", "echo", "ran").split()
    assert sorted(said) == ["0:", "1:", "ran", "ran"]
    assert slurm(box, "srun", "-N1", "-w", "v2", "printenv", "SLURM_CONF").strip() == str(
        box.slurm_conf
    )
