"""docs/licences.md: the licences of all that an installed rv brings along, from the packages' own metadata.

`GOLDEN=write tests/run.sh tests/unit/test_licences.py` rewrites it.
"""

import os
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

PAGE = Path(__file__).parents[2] / "docs" / "licences.md"
CLASSIFIED = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
}
"""Licences as the classifiers of PyPI call them, by their SPDX names."""
ALLOWED = {
    "Apache-2.0", "Apache-2.0 OR BSD-3-Clause", "BSD-2-Clause", "BSD-3-Clause", "ISC", "LGPL-2.1",
    "MIT", "MIT-0", "PSF-2.0",
}  # fmt: skip
"""Licences under which others may use rv as its own licence says. LGPL: as a library, unchanged."""
HEAD = """# Licences

rv is under the MIT licence: the file `LICENSE`. It ships no code of others. What an installation brings along
is listed here with its licence by its SPDX name, as each package's own metadata has it; this page is generated from that by
`GOLDEN=write tests/run.sh tests/unit/test_licences.py`, and a test holds it to what is installed.

paramiko is used as it is, as a library that you can replace, which is what its licence (LGPL) asks for.

"""
EXTRAS = """
The extras bring more: `.[payloads]` torch, numpy and nvidia-ml-py, `.[report]` matplotlib, all under BSD licences or one like Python's. A torch
for GPUs also brings NVIDIA's libraries, under NVIDIA's own terms.
"""


def brought_by(name: str) -> set[str]:
    """The packages that a package needs here, and those that these need."""
    found: set[str] = set()
    pending = [(name, "")]
    while pending:
        package, wanted = pending.pop()
        for line in distribution(package).requires or ():
            needed = Requirement(line)
            if needed.marker and not needed.marker.evaluate({"extra": wanted}):
                continue
            official = distribution(needed.name).metadata["Name"]
            if official not in found:
                found.add(official)
                pending += [(official, more) for more in ("", *needed.extras)]
    return found


def licence(package: Distribution) -> str:
    """The SPDX name of a package's licence, however its metadata has it."""
    data = package.metadata
    if expression := data.get("License-Expression"):
        return expression
    named = [line.rpartition(" :: ")[2] for line in data.get_all("Classifier") or ()]
    classified = [CLASSIFIED[name] for name in named if name in CLASSIFIED]
    return classified[0] if classified else str(data.get("License", ""))


def page() -> str:
    """Write the page."""
    names = sorted(brought_by("rv-slurm"), key=str.lower)
    rows = [f"| {name} | {licence(distribution(name))} |" for name in names]
    return HEAD + "\n".join(["| package | licence |", "|---|---|", *rows, EXTRAS])


def test_the_page_is_current() -> None:
    if os.environ.get("GOLDEN") == "write":
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "GOLDEN=write rewrites docs/licences.md"


def test_rv_may_be_used_as_its_licence_says() -> None:
    """Nothing that is always brought along has a licence that asks for more."""
    licences = {name: licence(distribution(name)) for name in brought_by("rv-slurm")}
    assert {name: it for name, it in licences.items() if it not in ALLOWED} == {}
    assert {"typer", "paramiko", "cffi"} <= set(licences), "the first, and what others bring"
