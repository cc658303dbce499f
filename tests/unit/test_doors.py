"""The architecture: who may import what. Read from the source, so nothing is run.

`design.md` section 3 in short: `cli → workflow → slurm, planner, render, race → models`, with the
transport handed in. Only the transport and the sandbox start processes, only `ui` prints, and the
planner does no I/O and reads no clock.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "rv"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "payloads" not in path.parts)

# For each part of rv, the parts that it may import from, beside itself and `errors`.
MAY_IMPORT = {
    "errors": set(),
    "models": set(),
    "bundle": set(),
    "files": set(),
    "planner": {"models", "bundle"},
    "render": {"models"},
    "transport": set(),
    "slurm": {"models", "transport"},
    "race": {"models", "transport", "slurm", "render"},
    "avoided_nodes": {"slurm", "bundle"},
    # Acceptance is built on the launcher, which knows nothing of it but which nodes to avoid.
    "accept": {
        "models",
        "slurm",
        "planner",
        "bundle",
        "transport",
        "race",
        "workflow",
        "avoided_nodes",
        "payloads",  # its contract: tests/unit/payloads/test_contract.py
    },
    "workflow": {
        "models",
        "avoided_nodes",
        "transport",
        "slurm",
        "planner",
        "render",
        "race",
        "bundle",
        "sandbox",
    },
    "ui": {"models", "slurm", "race", "accept", "avoided_nodes", "payloads"},
    "sandbox": {"models"},
    "cli": {
        "models",
        "transport",
        "slurm",
        "race",
        "workflow",
        "ui",
        "bundle",
        "sandbox",
        "accept",
        "avoided_nodes",
        "payloads",
    },
    "__init__": set(),
    "__main__": {"cli"},
}
PROCESSES = ("transport/", "sandbox/processes.py")
SOCKETS = ("transport/", "sandbox/ports.py")


def name_of(path: Path) -> str:
    """A module as tests name it."""
    return str(path.relative_to(PACKAGE))


def part_of(path: Path) -> str:
    """The part of rv that a module belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """Every module that this one imports, wherever in it: `from rv import x` counts as rv.x."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)} has a relative import"
            yield f"{node.module}"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def calls(path: Path) -> Iterator[str]:
    """Every call, by its name as written: `print`, `time.time`, `datetime.now`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def each(*parts: str):
    """The modules of some parts, or all, as test cases."""
    chosen = [path for path in MODULES if not parts or part_of(path) in parts]
    assert chosen
    return pytest.mark.parametrize("path", chosen, ids=name_of)


@each()
def test_imports_go_one_way(path):
    """The arrow of the design; a module of a new part has to be given its place here."""
    allowed = MAY_IMPORT[part_of(path)] | {part_of(path), "errors", "files", "__version__"}
    inner = {name.split(".")[1] for name in imports(path) if name.startswith("rv.")}
    assert inner <= allowed, f"{name_of(path)} may not import rv.{inner - allowed}"


@each()
def test_only_the_transport_and_the_sandbox_start_processes(path):
    """One door, so that it can be watched, and mistreated in tests."""
    starts = {"subprocess", "multiprocessing", "pty", "asyncio", "asyncio.subprocess"}
    if not name_of(path).startswith(PROCESSES):
        assert not starts & set(imports(path))
        assert not {"os.system", "os.popen", "os.fork", "os.posix_spawn"} & set(calls(path))
    if not name_of(path).startswith(SOCKETS):
        assert not {"socket", "paramiko", "urllib.request", "http.client"} & set(imports(path))


@each("planner", "render", "models")
def test_the_planner_and_the_renderer_are_pure(path):
    """No clock, no files, no environment, no chance: the same snapshot gives the same plan."""
    impure = {"os", "time", "random", "secrets", "tempfile", "shutil", "platform", "platformdirs"}
    assert not impure & {name.split(".")[0] for name in imports(path)}
    for call in calls(path):
        assert call.rpartition(".")[2] not in {"now", "utcnow", "today", "open", "input"}, call
        if name_of(path) != "planner/documents.py":  # reads the bundled YAML before any planning
            assert call.rpartition(".")[2] not in {"read_text", "read_bytes", "write_text"}, call


@each()
def test_only_ui_prints(path):
    """stdout is the answer and stderr the talk; nobody else may write to either."""
    if part_of(path) == "ui":
        return
    writes = {"print", "sys.stdout.write", "sys.stderr.write", "typer.echo", "typer.secho"}
    assert not writes & set(calls(path))


@each()
def test_what_is_heavy_is_imported_where_it_is_used(path):
    """Never at the top of a module: `rv --help` pays for it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    heavy = {"torch", "paramiko", "jinja2", "rich", "tenacity"}
    for node in tree.body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not heavy & {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", sorted((PACKAGE / "payloads").rglob("*.py")), ids=name_of)
def test_payloads_stand_alone(path):
    """They run where rv is not installed: the standard library, torch, and what lies beside them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    named = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    named += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    assert not [name for name in named if name.split(".")[0] == "rv"]
