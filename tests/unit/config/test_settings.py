"""The configuration files: what wins over what, and how slips are named."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rv.config.gpu_models import load_catalogue
from rv.errors import ErrorKind, RvError
from rv.models.request import Request
from rv.models.site import Ceiling, Price, Site
from rv.models.snapshot import write_snapshot
from rv.planner import plan
from rv.workflow.option_defaults import read_config
from tests.unit.planner.clusters import CATALOGUE, FAMILIES, campus, reasons

ROOT = Path(__file__).parents[3]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Write the site's or the user's file; returns its path."""
    site, user = tmp_path / "etc" / "config.yaml", tmp_path / "home" / "rv" / "config.yaml"
    for path in (site, user):
        path.parent.mkdir(parents=True)
    monkeypatch.setenv("RV_SITE_CONFIG", str(site))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(user.parent.parent))

    def write(text, *, site_s=False):
        path = site if site_s else user
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def dry_run(files, tmp_path):
    """Plan on a saved idle campus, from the command line; returns its two outputs."""
    saved = tmp_path / "campus.json"
    saved.write_text(write_snapshot(campus()), encoding="utf-8")

    def run(*options, command="up"):
        dry = () if command == "cost" else ("--dry-run",)
        argv = [sys.executable, "-m", "rv", command, *dry, "--snapshot", str(saved), *options]
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)

    return run


