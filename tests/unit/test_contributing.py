"""CONTRIBUTING.md is true: what it names is there, and what it shows works as it stands there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rv import bundle
from rv.config.gpu_models import load_catalogue
from rv.config.strategy_families import load_families

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = {"rv/payloads/clock.py", "strategies/licensed.yaml", "templates/licensed.sh.j2"}
PATH = re.compile(r"`((?:rv|tests|docs|templates|strategies|examples|\.ci)/[\w./-]+)`")


def block(language: str, beginning: str) -> str:
    """Return the fenced block of a language that begins with a text."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    (only,) = [text for kind, text in blocks if kind == language and text.startswith(beginning)]
    return only


@pytest.fixture
def payloads(tmp_path: Path) -> Path:
    """A copy of the payloads with the example and its fault code."""
    folder = tmp_path / "payloads"
    shutil.copytree(ROOT / "rv" / "payloads", folder)
    (folder / "clock.py").write_text(block("python", "#!/usr/bin/env python3"))
    codes = folder / "contract" / "codes.py"
    start = "CODES: dict[str, Code] = {\n"
    assert start in codes.read_text()
    code = block("python", '"clock_skew"')
    codes.write_text(codes.read_text().replace(start, start + code))
    catalogue = folder / "contract" / "catalogue.py"
    start = "PAYLOADS = (\n"
    assert start in catalogue.read_text()
    catalogue.write_text(
        catalogue.read_text().replace(
            start, start + block("python", "PayloadSpec(").rstrip() + ",\n"
        )
    )
    return folder


def test_every_file_that_it_names_is_there() -> None:
    """A file that is renamed is renamed there too."""
    named = set(PATH.findall(TEXT)) - EXAMPLES

    assert len(named) > 40
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_every_function_that_it_names_is_in_the_file_named_before_it() -> None:
    """`file.py`: `function()`, or `function()` in `file.py`."""
    after = re.findall(r"`([\w/]+\.py)`:\s+`(\w+)\(\)`", TEXT)
    before = re.findall(r"`(\w+)\(\)`\s+in\s+`([\w/]+\.py)`", TEXT)
    pairs = [*after, *((path, name) for name, path in before)]

    assert len(pairs) >= 4
    for path, name in pairs:
        assert f"def {name}(" in (ROOT / path).read_text(), f"{name}() in {path}"


@pytest.mark.parametrize(("arguments", "code"), [([], 0), (["--inject", "skew"], 1)])
def test_the_example_of_a_payload_runs(
    payloads: Path, tmp_path: Path, arguments: list[str], code: int
) -> None:
    """It passes, and its detector finds the planted fault with the example's code."""
    done = subprocess.run(
        [sys.executable, payloads / "clock.py", "--report-dir", tmp_path, *arguments],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip

    assert done.returncode == code, done.stdout + done.stderr
    result = (tmp_path / "clock_result.json").read_text()
    assert ("clock_skew" in result) == bool(code)


def test_the_example_of_a_payload_has_its_place_in_the_catalogue(payloads: Path) -> None:
    """Its entry is one of the catalogue's, in all profiles."""
    script = (
        "from contract.catalogue import PAYLOADS; print(PAYLOADS[0].name, *PAYLOADS[0].profiles)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=payloads, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["clock", "smoke", "accept", "burnin"]


def test_the_example_of_a_gpu_model_is_found_by_its_gres_type(tmp_path: Path) -> None:
    """A user's file with it is enough."""
    (tmp_path / "strategies").mkdir()
    (tmp_path / "strategies" / "gpus.yaml").write_text(block("yaml", "models:"))

    model = load_catalogue(tmp_path).recognise(["nvidia_b300-sxm6"])

    assert model is not None
    assert model.name == "b300"


def test_the_example_of_a_template_makes_jobs_of_its_own(tmp_path: Path) -> None:
    """Its family is planned beside the bundled ones, and its template is found."""
    (tmp_path / "strategies").mkdir()
    (tmp_path / "templates").mkdir()
    (tmp_path / "strategies" / "licensed.yaml").write_text(block("yaml", "name: licensed"))
    template = block("", '{% include "_directives')
    (tmp_path / "templates" / "licensed.sh.j2").write_text(template)

    assert "licensed" in {family.name for family in load_families(tmp_path)}
    found = bundle.find(bundle.Kind.TEMPLATES, "licensed.sh.j2", tmp_path)
    assert found is not None
    single_node = (ROOT / "templates" / "single_node.sh.j2").read_text()
    assert [line for line in template.splitlines() if "include" in line] == [
        line for line in single_node.splitlines() if "include" in line
    ]


def test_the_example_of_a_slurm_version_is_the_one_that_the_tests_use() -> None:
    """The entry stands in tests/data/slurm/versions.yaml as it is shown."""
    (version, shown), *_ = yaml.safe_load(block("yaml", '"23.11":')).items()
    versions = yaml.safe_load((ROOT / "tests/data/slurm/versions.yaml").read_text())

    assert shown["changes"]["queue"] == versions[version]["changes"]["queue"]
    assert shown["like"] == versions[version]["like"]
