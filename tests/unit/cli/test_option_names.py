"""Options are spelt as documented whatever typer makes of a metavar: 0.27 took it for the name."""

import ast
from pathlib import Path

import pytest

CLI = Path(__file__).parents[3] / "rv" / "cli"


def options(path: Path) -> list[tuple[str, ast.Call]]:
    """Each annotated name with the call that makes it an option."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = node.arg if isinstance(node, ast.arg) else None
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        if name is None or not isinstance(node, ast.arg | ast.AnnAssign) or not node.annotation:
            continue
        calls = [call for call in ast.walk(node.annotation) if isinstance(call, ast.Call)]
        found += [
            (name, call) for call in calls if ast.unparse(call.func) in ("Option", "typer.Option")
        ]
    return found


@pytest.mark.parametrize("path", sorted(CLI.glob("*.py")), ids=lambda path: path.stem)
def test_an_option_whose_metavar_is_its_name_is_named_in_full(path: Path) -> None:
    unnamed = [
        name
        for name, call in options(path)
        for keyword in call.keywords
        if keyword.arg == "metavar"
        and ast.literal_eval(keyword.value).lower() == name.lower()
        and not call.args
    ]
    assert unnamed == []
