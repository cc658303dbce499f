"""The example files of sites and users: each is loaded, and does what its comments say."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rv import bundle
from rv.config.gpu_models import load_catalogue
from rv.config.strategy_families import load_families
from rv.models.plan import Submission
from rv.models.request import Request
from rv.planner import plan
from rv.render.script import render
from rv.render.templates import Templates
from rv.workflow.option_defaults import read_config
from rv.workflow.which_cluster import named_clusters
from tests.unit.planner.clusters import CATALOGUE, campus, nodes, partition, reasons, snapshot
from tests.unit.render.test_golden import facts, strategy

EXAMPLES = Path(__file__).parents[2] / "examples"
USER = EXAMPLES / "user"


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Both example files, read as a command reads them."""
    monkeypatch.setenv("RV_SITE_CONFIG", str(EXAMPLES / "site" / "config.yaml"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("RV_PROJECT_CONFIG", "none")
    monkeypatch.delenv("RV_CLUSTER", raising=False)
    shutil.copytree(USER, tmp_path / "rv")
    return read_config("local")


def test_the_example_cluster_is_of_both_files_and_the_project_speaks_last(config, monkeypatch):
    """The user's name there, the site's folder; the project's account over the site's."""
    named = named_clusters(os.environ).named["campus"]
    assert (named.host, named.race_root) == (
        "ada@login.campus.example", "/scratch/$USER/rv/races",
    )  # fmt: skip
    assert read_config().defaults["time"].value == "4h"
    monkeypatch.setenv("RV_PROJECT_CONFIG", str(EXAMPLES / "project" / "rv.yaml"))
    values = {name: setting.value for name, setting in read_config().defaults.items()}
    assert (values["account"], values["time"], values["type"]) == ("vision", "6h", "a100")


def test_the_site_and_the_user_lie_over_each_other(config):
    """The user's defaults over the site's, the lower ceiling, the prices of both."""
    values = {name: setting.value for name, setting in config.defaults.items()}
    assert values == {
        "time": "2h", "account": "lab", "widen_after": "30s", "sbatch": ["mail-type=FAIL"],
        "modules": "cuda/12.4",
        "type": "a100,h200", "cpus": 16,
    }  # fmt: skip
    assert (config.site.max_fanout.jobs, config.site.unit) == (4, "SU")
    assert config.site.prices["l40s"].per_gpu_hour == 150
    assert config.site.prices["h200"].per_gpu_hour == 816.67
    assert list(config.site.skipped) == ["interactive-rtx3090"]


def test_every_value_knows_its_line(config):
    """File and line of the key, in either file."""
    for name, setting in config.defaults.items():
        path, _, line = setting.origin.rpartition(":")
        assert re.match(rf"\s+{name}:", Path(path).read_text().splitlines()[int(line) - 1])
    path, _, line = config.site.prices["a40"].origin.rpartition(":")
    assert Path(path).read_text().splitlines()[int(line) - 1] == "    a40: 186.69"


def test_the_site_s_prices_are_those_of_the_cluster_that_they_were_taken_from(config):
    """Every model of campus but the slices, which both give away."""
    made = plan(Request(), campus(), CATALOGUE, load_families(), config.site)
    listed = {s.gpu: s.cost_per_gpu_hour for s in made.strategies}
    assert listed == pytest.approx(
        {s.gpu: s.cost_per_gpu_hour for s in plan(Request(), campus(), CATALOGUE, load_families()).strategies
         if s.gpu != "rtx3090"}, abs=0.01,
    )  # fmt: skip
    assert "is skipped by" in reasons(made)["rtx3090/interactive-rtx3090"]


def test_the_aliases_of_all_four_places(config):
    """The site's words, the user's own file of models, the user's words, and the bundled ones."""
    catalogue = load_catalogue(USER, config.site.aliases)
    assert catalogue.meanings("a100") == ("a100-80",)
    assert catalogue.meanings("big") == ("h200", "a100-80")
    assert catalogue.meanings("mine") == ("a6000", "a40")
    assert catalogue.meanings("x") == ("x1000",)
    assert catalogue.recognise(("X1000",)).name == "x1000"
    assert catalogue.meanings("h100") == ("h100", "h100-nvl")


def test_the_family_of_ones_own():
    """A second strategy with more CPUs."""
    members = nodes("n", 1, gres={"t4": 4})
    cluster = snapshot((partition("gpu", members), members))
    made = plan(Request(), cluster, CATALOGUE, load_families(USER))
    assert {s.family: s.cpus_per_task for s in made.strategies} == {
        "single_node": 4,
        "many_cpus": 12,
    }


def test_the_template_of_ones_own_is_the_bundled_one_and_two_lines_more():
    """It is what a job runs, and bash can read it."""

    def read(name):
        return bundle.find(bundle.Kind.TEMPLATES, name, USER).read_text()

    own, bundled = read("single_node.sh.j2"), bundle.bundled(bundle.Kind.TEMPLATES)
    ours = re.sub(r"(?s)\{%#.*?#%\}\n", "", own)
    ours = re.sub(r"# Of your own.*\nnvidia-smi .*\n", "", ours)
    assert ours == (bundled / "single_node.sh.j2").read_text()
    text = render(Submission(number=1, strategies=(strategy(),)), facts(), Templates(read))
    assert 'nvidia-smi >"$RV_OUTPUT_DIR/gpus.txt"' in text
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
