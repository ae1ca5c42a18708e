"""Check a document against the JSON Schema of spec files, here or in a child process.

The rules of ``rules`` are at least as strict, which tests prove, so a single command that writes a spec
rests on them alone. ``cdigen validate`` asks the schema as well, and the daemon before it writes new content.
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

# jsonschema takes 0.06 ms for each, on a busy machine twice that.
MAX_NODES_AND_MOUNTS = 2000
# 1,000 GPUs under three names each take it some 2 s.
DEADLINE_S = 20.0

# In a wheel the schemas lie inside the package, in a checkout beside it (pyproject.toml, force-include).
_HERE = os.path.dirname(os.path.realpath(__file__))
_FOLDERS = tuple(os.path.normpath(f"{_HERE}/{up}/schemas") for up in ("..", "../.."))
_NAME = "cdi.schema.json"


def load_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema in the file NAME, such as ``cdi.schema.json``.

    StoreError where the installation lacks it.
    """
    with open(_file(name), encoding="utf-8") as file:
        schema: dict[str, Any] = json.load(file)
    return schema


def _file(name: str) -> str:
    for folder in _FOLDERS:
        if os.path.isfile(f"{folder}/{name}"):
            return f"{folder}/{name}"
    raise StoreError(f"the schema {name} is not in {' nor in '.join(_FOLDERS)}", hint="install cdigen again")


def nodes_and_mounts(document: dict[str, Any]) -> int:
    """Return how many device nodes and mounts are in DOCUMENT, which breaks no rule."""
    owners = (document, *document["devices"])
    every = [owner.get("containerEdits", {}) for owner in owners]
    return sum(len(edits.get(field, ())) for edits in every for field in ("deviceNodes", "mounts"))


def check_schema(document: object) -> tuple[Finding, ...]:
    """Return what the schema of spec files finds wrong with DOCUMENT, a parsed one."""
    from cdigen.cdi.schema_child import schema_errors  # noqa: PLC0415 -- a daemon has it in a child only

    return tuple(finding("schema", *error) for error in schema_errors(_validator(), document))


@lru_cache(maxsize=1)
def _validator() -> Draft202012Validator:
    """Return the validator, made once: ``cdigen validate`` may be given a thousand files."""
    from cdigen.cdi.schema_child import validator_of  # noqa: PLC0415 -- likewise

    return validator_of(load_schema(_NAME))


def check_in_child(
    content: bytes, *, deadline_s: float = DEADLINE_S, child: tuple[str, ...] | None = None
) -> tuple[Finding, ...]:
    """Return what the schema finds wrong with CONTENT, a spec as JSON; a process of its own looks.

    It has DEADLINE_S at the most. CHILD is the command that is started with the schema's file as its last
    argument; by default this Python with schema_child.py. Never raises: that the schema could not be asked
    is a warning, since CONTENT has passed the rules already.
    """
    import sys  # noqa: PLC0415 -- only here

    from cdigen.host.childprocess import run  # noqa: PLC0415 -- most runs of cdigen start no child

    # -I: no variable and no folder of whoever started this process decides what is imported.
    command = child or (sys.executable, "-I", f"{_HERE}/schema_child.py")
    try:
        result = run((*command, _file(_NAME)), deadline_s=deadline_s, stdin=content)
    except (OSError, StoreError) as error:
        return (_unchecked(f"the process that asks it cannot be started: {error}"),)
    return _answer(result, deadline_s)


def _answer(result: ChildResult, deadline_s: float) -> tuple[Finding, ...]:
    if result.by == "deadline":
        return (_unchecked(f"the process that asks it took more than {deadline_s:g} s and was ended"),)
    last = f": {result.last_stderr_line}" if result.last_stderr_line else ""
    if result.by == "flood" or result.status != 0:
        how = "printed without end" if result.by == "flood" else f"ended with status {result.status}"
        return (_unchecked(f"the process that asks it {how}{last}"),)
    try:
        return tuple(
            finding("schema", str(path), str(message)) for path, message in json.loads(result.output)
        )
    except (ValueError, TypeError):
        return (_unchecked(f"the process that asks it gave no proper answer{last}"),)


def _unchecked(why: str) -> Finding:
    return Finding(
        severity="warning",
        rule="schema-unchecked",
        path="$",
        message=f"the spec was checked by the rules alone, not against its schema: {why}",
        hint="see whether 'cdigen validate' works on the file, and whether jsonschema is installed",
    )
