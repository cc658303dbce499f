"""The YAML of strategies/: what users may change, and how their slips are named."""

import subprocess
import sys
from datetime import timedelta

import pytest

from rv import bundle
from rv.config.documents import read_document
from rv.config.gpu_models import load_catalogue
from rv.config.strategies import check_family, check_gpu_models
from rv.config.strategy_families import load_families
from rv.errors import ErrorKind, RvError
from rv.models.plan import Mode
from rv.models.request import Request
from rv.planner import plan
from tests.unit.planner.clusters import CATALOGUE, FAMILIES, campus, nodes, partition, snapshot


@pytest.fixture
def config(tmp_path):
    """Return a user's config folder and a way to write a strategies file in it."""
    (tmp_path / "strategies").mkdir()

    def write(name, text):
        (tmp_path / "strategies" / name).write_text(text, encoding="utf-8")
        return tmp_path

    return write


def broken(load, folder):
    """Return the error of loading."""
    with pytest.raises(RvError) as caught:
        load(folder)
    assert caught.value.kind is ErrorKind.CONFIG
    return caught.value


def test_the_bundled_families():
    """Three kinds of layout, all direct, with the defaults of the findings; and segments."""
    found = {family.name: family for family in FAMILIES}
    assert sorted(found) == ["checkpoint", "mig", "multi_node", "single_node"]
    assert [name for name in found if found[name].mode is Mode.CHECKPOINT] == ["checkpoint"]
    assert (found["checkpoint"].buffer, found["checkpoint"].min_usable) == (
        timedelta(seconds=120),
        timedelta(seconds=60),
    )
    assert (found["mig"].cpus, found["mig"].memory_mib) == (1, 16 * 1024)
    assert (found["single_node"].cpus_per_gpu, found["single_node"].max_cpus) == (4, 32)
    assert found["multi_node"].min_gpus_per_node == 2


def test_a_users_file_replaces_the_bundled_family(config):
    """Switched off, its layouts are gone and the plan says so."""
    folder = config("multi_node.yaml", "name: multi_node\nserves: multi-node\nenabled: false\n")
    made = plan(Request(gpus=4), campus(), CATALOGUE, load_families(folder))
    assert {strategy.nodes for strategy in made.strategies} == {1}
    assert any("no strategy family for multi-node" in found.reason for found in made.excluded)


def test_a_family_more_on_the_same_layout(config):
    """It gets strategies of its own, under ids of its own."""
    folder = config(
        "wide.yaml",
        "name: wide\nserves: single-node\ntemplate: mine\ndefaults: {cpus_per_gpu: 8}\n",
    )
    members = nodes("n", 1, gres={"t4": 4})
    cluster = snapshot((partition("gpu", members), members))
    made = plan(Request(), cluster, CATALOGUE, load_families(folder))
    assert {(s.id, s.template, s.cpus_per_task) for s in made.strategies} == {
        ("t4/1x1/gpu", "single_node", 4),
        ("t4/1x1/gpu/wide", "mine", 8),
    }


def test_a_users_models_lie_over_the_bundled_ones(config):
    """A new model, and a site's own meaning of a word."""
    folder = config(
        "gpus.yaml",
        "models:\n  x1: {words: ['weird1'], vram_mib: 8192}\naliases: {a100: [a100-40]}\n",
    )
    catalogue = load_catalogue(folder)
    assert catalogue.recognise(("weird1",)).name == "x1"
    assert catalogue.meanings("a100") == ("a100-40",)
    assert catalogue.meanings("h200") == ("h200",)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("name: x\nserve: mig\n", "x.yaml:2: unknown key 'serve'", "did you mean serves?"),
        (
            "name: x\nserves: single-node\ndefaults:\n  cpu_per_gpu: 4\n",
            "x.yaml:4: unknown key 'cpu_per_gpu'",
            "did you mean cpus_per_gpu?",
        ),
        (
            "name: x\nserves: single\n",
            "x.yaml:2: unknown serves 'single'",
            "did you mean single-node?",
        ),
        ("name: x\ndefaults: {max_cpus: many}\n", "x.yaml:2: max_cpus must be", ""),
        ("name: x\nenabled: maybe\n", "x.yaml:2: enabled must be true or false", ""),
        ("serves: mig\n", "x.yaml:1: a family needs a name", ""),
        ("name: [\n", "x.yaml:2: ", ""),
        ("- x\n", "x.yaml:1: the file must be a mapping", ""),
        (
            "name: x\nserves: mig\ndefaults: {memory: lots}\n",
            "x.yaml:3: 'lots' is not an amount",
            "",
        ),
    ],
)
def test_slips_in_a_family(config, text, message, hint):
    """File, line and the nearest key."""
    error = broken(load_families, config("x.yaml", text))
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models:\n  x1:\n    wrods: [x]\n", "gpus.yaml:3: unknown key 'wrods'"),
        ("models:\n  x1: {words: ['(']}\n", "gpus.yaml:2: '(' is no regular expression"),
        ("models:\n  X_1: {}\n", "gpus.yaml:2: a model is named in lower case"),
        ("models:\n  x1: {refines: x0}\n", "gpus.yaml:2: 'x0' is no model"),
        ("aliases:\n  b: [nothing]\n", "gpus.yaml:2: alias of 'nothing', which is no model"),
        ("models:\n  x1: {vram_mib: -1}\n", "gpus.yaml:2: vram_mib must be a whole number"),
    ],
)
def test_slips_in_the_catalogue(config, text, message):
    """The same for models."""
    assert message in broken(load_catalogue, config("gpus.yaml", text)).message


def test_what_comes_with_rv_is_right():
    """It is not checked when it is loaded, which would cost every start the schemas' import."""
    for file in bundle.entries(bundle.Kind.STRATEGIES, ".yaml"):
        check = check_gpu_models if file.name == "gpus.yaml" else check_family
        check(read_document(file))


def test_a_start_without_files_of_the_user_s_loads_no_pydantic():
    """Its schemas would take a fifth of a dry run."""
    code = (
        "import sys\n"
        "from rv.config.gpu_models import load_catalogue\n"
        "from rv.config.strategy_families import load_families\n"
        "load_catalogue(), load_families()\n"
        "sys.exit('pydantic' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
