"""What a job finds around it: variables of the files, of `rv env` and of --env, and setup lines."""

import json
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rv import sandbox
from tests.faults.test_secrets import arguments
from tests.slurm.launching import Rv


@pytest.fixture
def rv(small: sandbox.Sandbox, tmp_path: Path) -> Rv:
    """`rv` with files of the site and the user."""
    (tmp_path / "config" / "rv").mkdir(parents=True, mode=0o700)
    return Rv(box=small, home=tmp_path, more={"RV_SITE_CONFIG": str(tmp_path / "site.yaml")})


@pytest.fixture
def secret() -> str:
    """A value that nobody is to see."""
    return secrets.token_hex(24)


def keep(rv: Rv, *words: str, given: str) -> None:
    """Run `rv env` with a value on its standard input."""
    done = subprocess.run(
        [sys.executable, "-m", "rv", "env", *words], cwd=rv.home, env=rv.client_environment(),
        input=given, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert given.strip() not in done.stdout + done.stderr


def configure(rv: Rv, *, site: str = "", user: str = "") -> None:
    """Write the two files."""
    (rv.home / "site.yaml").write_text(f"defaults: {site or '{}'}\n")
    (rv.home / "config" / "rv" / "config.yaml").write_text(f"defaults: {user or '{}'}\n")


def holding(root: Path, secret: str) -> list[str]:
    """The files below a folder that hold the secret."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return sorted(str(p.relative_to(root)) for p in files if secret.encode() in p.read_bytes())


def slow_sbatch(folder: Path) -> Path:
    """Make an sbatch that runs for long enough to be seen; returns its folder."""
    folder.mkdir(exist_ok=True)
    script = folder / "sbatch"
    script.write_text(f'#!/bin/sh\nsleep 1\nexec {shutil.which("sbatch")} "$@"\n')
    script.chmod(0o755)
    return folder


def test_what_is_said_last_wins(rv: Rv) -> None:
    """Site, user, `rv env`, command line: in this order, each name of its own."""
    configure(
        rv,
        site="{env: {A: site, B: site, C: site, D: site, E: 7}}",
        user="{env: {B: user, C: user, D: user}}",
    )
    keep(rv, "set", "C", given="kept\n")
    keep(rv, "set", "D", given="kept\n")
    done = rv(
        "run", "--time", "5m", "--env", "D=a b 'c'", "--env", "HOME", "echo $A $B $C $D $E $HOME"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"site user kept a b 'c' 7 {rv.client_environment()['HOME']}\n"
    assert "env is A=•••, B=•••" in done.stderr


def test_a_project_says_what_its_command_needs(rv: Rv, secret: str) -> None:
    """Modules, setup lines and variables in its rv.yaml; `rv config` shows no variable's value."""
    modules = rv.home / "modules" / "tool"
    modules.mkdir(parents=True)
    (modules / "1.0").write_text("#%Module1.0\nsetenv TOOL_HOME /opt/tool\n")
    configure(rv, user="{env: {A: user, B: user}}")
    project = rv.home / "project"
    project.mkdir()
    (project / "rv.yaml").write_text(
        f"defaults:\n  modules: [tool/1.0]\n  setup: [export C=$TOOL_HOME/c]\n  env: {{B: {secret}}}\n"
    )
    inside = replace(rv, more={**rv.more, "MODULEPATH": str(modules.parent)})
    done = inside("run", "--time", "5m", "echo $TOOL_HOME $A $B $C", cwd=project)
    assert done.stdout == f"/opt/tool user {secret} /opt/tool/c\n", done.stderr
    assert secret not in done.stderr
    shown = inside("config", cwd=project)
    assert "defaults.env.B" in shown.stdout
    assert secret not in shown.stdout + shown.stderr
    (project / "rv.yaml").write_text("defaults: {modules: [tool/2.0]}\n")
    done = inside("run", "--time", "5m", rv.count_starts, cwd=project)
    assert "module load tool/2.0 failed on this node" in done.stderr
    assert not rv.starts


def test_what_the_user_sets_is_not_set_by_rv(rv: Rv) -> None:
    """Neither the number of threads nor what Python and its libraries do."""
    names = ("OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "PYTHONUNBUFFERED")
    show = "; ".join(f"echo {name}=${name}" for name in names)
    plain = rv("run", "--time", "5m", "--cpus", "3", show)
    assert plain.stdout.split() == [
        "OMP_NUM_THREADS=3", "TOKENIZERS_PARALLELISM=false", "PYTHONUNBUFFERED=1",
    ]  # fmt: skip
    values = ("7", "true", "")
    words = [w for n, v in zip(names, values, strict=True) for w in ("--env", f"{n}={v}")]
    done = rv("run", "--time", "5m", *words, show)
    assert done.stdout.split() == [
        "OMP_NUM_THREADS=7",
        "TOKENIZERS_PARALLELISM=true",
        "PYTHONUNBUFFERED=",
    ]


@pytest.mark.parametrize("layout", ["--single-node", "--multi-node"])
def test_setup_lines_run_in_the_commands_own_shell(rv: Rv, layout: str) -> None:
    """On each node, before it; quotes and several lines are the user's own."""
    configure(rv, site='{setup: ["export FROM=\'the site\'", "cd /tmp"]}')
    done = rv("up", "-g", "4", layout, "--time", "5m", "--run", "echo $FROM $PWD")
    assert done.returncode == 0, done.stderr
    lines = {
        line.removeprefix("node0| ").removeprefix("node1| ") for line in done.stdout.splitlines()
    }
    assert lines == {"the site /tmp"}


def test_a_setup_line_that_fails_ends_the_job_and_is_named(rv: Rv) -> None:
    """The command does not start half set up."""
    done = rv("run", "--time", "5m", "--setup", "true", "--setup", "(exit 9)", rv.count_starts)
    assert done.returncode == 1
    assert "rv: setup failed with code 9: (exit 9)" in done.stderr
    assert not rv.starts


@pytest.fixture
def seen() -> Iterator[set[bytes]]:
    """The arguments of every process while the test runs."""
    found: set[bytes] = set()
    with arguments(found):
        yield found


def test_a_kept_secret_is_seen_nowhere_but_in_the_command(
    rv: Rv, secret: str, seen: set[bytes]
) -> None:
    """In two files of mode 0600, and in no argument of any program."""
    slow = slow_sbatch(rv.home / "bin")
    rv = replace(rv, more={**rv.more, "PATH": f"{slow}:{rv.environment['PATH']}"})
    keep(rv, "set", "API_TOKEN", given=f"{secret}\n")
    listed = rv("env", "list")
    assert listed.stdout == "API_TOKEN=•••\n"
    dry = rv("run", "--time", "5m", "--dry-run", "--json", "true")
    done = rv("run", "--time", "5m", '[ ${#API_TOKEN} = 48 ] && printf %s "$API_TOKEN" >mine')
    assert done.returncode == 0, done.stderr
    assert (rv.home / "mine").read_text() == secret
    shown = rv("ps", "-a", "--json").stdout + rv("env", "list", "--json").stdout
    assert secret not in done.stdout + done.stderr + shown + dry.stdout + dry.stderr
    race = rv.last().directory
    assert holding(race, secret) == ["environment"]
    kept = rv.home / "config" / "rv" / "environment.json"
    for path in (kept, race / "environment"):
        assert path.stat().st_mode & 0o777 == 0o600
    assert any(b"sbatch" in line for line in seen)
    assert not [line for line in seen if secret.encode() in line]


def test_a_secret_from_here_or_from_a_file_is_in_no_argument(
    rv: Rv, secret: str, seen: set[bytes]
) -> None:
    """`--env NAME`, and a name without a value in a configuration file."""
    configure(rv, user="{env: {BY_FILE: null}}")
    mine = replace(rv, more={**rv.more, "BY_NAME": secret, "BY_FILE": secret[::-1]})
    done = mine("run", "--time", "5m", "--env", "BY_NAME", 'printf %s "$BY_NAME$BY_FILE" >mine')
    assert done.returncode == 0, done.stderr
    assert (rv.home / "mine").read_text() == secret + secret[::-1]
    assert not [line for line in seen if secret.encode() in line or secret[::-1].encode() in line]
    assert holding(rv.last().directory, secret) == ["environment"]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("SLURM_CONF={}", "'SLURM_CONF' cannot be set"), ("RV_RACE={}", "rv's own"),
        ("BASH_ENV={}", "how bash reads"), ("MASTER_PORT={}", "in each job"),
        ("CUDA_VISIBLE_DEVICES={}", "in each job"), ("{}-x=1", "before ="), ("={}", "before ="),
        ("1A={}", "before ="), ("NO_SUCH_VARIABLE", "is not set here"),
    ],
)  # fmt: skip
def test_a_name_that_no_job_may_have_is_refused(rv: Rv, secret: str, word: str, says: str) -> None:
    """Before anything is submitted, without its value."""
    done = rv("run", "--env", word.format(secret), "true")
    assert done.returncode == 2
    assert says in done.stderr
    assert secret not in done.stderr + done.stdout
    assert not rv.files()


