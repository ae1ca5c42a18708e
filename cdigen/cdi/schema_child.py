"""Program that checks a document against a JSON Schema: ``python -I schema_child.py SCHEMA``.

The document comes on standard input; what is wrong with it is printed as a JSON list of paths and messages.
``schema.check_in_child`` starts it: the import of jsonschema takes 10 MB, which the daemon shall not carry.
Nothing of cdigen is imported here: it is a program of its own.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_ERRORS = 100
MAX_MESSAGE = 200


def schema_errors(schema: dict[str, Any], document: object) -> list[tuple[str, str]]:
    """Return the JSON path and the message of what jsonschema, whose import takes 72 ms, finds wrong.

    DOCUMENT is at most ``MAX_DEPTH`` deep, as ``parse_document`` sees to: jsonschema recurses.
    """
    from itertools import islice  # noqa: PLC0415 -- see schema.py, which imports this module

    from jsonschema import Draft202012Validator  # noqa: PLC0415

    errors = islice(Draft202012Validator(schema).iter_errors(document), MAX_ERRORS)
    return sorted((error.json_path, _shortened(error.message)) for error in errors)


def _shortened(message: str) -> str:
    """Return MESSAGE, which quotes the whole value, cut in its middle."""
    half = MAX_MESSAGE // 2
    return message if len(message) <= MAX_MESSAGE else f"{message[:half]} ... {message[-half:]}"


def main() -> None:
    """Read, check and print."""
    # An installed cdigen has jsonschema beside it, in a folder that -I leaves out.
    sys.path.append(os.path.abspath(__file__).rsplit("/", 3)[0])
    with open(sys.argv[1], encoding="utf-8") as file:
        schema = json.load(file)
    json.dump(schema_errors(schema, json.load(sys.stdin.buffer)), sys.stdout)


if __name__ == "__main__":
    main()
