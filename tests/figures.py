"""Print figures of one or more checkouts side by side: size, complexity, repeated definitions, start-up.

    python tests/figures.py                      # this checkout
    git worktree add ../before 326de08
    python tests/figures.py ../before .          # before and after

Complexity is radon's cyclomatic complexity. Nothing of the checkouts is imported, but for the dry
run, which a process of its own makes with each checkout's code and this interpreter's packages.
"""

import ast
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from radon.complexity import cc_visit

COMPLEXITY_LIMIT = 10
SMALL_MODULE_LINES = 50
VAGUE_NAMES = {"found", "known", "told"}

VERDICTS = {"PASS", "WARN", "FAIL", "SKIP", "ERROR"}
PAYLOADS = {
    "check", "membw", "allreduce", "train", "train_fsdp", "dataload", "ckpt_cycle",
    "alloc_stress", "stress", "tensor_service", "storage_net",
}  # fmt: skip
CODES = {
    "wrong_result", "peer_outlier", "throttled_thermal", "too_hot", "below_floor", "regression",
    "below_reference", "jitter", "above_peak", "gpu_mismatch", "no_gpu", "not_run", "timeout",
    "preempted", "no_result",
}  # fmt: skip

DRY_RUN = """
import sys
from rv.__main__ import main
snapshot = "tests/data/snapshots/campus.json"
sys.argv = ["rv", "up", "--gpu", "4", "--dry-run", "--snapshot", snapshot]
try:
    main()
except SystemExit:
    pass
print("MODULES", *(name for name in sys.modules if name.split(".")[0] == "rv"))
"""


def figures(checkout: Path) -> dict[str, float]:
    """Return the figures of one checkout, by their names in the table."""
    texts = {
        path: path.read_text(encoding="utf-8") for path in sorted((checkout / "rv").rglob("*.py"))
    }
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lengths = [text.count("\n") for text in texts.values()]
    total = sum(lengths)
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    return {
        "modules": len(texts),
        "lines": total,
        "median module, lines": statistics.median(lengths),
        f"modules of {SMALL_MODULE_LINES} lines or fewer": sum(
            length <= SMALL_MODULE_LINES for length in lengths
        ),
        "modules over 400 lines": sum(length > 400 for length in lengths),
        f"blocks over complexity {COMPLEXITY_LIMIT}": len(list(complex_blocks(checkout))),
        "functions over 50 lines": sum(map(is_long, nodes)),
        "comprehensions per 1,000 lines": per_thousand(nodes, is_comprehension, total),
        "conditional expressions per 1,000 lines": per_thousand(nodes, is_conditional, total),
        "names found, known, told": sum(map(is_vaguely_named, nodes)),
        "repeated definitions of the verdicts": repeated(trees, VERDICTS, least=len(VERDICTS)),
        "repeated definitions of fault codes": repeated(trees, CODES, least=6),
        "repeated definitions of the catalogue": repeated(trees, PAYLOADS, least=8),
        "modules that a dry run loads": len(modules_of_a_dry_run(checkout)),
    }


def complex_blocks(checkout: Path, limit: int = COMPLEXITY_LIMIT) -> Iterator[str]:
    """Name every function, method and class of rv above the limit: `path:line name complexity`."""
    for path in sorted((checkout / "rv").rglob("*.py")):
        for block in cc_visit(path.read_text(encoding="utf-8")):
            for part in (block, *getattr(block, "closures", ())):
                if part.complexity > limit:
                    place = path.relative_to(checkout)
                    yield f"{place}:{part.lineno} {part.name} {part.complexity}"


def per_thousand(nodes: list[ast.AST], counts: Callable[[ast.AST], bool], lines: int) -> float:
    """Count nodes, for each 1,000 lines."""
    return round(1000 * sum(map(counts, nodes)) / lines, 1)


def is_comprehension(node: ast.AST) -> bool:
    """Tell a comprehension or a generator expression."""
    return isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp)


def is_conditional(node: ast.AST) -> bool:
    """Tell `a if b else c`."""
    return isinstance(node, ast.IfExp)


def is_long(node: ast.AST) -> bool:
    """Tell a function of more than 50 lines."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return (node.end_lineno or node.lineno) - node.lineno + 1 > 50


def is_vaguely_named(node: ast.AST) -> bool:
    """Tell an assignment to a name that does not say what it holds."""
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE_NAMES


def repeated(trees: dict[Path, ast.Module], words: set[str], *, least: int) -> int:
    """Count the definitions beyond the first: statements at the top of a module with the words."""
    definitions = sum(
        len(words & words_of(statement)) >= least
        for tree in trees.values()
        for statement in tree.body
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.ClassDef)
    )
    return max(0, definitions - 1)


def words_of(statement: ast.stmt) -> set[str]:
    """Return the words of all texts in a statement, and the names that it assigns."""
    if isinstance(statement, ast.ClassDef):  # an enumeration; a docstring is no definition
        assigned = [node for node in statement.body if isinstance(node, ast.Assign)]
        return {word for node in assigned for word in words_of(node)}
    texts = [
        node.value
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return {word for text in texts for word in text.split()}


def modules_of_a_dry_run(checkout: Path) -> set[str]:
    """Name the modules of rv that `rv up --dry-run` on a saved snapshot loads."""
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
    done = subprocess.run(
        [sys.executable, "-c", DRY_RUN],
        cwd=checkout, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stdout.rpartition("MODULES ")[2].split())


def main(checkouts: list[Path]) -> None:
    """Print the table: a row a figure, a column a checkout."""
    columns = [figures(checkout) for checkout in checkouts]
    width = max(map(len, columns[0]))
    print(" " * width, *(f"{checkout!s:>12}" for checkout in checkouts))
    for name in columns[0]:
        print(f"{name:{width}}", *(f"{column[name]:>12,}" for column in columns))


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]] or [Path()])
