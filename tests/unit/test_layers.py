"""The architecture, read from the source: who may import what, and who may touch the world.

1. Imports go down: a part of rv imports only the parts that it stands on.
2. Models, planner and renderer are pure: no clock, files, environment or chance.
3. One part starts processes, one opens sockets, one prints: each for all.
4. Payloads stand alone: they run where rv is not installed, on modules that are there.
5. What is heavy is imported where it is used.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "rv"

GROUND = {"dataclass", "errors", "files", "__version__"}
"""What every part stands on, and itself on nothing."""
STANDS_ON = {
    "models": "",
    "bundle": "",
    "transport": "",
    "planner": "models",
    "render": "models",
    "config": "models planner bundle",
    "slurm": "models transport",
    "avoided_nodes": "slurm bundle",
    "sandbox": "models config",
    "race": "models transport slurm render",
    "workflow": "models config planner render bundle transport slurm race sandbox avoided_nodes",
    "accept": "models config planner bundle transport slurm race workflow avoided_nodes payloads",
    "ui": "models slurm race accept avoided_nodes payloads",
    "cli": "models config bundle transport slurm race workflow sandbox accept ui avoided_nodes "
    "payloads",
    "api": "models bundle accept transport slurm race planner render workflow",
    "helpers": "api",
    "__init__": "models api helpers",
    "__main__": "cli",
}
PURE = ("models/", "planner/", "render/")
IMPURE_MODULES = {
    "os", "time", "random", "secrets", "tempfile", "shutil", "platform", "platformdirs",
}  # fmt: skip
IMPURE_CALLS = {
    "now", "utcnow", "today", "open", "input", "read_text", "read_bytes", "write_text",
}  # fmt: skip
DOORS = {
    ("transport/", "sandbox/processes.py", "api/call.py"): {
        "subprocess", "multiprocessing", "pty", "asyncio.subprocess",
        "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell", "os.system", "os.popen", "os.fork", "os.posix_spawn",
    },
    ("transport/", "sandbox/ports.py"): {
        "socket", "paramiko", "urllib.request", "http.client", "asyncio.open_connection",
    },
    ("ui/",): {"print", "sys.stdout.write", "sys.stderr.write", "typer.echo", "typer.secho"},
}  # fmt: skip
"""For each door, the modules and calls that only those behind it use."""
HEAVY = {"torch", "paramiko", "jinja2", "rich", "tenacity", "psutil", "filelock", "matplotlib"}
HEAVY_MODULES = "rv.transport.paramiko_"
"""What these names begin with loads paramiko, so that they too are imported where they are used."""


def violations(name: str, source: str) -> Iterator[str]:
    """Say what a module of this name does against the rules."""
    tree = ast.parse(source)
    if name.startswith("payloads/"):
        yield from (f"payload imports {each}" for each in imports(tree) if top(each) == "rv")
        yield from (f"no module {each} beside payloads" for each in absent(tree))
        return
    yield from (f"relative import {each}" for each in imports(tree) if each.startswith("."))
    yield from imports_that_go_up(name, tree)
    used = set(imports(tree)) | set(calls(tree))
    for behind, forbidden in DOORS.items():
        if not name.startswith(behind):
            yield from (f"{each} outside {behind}" for each in sorted(forbidden & used))
    if name.startswith(PURE):
        yield from (
            f"impure import {each}" for each in imports(tree) if top(each) in IMPURE_MODULES
        )
        yield from (f"impure call {each}" for each in calls(tree) if last(each) in IMPURE_CALLS)
    if name.startswith("transport/paramiko_"):
        return
    at_top = ast.Module(body=[each for each in tree.body if is_import(each)], type_ignores=[])
    yield from (f"heavy import {each}" for each in imports(at_top) if is_heavy(each))


def imports_that_go_up(name: str, tree: ast.AST) -> Iterator[str]:
    """Name the imports of parts that a module's part does not stand on."""
    part = name.partition("/")[0].removesuffix(".py")
    allowed = {part, *STANDS_ON.get(part, "").split()} | GROUND
    for module in imports(tree):
        if top(module) == "rv" and "." in module and module.split(".")[1] not in allowed:
            yield f"{part} imports {module}"


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported, wherever: `from rv import x` counts as rv.x."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def absent(tree: ast.AST) -> Iterator[str]:
    """Modules that are imported from a package of the payloads, which lacks them.

    mypy does not know where payloads lie on a cluster, so that it can't say it.
    """
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and (PACKAGE / "payloads" / top(node.module or "")).is_dir()
        ):
            module = PACKAGE.joinpath("payloads", *(node.module or "").split("."))
            if not module.is_dir() and not module.with_suffix(".py").is_file():
                yield node.module or ""


