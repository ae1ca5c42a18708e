"""The JSON Schemas of the project, and the second judge of a document: jsonschema.

``cdigen validate``, the daemon and the tests ask both this judge and ``cdigen.spec.rules``; the
one-shot commands only the rules, since importing jsonschema takes 72 ms.
"""

from __future__ import annotations

import json
from pathlib import Path

from cdigen.model.errors import StoreError
from cdigen.spec.rulebook import finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.model.findings import Finding

# In a wheel the schemas lie inside the package, in a checkout beside it (pyproject.toml, force-include).
_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDERS = (_PACKAGE / "schemas", _PACKAGE.parent / "schemas")


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
    """Return what jsonschema finds wrong with a parsed JSON DOCUMENT; nothing if it is valid.

    DOCUMENT is at most ``MAX_DEPTH`` deep, as ``parse_document`` sees to: jsonschema recurses.
    """
    from jsonschema import Draft202012Validator  # noqa: PLC0415 -- 72 ms

    validator = Draft202012Validator(load_schema("cdi.schema.json"))
    errors = sorted(validator.iter_errors(document), key=lambda error: error.json_path)
    return tuple(finding("schema", error.json_path, _shortened(error.message)) for error in errors)


def _shortened(message: str, limit: int = 200) -> str:
    """Return MESSAGE, which quotes the whole value, cut in its middle."""
    half = limit // 2
    return message if len(message) <= limit else f"{message[:half]} ... {message[-half:]}"
