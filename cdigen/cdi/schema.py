"""The check of a document against the JSON Schema of spec files, in this process or in a child process.

The rules in ``rules`` are at least as strict as the schema. The tests prove this. Therefore a command that
writes a spec checks only the rules. ``cdigen validate`` also checks the schema. The daemon also checks the
schema before it writes new content.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache

from cdigen.cdi.rules.rulebook import finding
from cdigen.model.errors import StoreError
from cdigen.model.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from jsonschema import Draft202012Validator

    from cdigen.host.childprocess import ChildResult

# jsonschema takes 0.06 ms for each device node or mount, and twice as long on a busy machine.
MAX_NODES_AND_MOUNTS = 2000
# Seconds. jsonschema takes about 2 s for 1,000 GPUs with three names each.
DEADLINE_S = 20.0

# In a wheel, the folder of the schemas is inside the package (pyproject.toml, force-include). In a checkout,
# the folder is next to the package.
_HERE = os.path.dirname(os.path.realpath(__file__))
_FOLDERS = tuple(os.path.normpath(f"{_HERE}/{up}/schemas") for up in ("..", "../.."))
_NAME = "cdi.schema.json"


def load_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema in the file NAME, such as ``cdi.schema.json``.

    Raise StoreError if the installation does not contain the file.
    """
    with open(_file(name), encoding="utf-8") as file:
        schema: dict[str, Any] = json.load(file)
    return schema


def _file(name: str) -> str:
    for folder in _FOLDERS:
        if os.path.isfile(f"{folder}/{name}"):
            return f"{folder}/{name}"
    raise StoreError(f"the schema {name} is not in {' or '.join(_FOLDERS)}", hint="install cdigen again")


def nodes_and_mounts(document: dict[str, Any]) -> int:
    """Return the number of device nodes and mounts in DOCUMENT; DOCUMENT must break no rule."""
    owners = (document, *document["devices"])
    every = [owner.get("containerEdits", {}) for owner in owners]
    return sum(len(edits.get(field, ())) for edits in every for field in ("deviceNodes", "mounts"))


def check_schema(document: object) -> tuple[Finding, ...]:
    """Return the findings of the JSON Schema of spec files for DOCUMENT, a parsed document."""
    # The daemon imports this module only in a child process.
    from cdigen.cdi.schema_child import schema_errors  # noqa: PLC0415

    return tuple(finding("schema", *error) for error in schema_errors(_validator(), document))


@lru_cache(maxsize=1)
def _validator() -> Draft202012Validator:
    """Return the validator, which is cached, because ``cdigen validate`` can check a thousand files."""
    from cdigen.cdi.schema_child import validator_of  # noqa: PLC0415

    return validator_of(load_schema(_NAME))


def check_in_child(
    content: bytes, *, deadline_s: float = DEADLINE_S, child: tuple[str, ...] | None = None
) -> tuple[Finding, ...]:
    """Return the findings of the schema for CONTENT (a spec as JSON), from a child process.

    The child process has at most DEADLINE_S seconds. CHILD is the command of the child process. The path of
    the schema is added to the command. By default, the command is this Python with schema_child.py. The
    function raises no errors. If the child process fails, the finding is only a warning, because CONTENT
    breaks no rule.
    """
    import sys  # noqa: PLC0415 - only this function needs the module

    from cdigen.host.childprocess import run  # noqa: PLC0415 - most runs of cdigen start no child process

    # With -I, the environment and the current folder of this process do not change the imports.
    command = child or (sys.executable, "-I", f"{_HERE}/schema_child.py")
    try:
        result = run((*command, _file(_NAME)), deadline_s=deadline_s, stdin=content)
    except (OSError, StoreError) as error:
        return (_unchecked(f"the child process cannot be started: {error}"),)
    return _child_findings(result, deadline_s)


def _child_findings(result: ChildResult, deadline_s: float) -> tuple[Finding, ...]:
    if result.by == "deadline":
        return (_unchecked(f"the child process took more than {deadline_s:g} s and was ended"),)
    last = f": {result.last_stderr_line}" if result.last_stderr_line else ""
    if result.by == "flood" or result.status != 0:
        how = "printed too much output" if result.by == "flood" else f"ended with status {result.status}"
        return (_unchecked(f"the child process {how}{last}"),)
    try:
        return tuple(
            finding("schema", str(path), str(message)) for path, message in json.loads(result.output)
        )
    except (ValueError, TypeError):
        return (_unchecked(f"the output of the child process is invalid{last}"),)


def _unchecked(why: str) -> Finding:
    return Finding(
        severity="warning",
        rule="schema-unchecked",
        path="$",
        message=f"the spec was checked with the rules, but not with the JSON Schema: {why}",
        hint="run 'cdigen validate' on the file, and check that jsonschema is installed",
    )
