"""The container examples: what they copy and run exists, and linters and schemas accept them."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.payloads.starting import PAYLOADS

ROOT = Path(__file__).parents[2]
CONTAINERS = ROOT / "examples" / "containers"
DOCKERFILES = ("Dockerfile", "Dockerfile.mamba")
MANIFESTS = sorted(CONTAINERS.glob("*.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def sections(recipe: Path) -> dict[str, str]:
    """Split an Apptainer recipe into its header and sections."""
    parts = re.split(r"^%(\w+)$", recipe.read_text(), flags=re.MULTILINE)
    return {"header": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def payloads_in(text: str) -> set[str]:
    return set(re.findall(r"\b(\w+\.py)\b", text))


@pytest.mark.parametrize("name", DOCKERFILES)
def test_the_dockerfile_is_linted(name: str) -> None:
    done = subprocess.run(
        ["hadolint", CONTAINERS / name], capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_finds_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM nvidia/cuda\nRUN cd /tmp && pip install torch\n")

    done = subprocess.run(["hadolint", tmp_path / "Dockerfile"], capture_output=True, timeout=60)

    assert done.returncode == 1


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_follow_the_schema_of_kubernetes(path: Path) -> None:
    validate = pytest.importorskip("kubernetes_validate")

    for document in documents(path):
        validate.validate(document, validate.latest_version(), strict=True)


def test_the_schema_finds_what_is_wrong() -> None:
    validate = pytest.importorskip("kubernetes_validate")
    (job,) = documents(CONTAINERS / "job.yaml")
    job["spec"]["template"]["spec"]["containers"][0]["imgae"] = "misspelt"

    with pytest.raises(validate.ValidationError):
        validate.validate(job, validate.latest_version(), strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_every_container_of_a_manifest_asks_for_a_gpu(path: Path) -> None:
    pods = [d["spec"]["template"]["spec"] for d in documents(path) if "template" in d["spec"]]

    assert pods
    for pod in pods:
        for container in pod["containers"]:
            assert container["resources"]["limits"]["nvidia.com/gpu"] == 1


@pytest.mark.parametrize("name", [path.name for path in MANIFESTS] + [*DOCKERFILES, "accept.def"])
def test_every_payload_that_an_example_runs_exists(name: str) -> None:
    named = payloads_in((CONTAINERS / name).read_text())

    assert named
    assert named <= {path.name for path in PAYLOADS.glob("*.py")}


def test_the_apptainer_recipe_has_its_sections_and_copies_what_is_there() -> None:
    found = sections(CONTAINERS / "accept.def")

    assert re.match(r"Bootstrap: docker\nFrom: \S+\n", found["header"])
    assert {"files", "post", "environment", "runscript", "test", "labels"} <= set(found)
    source, target = found["files"].split()
    assert (ROOT / source / "check.py").is_file()
    assert target in found["runscript"]


@pytest.mark.parametrize("section", ["post", "environment", "runscript", "test"])
def test_the_scripts_of_the_apptainer_recipe_are_checked(section: str, tmp_path: Path) -> None:
    script = tmp_path / f"{section}.sh"
    script.write_text("#!/bin/sh\n" + sections(CONTAINERS / "accept.def")[section])

    done = subprocess.run(["shellcheck", script], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout) == (0, "")


def test_what_the_mamba_image_copies_is_what_its_first_stage_made() -> None:
    """From one stage into the other at one path, which is first on PATH; and what the other runs."""
    text = (CONTAINERS / "Dockerfile.mamba").read_text()
    [made] = re.findall(r"micromamba create .*-p (\S+)", text)
    [(source, target)] = re.findall(r"COPY --from=environment (\S+) (\S+)", text)

    assert made == source == target
    assert f"PATH={made}/bin:$PATH" in text
    plain = (CONTAINERS / "Dockerfile").read_text()
    for part in ("COPY rv", "USER", "WORKDIR", "ENTRYPOINT", "CMD"):
        line = re.findall(rf"^{part}.*$", plain, flags=re.MULTILINE)
        assert line == re.findall(rf"^{part}.*$", text, flags=re.MULTILINE)


def test_all_recipes_install_the_same() -> None:
    """One list of packages with fixed versions, and one base."""
    wanted = r"(torch==\S+ nvidia-ml-py==\S+)"
    texts = [(CONTAINERS / name).read_text() for name in (*DOCKERFILES, "accept.def")]

    assert len({re.findall(wanted, text)[0] for text in texts}) == 1
    assert len({re.findall(r"nvidia/cuda:\S+", text)[0] for text in texts}) == 1
