"""What rv printed with --json, held against docs/rv.schema.json."""

import json
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

SCHEMA: Final = json.loads(
    (Path(__file__).parents[1] / "docs" / "rv.schema.json").read_text(encoding="utf-8")
)
DEFINITIONS: Final[dict[str, Any]] = SCHEMA["$defs"]


def complaints(kind: str, value: object) -> list[str]:
    """Say what is wrong with an object of a kind; one field more than the schema has is, too."""
    schema = _closed({**SCHEMA, "$ref": f"#/$defs/{kind}"})
    errors = Draft202012Validator(schema).iter_errors(value)
    return [f"{error.json_path}: {error.message}" for error in errors]


def _closed(schema: Any) -> Any:
    """Return the schema without room for other fields. Published, it has it: fields are added."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    return {**closed, "additionalProperties": False} if "required" in schema else closed
