"""The contract of payloads: defined once, of the standard library alone, under both of its names."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from rv.accept.results import WORST_FIRST as STATUSES
from rv.accept.results import Status
from rv.payloads.contract import catalogue, codes, schema, verdicts

RV = Path(verdicts.__file__).parents[2]
CONTRACT = RV / "payloads" / "contract"
MODULES = sorted(CONTRACT.glob("*.py"))
EVERY = sorted(path for path in RV.rglob("*.py") if "_bundle" not in path.parts)


def imports(path: Path) -> list[tuple[int, str]]:
    """The level and the name of each import of a module; of `from x import y` x."""
    found = list[tuple[int, str]]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.level, node.module or ""))
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_the_contract_needs_the_standard_library_alone(path: Path) -> None:
    for level, name in imports(path):
        assert level == 1 or name.split(".")[0] in sys.stdlib_module_names, name


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_both_names_import_it(path: Path) -> None:
    """rv says `rv.payloads.contract.X`, a payload that lies in its folder on a cluster `contract.X`."""
    name = f"contract.{path.stem}".removesuffix(".__init__")
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, '.'); import {name}"],
        cwd=CONTRACT.parent, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_rv_imports_the_contract_only() -> None:
    """What payloads are made of is none of rv's business."""
    for path in EVERY:
        if "payloads" not in path.relative_to(RV).parts:
            for _, name in imports(path):
                inside = name.split(".")[:2] == ["rv", "payloads"]
                assert not inside or name.startswith("rv.payloads.contract"), (path, name)


def strings(node: ast.AST) -> list[str]:
    """The string constants of a display: of a tuple, list or set its items, of a dict its keys."""
    items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
    return [item.value for item in items if isinstance(item, ast.Constant)
            and isinstance(item.value, str)]  # fmt: skip


def displays(path: Path) -> list[list[str]]:
    kinds = (ast.Tuple, ast.List, ast.Set, ast.Dict)
    return [
        strings(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)
    ]


def test_verdicts_have_one_order() -> None:
    every = set(verdicts.WORST_FIRST)
    seconds = [path for path in EVERY for names in displays(path)
               if path != CONTRACT / "verdicts.py" and every <= set(names)]  # fmt: skip
    assert seconds == []
    assert tuple(STATUSES) == verdicts.WORST_FIRST
    assert {status.value for status in Status} == every == set(verdicts.EXIT_CODES)


def test_codes_have_one_table() -> None:
    """No other mapping has more than a few codes as its keys."""
    for path in EVERY:
        for names in displays(path) if path != CONTRACT / "codes.py" else ():
            assert len(set(names) & set(codes.CODES)) <= 4, (path, names)


def test_the_catalogue_stands_once() -> None:
    """Nowhere else are payloads listed with what they need, or for how long they run."""
    names = {payload.name for payload in catalogue.PAYLOADS}
    for path in EVERY:
        for listed in displays(path) if path != CONTRACT / "catalogue.py" else ():
            assert len(set(listed) & names) <= 4, (path, listed)
    assert len(names) == len(catalogue.PAYLOADS)


def test_nvidia_smi_is_called_in_one_module() -> None:
    """Of the payloads; the sandbox has one of its own making."""
    for path in (RV / "payloads").rglob("*.py"):
        if path != CONTRACT / "nvidia.py":
            assert not [names for names in displays(path) if "nvidia-smi" in names], path


def test_every_payload_runs_in_every_profile_within_its_limit() -> None:
    for payload in catalogue.PAYLOADS:
        assert payload.profiles == catalogue.PROFILES
        for step in payload.steps.values():
            assert 0 < step.expected_s < step.timeout_s
            if "--duration" in step.arguments:
                duration = float(step.arguments[step.arguments.index("--duration") + 1])
                assert duration < step.timeout_s


def test_a_model_other_than_asked_for_makes_no_node_bad() -> None:
    """Partitions are mixed: the node gives what it has. Only what is broken is left out."""
    assert codes.CODES["gpu_mismatch"].action != codes.EXCLUDE
    assert codes.CODES["gpu_mismatch"].fault == codes.CONFIG
    excluded = [code for code in codes.CODES.values() if code.action == codes.EXCLUDE]
    assert all(code.fault in (codes.HARDWARE, codes.FABRIC) for code in excluded)


def test_every_payload_says_its_faults() -> None:
    """Those that the launcher offers are those of the files that it ships."""
    scripts = {path.stem for path in CONTRACT.parent.glob("*.py")} - {"__init__"}
    assert set(catalogue.FAULTS) == scripts


def test_who_else_is_on_the_gpu_is_said_before_what_it_slowed() -> None:
    """Seen on two H100s: the last line named a rate below the reference alone."""
    where = {"host": "n1", "device": "cuda:1"}
    slow = {**where, "status": "FAIL", "code": "below_reference", "class": "HARDWARE"}
    slow["reason"] = "half as fast"
    busy = {**where, "status": "WARN", "code": "gpu_busy", "class": "CONTENTION"}
    busy["reason"] = "python3 of user"

    of_both = schema.verdict_of(schema.explained([slow, busy]))
    of_slow = schema.verdict_of(schema.explained([slow]))

    assert of_both == ("FAIL", "python3 of user; half as fast")
    assert of_slow == ("FAIL", "half as fast")
