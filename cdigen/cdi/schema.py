"""The JSON Schemas of the project, and the second judge of a document: the schema of spec files.

``cdigen validate`` and the tests ask both this judge and ``cdigen.cdi.rules.document_rules``; all others
only the rules. Whether a document is valid is found out by the schema compiled to functions
(``cdigen.cdi.schema_compiler``); what is wrong with one that is not, jsonschema says.
"""

from __future__ import annotations

import json
from pathlib import Path

from cdigen.cdi.rules.rulebook import finding
from cdigen.cdi.schema_compiler import compiled
from cdigen.model.errors import StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.cdi.schema_compiler import Judge
    from cdigen.model.findings import Finding

# In a wheel the schemas lie inside the package, in a checkout beside it (pyproject.toml, force-include).
_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDERS = (_PACKAGE / "schemas", _PACKAGE.parent / "schemas")

# The schema of spec files, compiled when it is first asked for.
_is_good: list[Judge] = []


def load_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema in the file NAME, such as ``cdi.schema.json``.

    StoreError where the installation lacks it.
    """
    for folder in _FOLDERS:
        file = folder / name
        if file.is_file():
            schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return schema
    places = " nor in ".join(str(folder) for folder in _FOLDERS)
    raise StoreError(f"the schema {name} is not in {places}", hint="install cdigen again")


def check_schema(document: object) -> tuple[Finding, ...]:
    """Return what the schema of spec files finds wrong with a parsed JSON DOCUMENT; nothing if it is valid.

    DOCUMENT is at most ``MAX_DEPTH`` deep, as ``parse_document`` sees to: jsonschema recurses.
    """
    if not _is_good:
        _is_good.append(compiled(load_schema("cdi.schema.json")))
    return () if _is_good[0](document) else schema_errors(document)


def schema_errors(document: object) -> tuple[Finding, ...]:
    """Return what jsonschema, whose import takes 72 ms, finds wrong with a parsed JSON DOCUMENT."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415 -- only where something is wrong

    validator = Draft202012Validator(load_schema("cdi.schema.json"))
    errors = sorted(validator.iter_errors(document), key=lambda error: error.json_path)
    return tuple(finding("schema", error.json_path, _shortened(error.message)) for error in errors)


def _shortened(message: str, limit: int = 200) -> str:
    """Return MESSAGE, which quotes the whole value, cut in its middle."""
    half = limit // 2
    return message if len(message) <= limit else f"{message[:half]} ... {message[-half:]}"
