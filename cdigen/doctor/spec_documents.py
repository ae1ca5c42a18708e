"""Read the spec files of the wanted kinds: ``read_specs``."""

from __future__ import annotations

from cdigen.cdi.library import NEWEST_RELEASE
from cdigen.cdi.loaders.emulation import loaded_document
from cdigen.cdi.parse_cache import parse_and_check
from cdigen.cdi.rules import document_rules
from cdigen.model.findings import errors
from cdigen.model.names import SPEC_SUFFIXES, is_yaml
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.doctor.context import Context
    from cdigen.model.findings import Finding
    from cdigen.runtimes.spec_cache import SpecFile

MAX_SIZE = 16 << 20
# The paths without which an entry of a list has no effect.
_NEEDED = {"mounts": ("hostPath", "containerPath"), "deviceNodes": ("path",), "hooks": ("path",)}


@frozen
class ExaminedSpec:
    """A spec file that defines a wanted kind, and its document.

    ``is_used``: a wanted device comes from it. ``faults`` are what the rules of CDI find in it though
    runtimes load it: then ``document`` is what these make of it, without the entries that lead nowhere.
    """

    path: str
    kind: str
    document: dict[str, Any]
    is_used: bool
    faults: tuple[Finding, ...] = ()


def read_specs(context: Context) -> tuple[ExaminedSpec, ...]:
    """Return the files that define wanted kinds and can be read, and whether wanted names come from them."""
    wanted = set(context.wanted)
    used = {path for view in context.views for name, path in view.devices if name in wanted}
    spec_files: dict[str, SpecFile] = {}
    for view in context.views:
        spec_files |= {file.path: file for file in view.files if file.kind in context.kinds}
    found = []
    for path, file in spec_files.items():
        if not path.endswith(SPEC_SUFFIXES):
            continue
        document, faults = read_document(context, path)
        if document is not None and (path in used or not faults):
            is_used = path in used
            found.append(
                ExaminedSpec(path=path, kind=file.kind, document=document, is_used=is_used, faults=faults)
            )
    return tuple(found)


def read_document(context: Context, path: str) -> tuple[dict[str, Any] | None, tuple[Finding, ...]]:
    """Return the document of the file PATH, None where no runtime has one, and what breaks a rule in it."""
    try:
        data = context.host.read(path, limit=MAX_SIZE)
    except OSError:
        return None, ()
    reading = parse_and_check(data, yaml=is_yaml(path))
    if not errors(reading.findings):
        return reading.document, ()
    # What strict reading finds may not matter to runtimes: names in other letter cases, null, comments.
    loaded = loaded_document(data, NEWEST_RELEASE)
    if loaded is None:
        return None, ()
    document = _without_empty(loaded)
    return _sound(document), errors(document_rules.check(document))


def _without_empty(value: Any) -> Any:
    """Return VALUE without null and empty texts, which Go's JSON reader takes for absent."""
    if isinstance(value, list):
        return [_without_empty(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_empty(one) for name, one in value.items() if one is not None and one != ""}


def _sound(document: dict[str, Any]) -> dict[str, Any]:
    """Return DOCUMENT with all members that checks read, and only entries that have the paths they need."""
    devices = [one for one in document.get("devices") or () if isinstance(one, dict)]
    made = [{**one, "name": one.get("name", ""), "containerEdits": _edits(one)} for one in devices]
    return {**document, "containerEdits": _edits(document), "devices": made}


def _edits(holder: dict[str, Any]) -> dict[str, Any]:
    given = holder.get("containerEdits")
    edits = dict(given) if isinstance(given, dict) else {}
    for name, needed in _NEEDED.items():
        edits[name] = [
            one
            for one in edits.get(name) or ()
            if isinstance(one, dict) and all(str(one.get(key)).startswith("/") for key in needed)
        ]
    return edits