def calls(tree: ast.AST) -> Iterator[str]:
    """Every call, by its name as written: `print`, `time.time`, `datetime.now`."""
    return (ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))


def is_import(node: ast.AST) -> bool:
    """Whether a statement imports something."""
    return isinstance(node, ast.Import | ast.ImportFrom)


def is_heavy(module: str) -> bool:
    """Whether it takes long to load."""
    return top(module) in HEAVY or module.startswith(HEAVY_MODULES)


def top(name: str) -> str:
    """The first part of a dotted name."""
    return name.partition(".")[0]


def last(name: str) -> str:
    """The last part of a dotted name."""
    return name.rpartition(".")[2]


MODULES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_keeps_the_rules(name):
    """Every module of rv, payloads too."""
    assert not list(violations(name, MODULES[name].read_text(encoding="utf-8")))


def test_every_part_has_its_place():
    """A new folder or module beside them is to be given one here."""
    parts = {name.partition("/")[0].removesuffix(".py") for name in MODULES}
    assert parts - {"payloads"} == set(STANDS_ON) | GROUND - {"__version__"}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("models/job.py", "from rv.slurm import jobs"),
        ("planner/plan.py", "def f():\n    import rv.slurm.jobs"),
        ("files.py", "from rv import models"),
        ("race/watch.py", "from .stage import stage"),
        ("new_part.py", "from rv.models.plan import Plan"),
        ("workflow/launch.py", "from rv.accept import baselines"),
        ("race/watch.py", "from rv.accept import baselines"),
        ("slurm/probe.py", "if TYPE_CHECKING:\n    from rv.race.watch import Watch"),
        ("planner/plan.py", "from datetime import datetime\ndatetime.now()"),
        ("planner/plan.py", "import os"),
        ("render/script.py", "from time import time"),
        ("models/plan.py", "Path('x').read_text()"),
        ("race/watch.py", "import subprocess"),
        ("race/watch.py", "from asyncio import subprocess"),
        ("api/race.py", "import asyncio\nasyncio.create_subprocess_exec('x')"),
        ("api/race.py", "from rv.cli.caller import umask"),
        ("sandbox/boot.py", "import os\nos.posix_spawn('x', [], {})"),
        ("sandbox/processes.py", "import socket"),
        ("slurm/probe.py", "def f():\n    import paramiko"),
        ("cli/up.py", "print('x')"),
        ("workflow/launch.py", "import sys\nsys.stdout.write('x')"),
        ("cli/up.py", "import typer\ntyper.echo('x')"),
        ("ui/tables.py", "from rich.table import Table"),
        ("transport/ssh.py", "import paramiko"),
        ("transport/ssh.py", "from rv.transport.paramiko_link import Link"),
        ("payloads/train.py", "def f():\n    import rv.errors"),
        ("payloads/_harness/files.py", "from rv import files"),
        ("payloads/train.py", "from _harness.left_behind import anything"),
    ],
)
def test_what_breaks_a_rule_is_found(name, source):
    """Wherever in the module it stands."""
    assert list(violations(name, source))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("transport/local.py", "import subprocess, socket"),
        ("sandbox/ports.py", "import socket"),
        ("transport/paramiko_link.py", "import paramiko"),
        ("ui/tables.py", "def f():\n    from rich.table import Table\n    print(Table())"),
        ("planner/plan.py", "from rv.models.plan import Plan\nfrom rv.errors import RvError"),
        ("payloads/train.py", "import os, subprocess\nprint(os.environ)"),
        ("payloads/train.py", "from _harness.files import write\nfrom torch.nn import Linear"),
    ],
)
def test_what_keeps_the_rules_is_not_found(name, source):
    """The doors are open to those behind them."""
    assert not list(violations(name, source))