def test_a_value_behind_the_command_is_not_quoted_by_the_error(rv: Rv, secret: str) -> None:
    """An option there could be the program's own, so that the line is refused."""
    done = rv("run", "python", "x.py", f"--env=TOKEN={secret}")
    assert done.returncode == 2
    assert secret not in done.stderr


def test_a_dotenv_file_is_kept_and_forgotten(rv: Rv, secret: str) -> None:
    """Quotes, comments and export; what is wrong is named by its line alone."""
    file = rv.home / ".env"
    file.write_text(f"# mine\nexport A=1 # one\nB='{secret} #'\n\nC=\"x\\ny\"\n")
    done = rv("env", "import", str(file))
    assert done.returncode == 0, done.stderr
    assert secret not in done.stderr
    kept = json.loads((rv.home / "config" / "rv" / "environment.json").read_text())
    assert kept == {"A": "1", "B": f"{secret} #", "C": "x\ny"}
    assert rv("env", "unset", "A", "C").returncode == 0
    assert json.loads(rv("env", "list", "--json").stdout)["variables"] == ["B"]
    file.write_text(f"GOOD=1\n{secret}\n")
    bad = rv("env", "import", str(file))
    assert (bad.returncode, secret in bad.stderr) == (2, False)
    assert "line 2 is no NAME=VALUE" in bad.stderr


def test_a_file_that_others_may_read_is_refused(rv: Rv) -> None:
    """With what to type."""
    keep(rv, "set", "A", given="the-value")
    path = rv.home / "config" / "rv" / "environment.json"
    path.chmod(0o644)
    done = rv("run", "--time", "5m", "true")
    assert done.returncode == 125
    assert f"chmod 600 {path}" in done.stderr
