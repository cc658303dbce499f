"""`rv config` from outside: values with their sources, and files that are changed or left whole."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MINE = "# mine\ndefaults:\n  time: 2h  # long enough\n  mem: 8G\n"


@pytest.fixture
def user_file(tmp_path):
    """The user's file, which is not there yet."""
    return tmp_path / "config" / "rv" / "config.yaml"


@pytest.fixture
def rv(tmp_path, user_file):
    """Run `rv config` in an empty folder."""
    user_file.parent.mkdir(parents=True)
    project = tmp_path / "project"
    project.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RV_")}
    env = kept | {
        "XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path),
        "RV_SITE_CONFIG": str(tmp_path / "site.yaml"), "PYTHONPATH": str(ROOT),
    }  # fmt: skip

    def run(*arguments, **more):
        return subprocess.run(
            [sys.executable, "-m", "rv", "config", *arguments],
            env=env | more, cwd=project, capture_output=True, text=True, timeout=60,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    return run


def values(done):
    """Each key with its value and source."""
    assert done.returncode == 0, done.stderr
    return {row["key"]: (row["value"], row["source"]) for row in json.loads(done.stdout)["values"]}


def test_each_value_has_its_source(rv, user_file, tmp_path):
    """rv itself, three files with their lines, and the environment."""
    site, project = tmp_path / "site.yaml", tmp_path / "project" / "rv.yaml"
    site.write_text("defaults: {account: lab}\nmax_fanout: 4\nskip_partitions: [old]\n")
    user_file.write_text(
        "clusters: {a: {host: a}, b: {host: b}}\ncluster: a\nmax_fanout: 9\nskip_partitions: [x]\n"
    )
    project.write_text("cluster: b\n")
    found = values(rv("--json", RV_CLUSTER="local"))
    assert found["defaults.time"] == ("", "default")
    assert found["defaults.account"] == ("lab", f"site file {site}:1")
    assert found["clusters.a.host"] == ("a", f"user file {user_file}:1")
    assert found["max_fanout"] == (4, f"site file {site}:2")
    assert found["skip_partitions"][0] == ["old", "x"]
    assert found["cluster"] == ("local", "environment RV_CLUSTER")
    assert values(rv("--json"))["cluster"] == ("b", f"project file {project}:1")
    assert "site file" in rv().stdout


def test_one_value_is_set_and_the_rest_stays(rv, user_file):
    """Comments and order; the file is for this user alone."""
    user_file.write_text(MINE)
    user_file.chmod(0o644)
    done = rv("set", "defaults.time", "2:59:00")
    assert done.returncode == 0, done.stderr
    assert user_file.read_text() == MINE.replace("2h ", "'2:59:00' ")
    assert stat.S_IMODE(user_file.stat().st_mode) == 0o600
    assert rv("unset", "defaults.time").returncode == 0
    assert user_file.read_text() == "# mine\ndefaults:\n  mem: 8G\n"


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("defaults.time", "soon", "'soon' is not a duration"),
        ("defaults.tme", "1h", "unknown key 'tme'"),
        ("defaults.cpus", "many", "cpus must be a whole number"),
        ("cluster", "nowhere", "no cluster 'nowhere' is known"),
        ("clusters.a.race_root", "/x", "cluster a has no host"),
        ("clusters.a.host", "x;reboot", "is no host"),
        ("aliases.best", "[h20]", "alias of 'h20', which is no model"),
        ("defaults", "1", "defaults must be a mapping"),
        ("defaults..x", "1", "'defaults..x' is no key"),
    ],
)
def test_what_does_not_validate_is_not_written(rv, user_file, key, value, says):
    """The file is the same to the byte, and nothing lies beside it."""
    user_file.write_text(MINE)
    done = rv("set", key, value)
    assert done.returncode in (2, 125)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert user_file.read_text() == MINE
    assert [path.name for path in user_file.parent.iterdir()] == ["config.yaml"]


def test_a_value_is_read_as_its_key_takes_it(rv, user_file):
    """Numbers, lists, yes and no; what looks like a number may be a text."""
    for key, value in {
        "defaults.cpus": "4", "skip_partitions": "[old, debug]", "defaults.strict_gpu": "yes",
        "defaults.account": "123", "defaults.type": "a100,h100", "prices.unit": "null",
    }.items():  # fmt: skip
        assert rv("set", key, value).returncode == 0
    found = {key: value for key, (value, source) in values(rv("--json")).items() if source != "default"}  # fmt: skip
    assert found == {
        "defaults.cpus": 4, "skip_partitions": ["old", "debug"], "defaults.strict_gpu": True,
        "defaults.account": "123", "defaults.type": "a100,h100", "prices.unit": "null",
    }  # fmt: skip


def test_the_project_s_file_is_its_own(rv, user_file, tmp_path):
    """What a project may not say is not written there either."""
    assert rv("set", "--project", "defaults.time", "1h").returncode == 0
    project = tmp_path / "project" / "rv.yaml"
    assert project.read_text() == "defaults:\n  time: 1h\n"
    done = rv("set", "--project", "cluster", "ada@evil")
    assert done.returncode == 125
    assert "does not say where rv connects" in done.stderr
    assert not user_file.exists()


def test_a_secret_is_never_shown(rv, user_file):
    """Neither where it stands, nor where it is refused, nor where it is written."""
    user_file.write_text("defaults:\n  sbatch: {wandb-api-key: s3cret}\n")
    done = rv("--json")
    assert values(done)["defaults.sbatch.wandb-api-key"][0] == "***"
    assert "s3cret" not in done.stdout + rv().stdout
    refused = rv("set", "defaults.sbatch.my_token", "s3cret")
    written = rv("set", "defaults.sbatch.my-token", "s3cret")
    assert (refused.returncode, written.returncode) == (125, 0)
    assert "s3cret" not in refused.stderr + written.stderr + written.stdout


def test_a_link_to_a_file_stays_one(rv, user_file, tmp_path):
    """As those have it who keep their files elsewhere."""
    kept = tmp_path / "dotfiles.yaml"
    kept.write_text(MINE)
    user_file.symlink_to(kept)
    assert rv("set", "defaults.mem", "9G").returncode == 0
    assert user_file.is_symlink()
    assert kept.read_text() == MINE.replace("8G", "9G")


def test_a_file_that_cannot_be_written_is_one_line(rv, user_file):
    """With what to do."""
    user_file.parent.rmdir()
    user_file.parent.write_text("a file")
    done = rv("set", "defaults.mem", "9G")
    assert done.returncode == 125
    assert done.stderr.count("\n") == 2
    assert "  hint: " in done.stderr