def test_without_files_there_is_nothing(files):
    """No file is no error."""
    config = read_config()
    assert (config.defaults, config.site) == ({}, Site())


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("prise: {}\n", 1, "unknown key 'prise'", "did you mean prices?"),
        ("prices:\n  per_hour: {}\n", 2, "unknown key 'per_hour'", "per_gpu_hour"),
        ("prices:\n  per_gpu_hour:\n    a40: free\n", 3, "a40 must be a number", ""),
        ("prices: {per_gpu_hour: {a40: -1}}\n", 1, "a40 must be a number", ""),
        ("prices: {per_gpu_hour: {a40: .inf}}\n", 1, "a40 must be a number", ""),
        ("defaults:\n  tme: 2h\n", 2, "unknown key 'tme'", "did you mean time?"),
        ("defaults:\n  time: 2:59:00\n", 2, "time must be text", "put it in quotes"),
        ("defaults:\n\n  time: soon\n", 3, "'soon' is not a duration", "write 90m"),
        ("defaults: {mem: lots}\n", 1, "'lots' is not an amount of memory", ""),
        ("defaults: {cpus: many}\n", 1, "cpus must be a whole number", ""),
        ("defaults: {strict_gpu: 1}\n", 1, "strict_gpu must be true or false", ""),
        ("defaults: {fanout: eech}\n", 1, "unknown fanout 'eech'", "did you mean each?"),
        ("defaults: {account: 'a b'}\n", 1, "'a b' is no value for --account", ""),
        ("defaults:\n  sbatch:\n    gres: gpu:1\n", 2, "--sbatch gres is rv's own", ""),
        ("defaults:\n  sbatch:\n    nice: [1]\n", 3, "nice must be text or a number", ""),
        ("defaults: {name: x}\n", 1, "unknown key 'name'", ""),
        ("defaults: {max_submissions: 0}\n", 1, "max-submissions must be 1 or more", ""),
        ("max_fanout: 0\n", 1, "max_fanout must be 1 or more", ""),
        ("max_fanout: lots\n", 1, "max_fanout must be a whole number", ""),
        ("skip_partitions: gpu\n", 1, "skip_partitions must be a list", ""),
        ("aliases: {a100: a100-80}\n", 1, "a100 must be a list", ""),
        ("- x\n", 1, "the file must be a mapping", ""),
        ("a: [\n", 2, "", ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("site_s", [True, False], ids=["site", "user"])
def test_slips_are_named_with_file_and_line(files, text, line, message, hint, site_s):
    """The nearest key too."""
    path = files(text, site_s=site_s)
    with pytest.raises(RvError) as caught:
        read_config()
    assert caught.value.kind is ErrorKind.CONFIG
    assert caught.value.message.startswith(f"{path}:{line}: ")
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_an_alias_of_no_model_is_named_with_its_line(files):
    """The catalogue knows which models there are."""
    path = files("aliases:\n  best: [h20]\n")
    with pytest.raises(RvError) as caught:
        load_catalogue(None, read_config().site.aliases)
    assert caught.value.message == f"{path}:2: alias of 'h20', which is no model"
    assert caught.value.hint == "did you mean h200?"


def test_a_file_that_may_not_be_read_is_no_missing_one(files):
    """A folder in its place cannot be read, and says so."""
    path = files("")
    path.unlink()
    path.mkdir()
    with pytest.raises(RvError, match="cannot be read"):
        read_config()


def test_the_user_s_defaults_win_over_the_site_s(files):
    """Option by option; what may be repeated is joined by key."""
    files(
        "defaults: {time: 1h, cpus: 2, sbatch: {nice: 1, mail-type: END}}\n"
        "prices: {unit: SU, per_gpu_hour: {a40: 1, v100: 2}}\n"
        "aliases: {big: [h200]}\nskip_partitions: [a]\nreference_gpu: v100\n",
        site_s=True,
    )
    files(
        "defaults: {time: 2h, sbatch: {nice: 5}}\n"
        "prices: {per_gpu_hour: {a40: 3}}\naliases: {big: [a40]}\nskip_partitions: [b]\n"
    )
    config = read_config()
    values = {name: setting.value for name, setting in config.defaults.items()}
    assert values == {"time": "2h", "cpus": 2, "sbatch": ["nice=5", "mail-type=END"]}
    prices = {name: price.per_gpu_hour for name, price in config.site.prices.items()}
    assert (prices, config.site.unit) == ({"a40": 3, "v100": 2}, "SU")
    assert set(config.site.skipped) == {"a", "b"}
    assert load_catalogue(None, config.site.aliases).meanings("big") == ("a40",)
    assert config.site.performance.reference == "v100"


def test_the_reference_of_a_file_is_what_work_is_counted_in(files, dry_run):
    """And the plan says which file."""
    path = files("reference_gpu: v100\n")
    made = json.loads(dry_run("--work", "2gpuh", "--for", "finish", "--json").stdout)
    assert f"the work is 2 GPU-hours of v100 ({path}:1)" in made["notes"]
    files("reference_gpu: zx9\n")
    done = dry_run("--work", "2gpuh", "--for", "finish")
    assert "no rate of the reference GPU 'zx9' is known" in done.stderr


def test_a_default_type_does_not_forbid_a_job_without_gpus(files, dry_run):
    """What the user typed makes the file's GPU type pointless, not wrong."""
    files("defaults: {type: a40, vram: 40G}\n")
    done = dry_run("--gpu", "0", "--cpus", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["strategies"]


@pytest.mark.parametrize(("users", "allowed"), [(3, 3), (20, 8)])
def test_a_ceiling_can_be_lowered_and_not_raised(files, users, allowed):
    """The site says 8."""
    files("max_fanout: 8\n", site_s=True)
    files(f"max_fanout: {users}\n")
    assert read_config().site.max_fanout.jobs == allowed


@pytest.mark.parametrize("word", ["of the site", "of the user"])
def test_aliases_of_a_user_s_own_model_file_lie_between(tmp_path, word):
    """Over the site's, under those of the user's configuration file."""
    from rv.models.site import Alias

    (tmp_path / "strategies").mkdir()
    (tmp_path / "strategies" / "gpus.yaml").write_text("aliases: {w: [a40]}\n")
    alias = Alias(word="w", models=("h200",), origin="x:1", by_site=word == "of the site")
    meant = load_catalogue(tmp_path, [alias]).meanings("w")
    assert meant == (("a40",) if word == "of the site" else ("h200",))


def test_what_is_typed_wins_over_the_files(files, dry_run):
    """Even where it is what rv would do by itself; the rest comes from the files, and says so."""
    files("defaults: {gpu: 2, time: 2h, type: v100}\n", site_s=True)
    path = files("defaults: {cpus: 3}\n")
    done = dry_run("--gpu", "1", "--json")
    (only,) = json.loads(done.stdout)["strategies"]
    assert (only["gpus"], only["gpu"], only["walltime_s"], only["cpus_per_task"]) == (
        1, "v100", 7200, 3,
    )  # fmt: skip
    assert f"cpus is 3 by {path}:1" in done.stderr
    assert "gpu is" not in done.stderr


def test_mig_is_not_held_back_by_a_default_type(files, dry_run):
    """The two exclude each other when both are typed."""
    files("defaults: {type: v100}\n")
    (slice_,) = json.loads(dry_run("--mig", "--json").stdout)["strategies"]
    assert slice_["gpu"] == "1g.10gb"


def test_sbatch_options_of_files_and_of_the_command_line(files, dry_run):
    """One of each key; the typed one stays."""
    files("defaults: {sbatch: {nice: 5, mail-type: END, reboot: }}\n")
    line = dry_run("--type", "v100", "--sbatch", "nice=7").stdout
    assert "--nice=7 --mail-type=END --reboot job.sh" in line


def test_no_race_has_more_jobs_than_the_site_allows(files, dry_run):
    """A wish for more is answered with file and line."""
    path = files("max_fanout: 2\n", site_s=True)
    files("max_fanout: 20\n")
    made = json.loads(dry_run("--max-submissions", "5", "--fanout", "each", "--json").stdout)
    assert len(made["submissions"]) == 2
    assert f"max_fanout allows 2 jobs a race ({path}:1), 5 asked" in made["notes"]
    unasked = json.loads(dry_run("--json").stdout)
    assert len(unasked["submissions"]) == 2
    assert not [note for note in unasked["notes"] if "max_fanout" in note]


def test_a_skipped_partition_is_left_out_unless_it_is_named():
    """With the file that says so."""
    site = Site(skipped={"gpu-a40": "/etc/rv/config.yaml:9"})
    made = plan(Request(), campus(), CATALOGUE, FAMILIES, site)
    assert reasons(made)["a40/gpu-a40"] == (
        "partition gpu-a40 is skipped by /etc/rv/config.yaml:9; -p gpu-a40 asks for it"
    )
    asked = plan(Request(partitions=("gpu-a40",)), campus(), CATALOGUE, FAMILIES, site)
    assert [strategy.partition for strategy in asked.strategies] == ["gpu-a40"]


def test_a_price_of_nothing_that_exists_is_a_slip_of_the_pen():
    """A model that rv or the cluster knows is not, whether this request can use it or not."""
    prices = {name: Price(per_gpu_hour=1, origin=f"f:{n}") for n, name in enumerate(
        ("a100_80", "h100", "1g.20gb", "a100"), 1)}  # fmt: skip
    made = plan(Request(), campus(), CATALOGUE, FAMILIES, Site(prices=prices))
    slips = [note for note in made.notes if "no GPU model" in note]
    assert slips == ["f:1: no GPU model is called 'a100_80'; did you mean a100-80?"]


def test_a_ceiling_of_one_is_one_job():
    """Nothing is merged away in the words."""
    site = Site(max_fanout=Ceiling(jobs=1, origin="f:1"))
    made = plan(Request(max_submissions=3), campus(), CATALOGUE, FAMILIES, site)
    assert len(made.submissions) == 1
    assert "max_fanout allows one job a race (f:1), 3 asked" in made.notes


def test_a_broken_file_stops_a_command_with_one_line(files, dry_run):
    """`error[config]`, and nothing on stdout."""
    path = files("defaults: {tim: 2h}\n")
    done = dry_run()
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith(f"error[config]: {path}:1: unknown key 'tim'\n")
    assert "did you mean time?" in done.stderr
