"""`rv init` from a laptop, on a real sshd before a real Slurm."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.ssh.conftest import Laptop
from tests.ssh.server import HOST


@pytest.fixture
def user_file(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of the laptop's user; nothing else names a cluster."""
    monkeypatch.setattr(Laptop, "environment", property(_environment))
    return laptop.home / ".config" / "rv" / "config.yaml"


def _environment(laptop: Laptop, original=Laptop.environment.fget) -> dict[str, str]:  # type: ignore[attr-defined]
    assert original is not None
    return {key: value for key, value in original(laptop).items() if key != "RV_CLUSTER"}


def scratch(laptop: Laptop, *, variable: str = "SCRATCH") -> Path:
    """A scratch folder there, named by a variable of the login."""
    folder = laptop.home.parent / "scratch"
    folder.mkdir()
    profile = laptop.home.parent / "away" / ".bash_profile"
    profile.write_text(f"{profile.read_text()}export {variable}={folder}\n")
    return folder


def test_one_line_sets_a_cluster_up(laptop: Laptop, user_file: Path) -> None:
    """What is there is shown, what is missing is written, and a plan ends it; then rv finds it."""
    folder = scratch(laptop)
    done = laptop.rv("init", HOST)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(user_file.read_text()) == {
        "cluster": "small",
        "clusters": {"small": {"host": HOST, "race_root": f"{folder}/rv/races"}},
    }
    assert user_file.stat().st_mode & 0o777 == 0o600
    assert re.search(r"Slurm +\d+\.\d+\S*, cluster small", done.stdout)
    assert f"+    host: {HOST}" in done.stderr
    assert "a100-80" in done.stdout.partition("JOB")[2]
    assert list(folder.iterdir()) == []

    ran = laptop.rv("run", "--time", "5m", "echo $RV_RACE_DIR")
    assert ran.returncode == 0, ran.stderr
    assert [path.name for path in folder.iterdir()] == ["rv"]
    assert f"rv on small (Slurm behind {HOST})" in ran.stderr
    by_host = laptop.rv("ps", "--json", "--cluster", f"ssh:{HOST}")
    assert len(json.loads(by_host.stdout)["races"]) == 1


def test_it_can_be_run_again_and_keeps_what_the_user_wrote(laptop: Laptop, user_file: Path) -> None:
    """Comments and own settings too; the second time there is nothing to write."""
    user_file.parent.mkdir(parents=True)
    mine = "# mine\nclusters:\n  big:  # ours\n    host: cluster\n    race_root: ~/elsewhere\n"
    user_file.write_text(mine)
    first = laptop.rv("init", HOST, "--json")
    assert json.loads(first.stdout)["cluster"] == "big", first.stderr
    assert user_file.read_text() == f"{mine}cluster: big\n"
    again = laptop.rv("init")
    assert again.returncode == 0, again.stderr
    assert "says all of this already" in again.stderr
    assert user_file.read_text() == f"{mine}cluster: big\n"


def test_the_json_has_all_that_was_found(laptop: Laptop, user_file: Path) -> None:
    """Programs and folders there, the difference, and the plan."""
    done = laptop.rv("init", HOST, "--json", "--dry-run", "--name", "near")
    found = json.loads(done.stdout)
    assert (found["cluster"], found["host"], found["written"]) == ("near", HOST, False)
    assert found["slurm"]["cluster"] == "small"
    assert any(folder["home"] and folder["hard_links"] for folder in found["folders"])
    assert "python3" in found["programs"]
    assert found["plan"]["strategies"]
    assert not user_file.exists()


@pytest.mark.parametrize(
    ("where", "says"),
    [("nowhere.invalid", "cannot connect to nowhere.invalid"), ("-oProxyCommand=x@y", "")],
)
def test_what_cannot_be_reached_is_one_line_and_nothing_is_written(
    laptop: Laptop, user_file: Path, where: str, says: str
) -> None:
    """With a remedy below."""
    done = laptop.rv("init", "--", where)
    assert done.returncode != 0
    assert says in done.stderr
    assert "  hint: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not user_file.exists()


def test_a_file_that_is_wrong_is_left_as_it_is(laptop: Laptop, user_file: Path) -> None:
    """Whoever wrote it mends it."""
    user_file.parent.mkdir(parents=True)
    user_file.write_text("clusters: [\n")
    done = laptop.rv("init", HOST)
    assert done.returncode == 125
    assert f"{user_file}:2: not YAML" in done.stderr
    assert user_file.read_text() == "clusters: [\n"


def test_a_file_that_cannot_be_written_is_one_line(laptop: Laptop, user_file: Path) -> None:
    """And nothing half-written lies anywhere."""
    user_file.parent.parent.mkdir()
    user_file.parent.write_text("a file")
    done = laptop.rv("init", HOST)
    assert done.returncode == 125
    assert "error[config]: " in done.stderr
    assert "  hint: " in done.stderr
    assert [path.name for path in user_file.parent.parent.iterdir()] == ["rv"]


def test_a_name_that_is_none_is_refused(laptop: Laptop, user_file: Path) -> None:
    """Before anything is written."""
    done = laptop.rv("init", HOST, "--name", "all")
    assert done.returncode == 125
    assert "'all' is no name for a cluster" in done.stderr
    assert not user_file.exists()


def test_a_person_is_asked_few_questions_with_answers_to_take(
    laptop: Laptop, user_file: Path
) -> None:
    """On a terminal: the name, the account, the folder, and whether to write it."""
    scratch(laptop)
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "rv", "init", HOST],
        cwd=laptop.home, env=laptop.environment, stdin=slave, stdout=slave, stderr=slave,
        start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    answers = {b"called?": b"mine\n", b"pays": b"\n", b"lie?": b"\n", b"[Y/n]": b"\n"}
    shown = b""
    try:
        while chunk := os.read(master, 65536):
            shown += chunk
            question = next((each for each in answers if each in shown), b"")
            if question and shown.endswith(b"]: "):
                os.write(master, answers.pop(question))
    except OSError:
        pass
    os.close(master)
    assert process.wait(30) == 0, shown
    assert not answers
    assert list(yaml.safe_load(user_file.read_text())["clusters"]) == ["mine"]
