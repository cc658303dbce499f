"""What a test reaches, read from its source: the words it uses, and the modules of rv it imports."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
Import = tuple[str, str]


def reached(file: str, test: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the words and the modules of rv that a test function reaches.

    Words are names, attributes and the words of strings, in the test and in all functions,
    fixtures and constants of the tests that it uses. Modules are those from which these are
    imported, those of the payloads by their full names.
    """
    words: set[str] = set()
    modules: set[str] = set()
    pending, visited = [(file, test)], set[tuple[str, str]]()
    while pending:
        place = pending.pop()
        if place in visited:
            continue
        visited.add(place)
        file, name = place
        if name in _definitions(file):
            used = _names(_definitions(file)[name])
            words |= used | _words(_definitions(file)[name])
            pending += [(file, other) for other in used]
        elif name in _imports(file):
            module, original = _imports(file)[name]
            modules |= {module, f"{module}.{original}"}
            if module.startswith("tests."):
                pending.append((_path(module), original))
        elif (fixtures := _conftest(file)) and fixtures != file:
            pending.append((fixtures, name))
    return frozenset(words), frozenset(map(_full_name, modules))


@cache
def imported_by(module: str) -> frozenset[str]:
    """Return a module of rv and all modules of rv that it imports, directly or not."""
    visited: set[str] = set()
    pending = [module]
    while pending:
        name = pending.pop()
        if name in visited or not _path(name):
            continue
        visited.add(name)
        for origin, original in _all_imports(_path(name)):
            pending += [_full_name(origin), _full_name(f"{origin}.{original}")]
    return frozenset(visited)


@cache
def _path(module: str) -> str:
    """Return a module's file; "" where it is none of rv and its tests."""
    base = module.replace(".", "/")
    paths = (f"{base}.py", f"{base}/__init__.py")
    return next((path for path in paths if (ROOT / path).is_file()), "")


@cache
def _full_name(module: str) -> str:
    """Payloads import each other by names that begin in their own folder."""
    full = f"rv.payloads.{module}"
    return full if _path(full) else module


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


@cache
def _definitions(file: str) -> dict[str, ast.AST]:
    found: dict[str, ast.AST] = {}
    for node in _tree(file).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {name: node for target in targets for name in _names(target)}
    return found


@cache
def _imports(file: str) -> dict[str, Import]:
    found: dict[str, Import] = {}
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.ImportFrom):
            found |= {a.asname or a.name: (node.module or "", a.name) for a in node.names}
    return found


@cache
def _all_imports(file: str) -> frozenset[Import]:
    plain = {
        (alias.name, "")
        for node in ast.walk(_tree(file))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    return frozenset(plain | set(_imports(file).values()))


def _conftest(file: str) -> str:
    path = str(Path(file).with_name("conftest.py"))
    return path if (ROOT / path).is_file() else ""


@cache
def _names(node: ast.AST) -> frozenset[str]:
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return frozenset(names | {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)})


@cache
def _words(node: ast.AST) -> frozenset[str]:
    words = {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            words.update(re.findall(r"\w+", inner.value))
    return frozenset(words)
