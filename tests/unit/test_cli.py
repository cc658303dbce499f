"""The command line from outside: help, errors, exit codes. No cluster is asked for anything."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rv.errors import ErrorKind, RvError
from rv.workflow import locate

ROOT = Path(__file__).parents[2]
SHOWN = [
    ["up"], ["run"], ["sweep"], ["ps"], ["logs"], ["wait"], ["rerun"], ["stop"], ["gpu"], ["attach"], ["exec"], ["forward"], ["ssh-config"], ["status"], ["cost"], ["explain"], ["snapshot"],
    ["sync"], ["sync", "push"], ["sync", "pull"], ["sync", "status"], ["sync", "watch"],
    ["env"], ["env", "set"], ["env", "list"], ["env", "unset"], ["env", "import"],
    ["init"], ["config"], ["config", "set"], ["config", "unset"], ["doctor"], ["completion"],
    ["sandbox"], ["sandbox", "up"], ["sandbox", "down"], ["sandbox", "status"], ["sandbox", "load"],
    ["sandbox", "fault"], ["accept"], ["accept", "list"], ["accept", "run"],
    ["accept", "sweep"], ["accept", "avoid"], ["accept", "compare"], ["accept", "export"],
    ["accept", "history"], ["accept", "baseline"], ["accept", "baseline", "show"],
    ["accept", "baseline", "make"],
]  # fmt: skip


@pytest.fixture
def rv(tmp_path):
    """Run `rv` in an empty folder, with a home of its own, and Slurm and a sandbox nowhere."""
    home = {
        f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("STATE", "CACHE", "CONFIG", "DATA")
    }
    keep = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
    env = {**keep, **home, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    folder = tmp_path / "empty"
    folder.mkdir()

    def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "rv", *arguments]
        return subprocess.run(
            argv, env=env | changes, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=60,
        )  # fmt: skip

    return run


@pytest.mark.parametrize("command", [[], *SHOWN], ids=" ".join)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_is_an_answer(rv, command, flag):
    """On stdout, and the code is 0."""
    done = rv(*command, flag)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: {' '.join(['rv', *command])}")


def test_the_help_of_every_command_says_the_same_as_the_list(rv):
    """The list is written apart, so that `rv --help` imports nothing."""
    from rv.cli.app import COMMANDS

    assert {command[0] for command in SHOWN} == set(COMMANDS)
    shown = rv("--help").stdout
    assert all(summary in shown for _, summary in COMMANDS.values())


def test_a_missing_command_shows_the_help(rv):
    """As talk, not as an answer: the code is that of a usage error."""
    done = rv("sandbox")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: rv sandbox")
    assert "Commands:" in done.stderr


def test_the_version_is_the_packages(rv):
    """`rv 0.1.0`."""
    from rv import __version__

    assert rv("--version").stdout == f"rv {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["upp"], "'up'"),
        (["up", "--gpus", "4"], "--gpu"),
        (["ps", "--jsn"], "--json"),
        (["stop", "--al"], "--all"),
        (["sandbox", "up", "--profil", "x"], "--profile"),
        (["run", "--gpuu", "4", "python"], "did you mean --gpu?"),
        (["up", "--gpu", "many"], "--gpu"),
        (["up", "--gpu"], "--gpu"),
        (["up", "--gpu", "-1"], "--gpu"),
        (["up", "--layouts", "some"], "--layouts"),
        (["ps", "extra"], "extra"),
        (["status", "-w", "--snapshot", "x"], "--snapshot answers once"),
        (["status", "-w", "--cluster", "all"], "--cluster all answers once"),
        (["run"], "the command is empty"),
        (["run", ""], "the command is empty"),
        (["run", "--"], "the command is empty"),
        (["up", "--run", " "], "the command is empty"),
        (["run", "nosuch.py"], "nosuch.py"),
        (["run", "python nosuch.py --lr 1"], "nosuch.py"),
        (["run", "python", "x.py", "--gpu", "4"], "rv run --gpu 4 -- python x.py"),
        (["up"], "a shell needs a terminal"),
        (["sandbox", "fault", "n1"], "name a fault"),
        (["stop", "--all", "x"], "'x' is no race here"),
        (["wait", "--all", "x"], "--all means every race"),
        (["run", "check.py --inject slwo"], "did you mean slow?"),
        (["accept", "run", "check", "--inject", "nosuch"], "--inject takes: hang"),
        (["accept", "sweep", "--inject", "nosuch"], "--inject takes: hang"),
        (["accept", "sweep", "--inject", "hang:rank"], "is not KEY=VALUE"),
    ],
)
def test_what_was_typed_wrong_is_named(rv, arguments, says):
    """One line, `error[usage]: …`, a hint below, nothing on stdout, code 2."""
    done = rv(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    error, *rest = done.stderr.splitlines()
    assert error.startswith("error[usage]: ")
    assert rest
    assert rest[0].startswith("  hint: ")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["up", "--dry-run", "--cluster", "nowhere"], "config"),
        (["ps", "--cluster", "nowhere"], "config"),
        (["ps", "--cluster", "sandbox:none"], "sandbox"),
        (["sandbox", "load", "--name", "none"], "sandbox"),
    ],
)
def test_what_rv_could_not_do_has_its_own_code(rv, arguments, kind):
    """125, as `docker run` has it, and the kind in the line."""
    done = rv(*arguments)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.splitlines()[0].startswith(f"error[{kind}]: ")


@pytest.mark.parametrize(
    ("arguments", "kind", "code"),
    [
        (["up", "--dry-run", "--cluster", "nowhere", "--json"], "config", 125),
        (["ps", "--bogus", "--json"], "usage", 2),
        (["--json", "psx"], "usage", 2),
    ],
)
def test_errors_are_json_where_json_was_asked_for(rv, arguments, kind, code):
    """One object on stdout."""
    done = rv(*arguments)
    assert done.returncode == code
    error = json.loads(done.stdout)["error"]
    assert set(error) == {"kind", "message", "hint"}
    assert error["kind"] == kind


@pytest.mark.parametrize("command", ["ps", "status", "gpu"])
def test_a_watch_has_no_one_answer_in_json(rv, command):
    """One of the two is to be left out."""
    done = rv(command, "-w", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["message"] == "--json answers once"


def test_the_programs_own_json_is_not_rvs(rv):
    """What follows -- goes to the command untouched."""
    done = rv("run", "--cluster", "nowhere", "--", "python", "--json")
    assert (done.returncode, done.stdout) == (125, "")


def test_without_slurm_the_sandbox_is_offered(monkeypatch, tmp_path):
    """The line says what to do."""
    monkeypatch.setattr(locate, "_SYSTEM_PATH", str(tmp_path))
    with pytest.raises(RvError) as caught:
        locate.locate("local", {"PATH": str(tmp_path)})
    assert caught.value.kind is ErrorKind.UNREACHABLE
    assert "rv sandbox up" in caught.value.hint


def test_an_unreachable_controller_is_one_line(rv, tmp_path):
    """No traceback, code 125."""
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\n"
                    "MessageTimeout=2\nAuthType=auth/none\n")  # fmt: skip
    done = rv("up", "--dry-run", "--patience", "1s", SLURM_CONF=str(conf))
    assert done.returncode == 125
    assert "error[unreachable]: " in done.stderr
    assert "  hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_help_imports_nothing_heavy():
    """`rv --help` and completion stay fast: what a command needs is imported where used."""
    code = (
        "import sys; sys.argv = ['rv', '--help']\n"
        "from rv.cli.app import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & "
        "{'paramiko', 'torch', 'jinja2', 'yaml', 'tenacity', 'rich'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("option", [("--type", "a100"), ("--vram", "40G"), ("--mig",)])
def test_no_gpu_is_of_no_certain_kind(rv, option):
    """Neither wish is dropped in silence."""
    done = rv("up", "--dry-run", "--gpu", "0", *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--gpu 0 asks for no GPU" in done.stderr


def test_more_gpus_than_there_are_names_what_would_be_possible(rv):
    """Beside the reasons of each way to get them."""
    campus = str(ROOT / "tests/data/snapshots/campus.json")
    done = rv("up", "--gpu", "200", "--type", "a100", "--dry-run", "--snapshot", campus)

    assert "nothing here can serve 200 a100 GPUs" in done.stderr
    assert "hint: --gpu 12 would be possible; " in done.stderr
    fits = rv("up", "--gpu", "12", "--type", "a100", "--dry-run", "--snapshot", campus)
    assert (fits.returncode, done.returncode) == (0, 125)


@pytest.mark.parametrize("module", ["typer", "rv.cli.caller", "rv.cli.app"])
def test_ctrl_c_while_rv_is_loading_is_silent(rv, tmp_path, module):
    """It comes as often as not before the first line: 130, and no traceback."""
    interrupting = tmp_path / "first"
    interrupting.mkdir()
    (interrupting / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
    )
    # --ful is no option: typer has to say so.
    done = rv("status", "--cluster", "sandbox:none", "--ful", PYTHONPATH=f"{interrupting}:{ROOT}")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
