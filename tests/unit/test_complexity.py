"""No function, method or class of rv is more complex than ten, as radon counts."""

from pathlib import Path

import pytest
from radon.complexity import cc_visit

PACKAGE = Path(__file__).parents[2] / "rv"
MOST = 10


def too_complex(source: str) -> list[str]:
    """Name the blocks of a module that have more branches than a reader can hold."""
    blocks = [
        inner for block in cc_visit(source) for inner in (block, *getattr(block, "closures", ()))
    ]
    return [f"{block.name} ({block.complexity})" for block in blocks if block.complexity > MOST]


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_blocks_are_simple(path):
    """Name a step, use a table, return early."""
    assert not too_complex(path.read_text(encoding="utf-8"))


def test_a_dense_block_is_found():
    """Boolean operators, comprehensions and conditional expressions count."""
    plain = "def f(x):\n    return x" + " and x" * 9
    assert not too_complex(plain)
    assert too_complex(plain + " and x")
    assert too_complex(
        "class C:\n    def f(self, x):\n        return [a for a in x if a" + " or a" * 9 + "]"
    )
