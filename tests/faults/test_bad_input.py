"""Bad input and bad surroundings: one `error[kind]` line with a hint, the documented code, nothing
submitted. And what only looks bad works."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from rv import sandbox
from tests.faults.world import COUNTED, World, eventually

USAGE = 2
FAILED = 125


def next_job(world: World) -> str:
    """The id that Slurm would give the next job: what is ever submitted changes it."""
    lines = world.slurm("scontrol", "show", "config").splitlines()
    return next(line for line in lines if line.startswith("NEXT_JOB_ID"))


@pytest.fixture
def nothing_submitted(world: World) -> Iterator[None]:
    """Whatever the test does, Slurm sees no job of it."""
    before = next_job(world)
    yield
    assert next_job(world) == before
    assert world.races() == []


def check_error(done: "subprocess.CompletedProcess[str]", kind: str, code: int, *said: str) -> None:
    """One line, a hint, the code, no traceback, nothing on stdout."""
    lines = done.stderr.splitlines()
    errors = [at for at, line in enumerate(lines) if line.startswith("error[")]
    assert len(errors) == 1, done.stderr
    assert lines[errors[0]].startswith(f"error[{kind}]: "), done.stderr
    assert lines[errors[0] + 1 :], "a hint"
    assert lines[errors[0] + 1].startswith("  hint: "), done.stderr
    assert lines[errors[0] + 2 :] == []
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert done.returncode == code
    for text in said:
        assert text in "\n".join(lines[errors[0] :]), done.stderr


def check_json_error(
    done: "subprocess.CompletedProcess[str]", kind: str, code: int, *said: str
) -> None:
    """The same as one object on stdout, and no error line beside it."""
    document: dict[str, Any] = json.loads(done.stdout)
    assert list(document) == ["error"], document
    error = document["error"]
    assert set(error) == {"kind", "message", "hint"}
    assert error["kind"] == kind, error
    assert error["hint"]
    assert "error[" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == code
    for text in said:
        assert text in error["message"] + error["hint"], error


RUN = ("--run", "true")
BAD_WORDS: dict[str, tuple[tuple[str, ...], str, int, tuple[str, ...]]] = {
    "unknown GPU type, the nearest is named": (
        ("up", "--type", "a1000", *RUN), "usage", USAGE, ("a1000", "nearest: a100")),
    "impossible count": (("up", "-g", "999", *RUN), "infeasible", FAILED, ("999",)),
    "negative count": (("up", "-g", "-1", *RUN), "usage", USAGE, ("--gpu",)),
    "walltime beyond every partition": (
        ("up", "--time", "90d", *RUN), "limit", FAILED, ("MaxTime", "3d")),
    "no such duration": (("up", "--time", "soon", *RUN), "usage", USAGE, ("soon",)),
    "no such amount": (("up", "--mem", "lots", *RUN), "usage", USAGE, ("lots",)),
    "more memory than any node": (("up", "--mem", "99T", *RUN), "infeasible", FAILED, ()),
    "unknown partition": (("up", "-p", "fats", *RUN), "usage", USAGE, ("fats", "nearest: fast")),
    "empty command": (("up", "--run", ""), "usage", USAGE, ("empty",)),
    "blank command": (("up", "--run", "  \n "), "usage", USAGE, ("empty",)),
    "no command": (("run",), "usage", USAGE, ()),
    "empty word": (("run", ""), "usage", USAGE, ("empty",)),
    "unbalanced quote": (("up", "--run", "echo 'x"), "usage", USAGE, ()),
    "missing script": (("run", "python", "trian.py"), "usage", USAGE, ("trian.py", "train.py")),
    "missing script behind a launcher": (
        ("run", "torchrun --nproc_per_node=2 nothing.py"), "usage", USAGE, ("nothing.py",)),
    "a name that would delete": (("up", "-n", "x; rm -rf ~", *RUN), "usage", USAGE, ("name",)),
    "a name with a newline": (("up", "-n", "a\nb", *RUN), "usage", USAGE, ("name",)),
    "a name in other letters": (("up", "-n", "обучение☃", *RUN), "usage", USAGE, ("name",)),
    "a name that ends in a newline": (("up", "-n", "a\n", *RUN), "usage", USAGE, ("name",)),
    "an sbatch option that is rv's": (("up", "--sbatch", "output=/x", *RUN), "usage", USAGE, ("output",)),
    "an sbatch option with a newline": (("up", "--sbatch", "nice=1\nreboot", *RUN), "usage", USAGE, ()),
    "no sbatch option": (("up", "--sbatch", "; reboot", *RUN), "usage", USAGE, ()),
    "an account with a quote": (("up", "-A", "a'b", *RUN), "usage", USAGE, ("a'b",)),
    "nodes that are none": (("up", "-x", "$(reboot)", *RUN), "usage", USAGE, ()),
    "both layouts": (("up", "--single-node", "--multi-node", *RUN), "usage", USAGE, ()),
    "an unknown option": (("up", "--gpus", "2", *RUN), "usage", USAGE, ("--gpu",)),
    "an option without its value": (("up", "--run"), "usage", USAGE, ("--run",)),
    "an unknown command": (("upp",), "usage", USAGE, ("upp",)),
    "a shell without a terminal": (("up",), "usage", USAGE, ("terminal",)),
    "an unknown cluster": (("up", "--cluster", "mars", *RUN), "config", FAILED, ("mars",)),
    "a sandbox that is not up": (
        ("up", "--cluster", "sandbox:mars", *RUN), "sandbox", FAILED, ("mars", "rv sandbox up")),
    "logs of no race": (("logs",), "usage", USAGE, ("rv up",)),
    "stop of no race": (("stop", "x y"), "usage", USAGE, ("x y",)),
}  # fmt: skip


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize("name", BAD_WORDS)
def test_bad_words(world: World, name: str) -> None:
    words, kind, code, said = BAD_WORDS[name]
    (world.work / "train.py").touch()
    check_error(world.rv(*words), kind, code, *said)


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize("name", BAD_WORDS)
def test_bad_words_in_json(world: World, name: str) -> None:
    words, kind, code, said = BAD_WORDS[name]
    (world.work / "train.py").touch()
    at = 1 if words[0] != "upp" else len(words)
    check_json_error(world.rv(*words[:at], "--json", *words[at:]), kind, code, *said)


def test_what_slurm_itself_refuses(world: World) -> None:
    """In its own words; a refused job is no job, and the race says so ever after."""
    words = ("up", "--sbatch", "licenses=none", *RUN)
    check_error(world.rv(*words), "refused", FAILED, "license")
    check_json_error(world.rv("up", "--json", *words[1:]), "refused", FAILED, "license")
    assert world.live_jobs() == []
    assert {race["state"] for race in world.ps()} <= {"REFUSED"}


# Surroundings


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize("words", [("up", *RUN), ("run", "true"), ("ps",), ("stop",)], ids=" ".join)
def test_no_slurm_on_path(world: World, words: tuple[str, ...]) -> None:
    """It says so, and offers the sandbox."""
    found = [shutil.which(name) for name in ("sbatch", "squeue", "scontrol", "scancel", "sinfo")]
    setup = "; ".join(f"mount --bind /dev/null {path}" for path in found)
    enter = world.own_mounts(setup)
    remedy = "bash_profile" if world.login else "rv sandbox up"
    check_error(world.rv_among(enter, *words), "unreachable", FAILED, "PATH", remedy)
    check_json_error(world.rv_among(enter, *words, "--json"), "unreachable", FAILED, "PATH")


@pytest.fixture
def no_controller(world: World) -> Iterator[None]:
    """slurmctld is down."""
    sandbox.stop_daemon(world.box, "slurmctld")
    yield
    sandbox.start_daemon(world.box, "slurmctld")
    world.idle()


@pytest.mark.usefixtures("no_controller")
def test_a_controller_that_cannot_be_reached(world: World) -> None:
    """Nothing is staged; and the listing of races still works, without knowing their states."""
    check_error(world.rv("up", "--patience", "0", *RUN), "unreachable", FAILED)
    check_json_error(world.rv("run", "--json", "--patience", "1s", "true"), "unreachable", FAILED)
    check_error(world.rv("up", "--dry-run", "--patience", "1s"), "unreachable", FAILED)
    assert world.races() == []
    assert world.ps() == []


DISKS = {
    "read-only": ("mount -t tmpfs -o ro none {root}", "read-only"),
    "full": (
        "mount -t tmpfs -o size=64k none {root}; head -c 1M /dev/zero >{root}/x 2>/dev/null || true",
        "full",
    ),
    "out of inodes": ("mount -t tmpfs -o nr_inodes=5 none {root}", "full"),
    "full after a few files": ("mount -t tmpfs -o size=12k none {root}", "full"),
}


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize("disk", DISKS)
def test_a_disk_that_takes_no_race(world: World, disk: str) -> None:
    """The directory is there whole, or not at all."""
    setup, said = DISKS[disk]
    root = world.path / "races"
    root.mkdir()
    enter = world.own_mounts(setup.format(root=root))
    check_error(world.rv_among(enter, "up", *RUN), "stage", FAILED, said, "RV_RACE_ROOT")
    check_json_error(world.rv_among(enter, "up", "--json", *RUN), "stage", FAILED, said)
    left = subprocess.run([*enter, "ls", "-A", root], capture_output=True, text=True, check=True)
    assert set(left.stdout.split()) <= {"x"}


@pytest.mark.usefixtures("nothing_submitted")
def test_a_race_root_that_cannot_be_a_directory(world: World) -> None:
    """A file stands in its way."""
    (world.path / "races").touch()
    try:
        check_error(world.rv("up", *RUN), "stage", FAILED, "RV_RACE_ROOT")
    finally:
        (world.path / "races").unlink()


@pytest.mark.usefixtures("nothing_submitted")
def test_a_file_system_without_hard_links(world: World) -> None:
    """A race there could have two winners: it is refused, with a remedy, and leaves nothing."""
    world.wrap(
        "ln",
        'echo "ln: failed to create hard link: Operation not permitted" >&2; exit 1',
    )
    check_error(world.rv("up", *RUN), "stage", FAILED, "hard links", "RV_RACE_ROOT")
    check_json_error(world.rv("up", "--json", *RUN), "stage", FAILED, "hard links")


@pytest.mark.usefixtures("nothing_submitted")
@pytest.mark.parametrize("name", ["new\nline", "back\\slash"])
def test_a_race_root_that_no_sbatch_line_can_hold(world: World, name: str) -> None:
    """Refused before anything is written."""
    env = {"RV_RACE_ROOT": str(world.path / name)}
    done = world.rv("up", *RUN, env=env)
    assert done.returncode in (USAGE, FAILED)
    kind = done.stderr.partition("error[")[2].partition("]")[0]
    check_error(done, kind, done.returncode)
    assert not (world.path / name).exists() or not list((world.path / name).iterdir())


def test_a_working_directory_that_is_gone(world: World) -> None:
    """Deleted under the user's feet."""
    gone = world.path / "gone"
    gone.mkdir()
    script = f"cd {gone} && rmdir {gone} && exec {sys.executable} -m rv up --run true"
    done = subprocess.run(
        ["bash", "-c", script], env=world.env, capture_output=True, text=True, timeout=60,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    check_error(done, "stage", FAILED, "directory")


# What only looks bad


HOSTILE = [
    "with space",
    "quo'te\"s",
    "$(touch pwned) `touch pwned` ${HOME}",
    "100% %j %A %%",
    "ünïcödé ☃ 数据",
    "-dash --wrap=x",
    "#SBATCH --hold",
    "semi;colon & pipe | star * [x] {y} !bang",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_strange_path_works(world: World, name: str) -> None:
    """As working directory, as race root, as the script's own name."""
    work = world.path / name / "w"
    work.mkdir(parents=True)
    (work / f"{name}.py").write_text("print(open('in').read(), end='')\n", encoding="utf-8")
    (work / "in").write_text("read\n", encoding="utf-8")
    env = {"RV_RACE_ROOT": str(world.path / name / "races")}
    done = world.rv("run", "--", "python3", f"./{name}.py", cwd=work, env=env)
    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr
    assert not list(world.path.rglob("pwned"))
    assert len(list((world.path / name / "races").glob("[!.]*"))) == 1
    again = world.rv("logs", cwd=work, env=env)
    assert again.stdout == "read\n"


VALUES = {
    "LINES_": "a\nb\n\nc\n",
    "QUOTES": 'it\'s "quoted" \\ and $(touch pwned) `touch pwned` ${HOME} !x',
    "OTHER": "ünïcödé ☃\ttab \x1b[31m",
    "EMPTY": "",
    "BLANK": "  two  spaces  ",
    "EQUALS": "a=b=c",
    "LONG": "x" * 60_000,
}


def test_environment_values_reach_the_job_as_they_are(world: World) -> None:
    """Byte for byte; and none of them reaches Slurm's own files or the script."""
    code = "import json, os, sys; json.dump({k: os.environ.get(k) for k in sys.argv[1:]}, open('got', 'w'))"
    (world.work / "dump.py").write_text(code, encoding="utf-8")
    secret = {"SECRET": "hunter2-hunter2"}
    done = world.rv("run", "--", "python3", "dump.py", *VALUES, *secret, env=VALUES | secret)
    assert done.returncode == 0, done.stderr
    assert json.loads((world.work / "got").read_text()) == VALUES | secret
    assert not list(world.path.rglob("pwned"))
    directory = world.race_dir()
    assert (directory / "environment").stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700
    shown = world.slurm("scontrol", "show", "job", "-d", str(world.race()["winner"]["job_id"]))
    texts = [shown, *(path.read_text() for path in directory.glob("jobs/*"))]
    assert not any("hunter2" in text for text in texts)


def test_a_command_reaches_bash_as_it_was_typed(world: World) -> None:
    """Quotes, dollars and newlines of a shell line; an argv word for word."""
    line = 'printf \'<%s>\' "a  b" \'c"d\' "$((1+1))"\nprintf \'%s\' "é" | cat'
    assert world.rv("up", "--run", line).stdout == '<a  b><c"d><2>é'
    words = ["a  b", "$(touch pwned)", "new\nline", "", "*", "--gpu", "'"]
    done = world.rv("run", "--", "printf", "<%s>", *words)
    assert done.stdout == "".join(f"<{word}>" for word in words), done.stderr
    assert not list(world.path.rglob("pwned"))


VARIABLES = {
    "SQUEUE_STATES": "COMPLETED",
    "SQUEUE_FORMAT": "%i",
    "SQUEUE_FORMAT2": "jobid",
    "SQUEUE_SORT": "-i",
    "SQUEUE_USERS": "nobody",
    "SQUEUE_NAMES": "none",
    "SQUEUE_PARTITION": "slow",
    "SQUEUE_ACCOUNT": "none",
    "SBATCH_JOB_NAME": "mine",
    "SBATCH_PARTITION": "nowhere",
    "SBATCH_ACCOUNT": "nobody",
    "SBATCH_QOS": "none",
    "SBATCH_TIMELIMIT": "0",
    "SBATCH_TEST_ONLY": "1",
    "SBATCH_WAIT": "1",
    "SBATCH_ARRAY_INX": "1-3",
    "SBATCH_NO_REQUEUE": "1",
    "SBATCH_OPEN_MODE": "truncate",
    "SBATCH_CONSTRAINT": "none",
    "SBATCH_GRES": "gpu:99",
    "SBATCH_GPUS": "99",
    "SBATCH_MEM_PER_NODE": "999T",
    "SBATCH_EXPORT": "ALL",
    "SBATCH_OUTPUT": "/dev/full",
    "SBATCH_RESERVATION": "none",
    "SBATCH_DEBUG": "5",
    "SBATCH_CLUSTERS": "mars",
    "SLURM_CLUSTERS": "mars",
    "SLURM_TIME_FORMAT": "relative",
    "SLURM_BITSTR_LEN": "1",
    "SLURM_JOB_ID": "1",
    "SLURM_JOB_NAME": "outer",
    "SLURM_EXIT_ERROR": "9",
    "SLURM_NTASKS": "7",
    "SACCT_FORMAT": "jobid",
    "SACCT_FEDERATION": "1",
    "SINFO_FORMAT": "%P",
    "SINFO_PARTITION": "none",
    "SCONTROL_ALL": "1",
    "SCANCEL_STATE": "SUSPENDED",
    "SCANCEL_NAME": "none",
    "SCANCEL_INTERACTIVE": "1",
    "SCANCEL_USER": "nobody",
    "BASH_ENV": "/nonexistent; exit 9",
    "LC_ALL": "de_DE.UTF-8",
    "LANGUAGE": "de",
    "COLUMNS": "5",
    "MASTER_PORT": "1",
    "RANK": "7",
    "CUDA_VISIBLE_DEVICES": "7",
}


def test_hostile_variables_change_nothing(world: World) -> None:
    """Waiting, running, listing, stopping: as without them."""
    world.env |= VARIABLES
    release = world.fill()
    client = world.start("run", f"{COUNTED}; echo $SLURM_NTASKS $CUDA_VISIBLE_DEVICES")
    client.says("submitted 2 jobs")
    race = world.race()
    assert race["state"] == "PENDING"
    (directory,) = world.races()
    assert sorted(world.live_jobs()) == [f"rv-{directory.name}-1", f"rv-{directory.name}-2"]
    release()
    assert client.wait() == 0, client.err
    assert client.out == "1 0\n"
    assert world.starts() == 1
    eventually(lambda: not world.live_jobs())
    assert world.race()["state"] == "COMPLETED"
    held = world.start("run", "sleep 600")
    held.says("started on")
    world.ok("stop")
    assert held.wait() == 143
    eventually(lambda: not world.live_jobs())


def test_a_newline_in_somebody_elses_job_name_is_only_theirs(world: World) -> None:
    """A row that pretends to be one of ours is not believed."""
    release = world.fill()
    client = world.start("run", COUNTED)
    client.says("submitted 2 jobs")
    (directory,) = world.races()
    name = f"x\n999|rv-{directory.name}-1|COMPLETED|rv-{directory.name}-1"
    other = world.slurm(
        "sbatch", "--parsable", "--hold", f"--job-name={name}", "-o", "/dev/null", "--wrap", "true"
    ).strip()
    assert world.race()["state"] == "PENDING"
    release()
    assert client.wait() == 0, client.err
    assert world.starts() == 1
    assert other in world.slurm("squeue", "-h", "-o", "%A").split(), "it was left alone"
