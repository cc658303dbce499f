"""No block of rv is more complex than ten, as radon counts, and none is too long to be read."""

import ast
from pathlib import Path

import pytest
from radon.complexity import cc_visit

PACKAGE = Path(__file__).parents[2] / "rv"
MOST = 10
FUNCTION_LINES = 50
MODULE_LINES = 400


def too_complex(source: str) -> list[str]:
    """Name the blocks of a module that have more branches than a reader can hold."""
    blocks = [
        inner for block in cc_visit(source) for inner in (block, *getattr(block, "closures", ()))
    ]
    return [f"{block.name} ({block.complexity})" for block in blocks if block.complexity > MOST]


def too_long(source: str) -> list[str]:
    """Name the functions of a module that are too long, and the module where it is."""
    functions = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = [each for each in functions if each.end_lineno - each.lineno >= FUNCTION_LINES]
    whole = ["the module"] if source.count("\n") > MODULE_LINES else []
    return [each.name for each in long] + whole


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_blocks_are_simple(path):
    """Name a step, use a table, return early."""
    source = path.read_text(encoding="utf-8")
    assert not too_complex(source)
    assert not too_long(source)


def test_a_dense_block_is_found():
    """Boolean operators, comprehensions and conditional expressions count."""
    plain = "def f(x):\n    return x" + " and x" * 9
    assert not too_complex(plain)
    assert too_complex(plain + " and x")
    assert too_complex(
        "class C:\n    def f(self, x):\n        return [a for a in x if a" + " or a" * 9 + "]"
    )


def test_a_long_block_is_found():
    """From its `def` on, and the blank lines too."""
    longest = "def f():\n" + "    x = 1\n" * (FUNCTION_LINES - 1)
    assert not too_long(longest)
    assert too_long(longest + "    x = 1\n") == ["f"]
    assert too_long("x = 1\n" * (MODULE_LINES + 1)) == ["the module"]
