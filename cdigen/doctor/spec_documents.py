"""The spec files of the required kinds, and the spec files that cdigen wrote."""

from __future__ import annotations

from cdigen.cdi.library import NEWEST_RELEASE
from cdigen.cdi.loaders.emulation import loaded_document
from cdigen.cdi.parse_cache import parse_and_check
from cdigen.cdi.reader import parse_document
from cdigen.cdi.rules import document_rules
from cdigen.model.findings import errors
from cdigen.model.names import SPEC_SUFFIXES, is_yaml, spec_file_name
from cdigen.runtimes.clashes import clashes
from cdigen.value import frozen
from cdigen.vendors.registry import prefixes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.doctor.context import Context
    from cdigen.model.findings import Finding
    from cdigen.pipeline.generate import GeneratedSpec
    from cdigen.runtimes.spec_cache import SpecFile

MAX_SIZE = 16 << 20
# List of container edits -> the paths that each entry of the list must have.
_NEEDED = {"mounts": ("hostPath", "containerPath"), "deviceNodes": ("path",), "hooks": ("path",)}


@frozen
class ExaminedSpec:
    """A spec file that defines a required kind, and its parsed content (``document``).

    ``is_used`` is true if a required device comes from the file. ``faults`` are violations of the rules of
    CDI in a file that runtimes load. If there are faults, ``document`` is the content as runtimes
    interpret it, without entries that lack required paths.
    """

    path: str
    kind: str
    document: dict[str, Any]
    is_used: bool
    faults: tuple[Finding, ...] = ()

    def edits(self, key: str) -> list[Any]:
        """Return the values at KEY of all container edits, with the document's own edits first."""
        owners = (self.document, *self.document["devices"])
        return [one for owner in owners for one in owner.get("containerEdits", {}).get(key, ())]


def read_specs(context: Context) -> tuple[ExaminedSpec, ...]:
    """Return the readable files that define required kinds.

    If no devices are requested, the result also has cdigen's specs of kinds that cdigen cannot generate now.
    """
    required = set(context.required)
    old = frozenset() if context.request.devices else _old_kinds(context)
    used = {
        path
        for view in context.views
        for name, path in view.devices
        if name in required or name.partition("=")[0] in old
    }
    spec_files: dict[str, SpecFile] = {}
    for view in context.views:
        spec_files |= {
            file.path: file
            for file in view.files
            if file.kind in context.kinds or (file.kind in old and was_ours(context, file.path))
        }
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


def _old_kinds(context: Context) -> frozenset[str]:
    """Return the kinds whose specs cdigen has written, but cannot generate now."""
    begins = prefixes(context.request.vendors)
    return (
        frozenset(spec.kind for spec in context.state.specs if spec.kind.startswith(begins)) - context.kinds
    )


def read_document(context: Context, path: str) -> tuple[dict[str, Any] | None, tuple[Finding, ...]]:
    """Return the parsed content of the file PATH, and its violations of CDI's rules.

    The content is None if no runtime loads the file.
    """
    try:
        data = context.host.read(path, limit=MAX_SIZE)
    except OSError:
        return None, ()
    reading = parse_and_check(data, yaml=is_yaml(path))
    if not errors(reading.findings):
        return reading.document, ()
    # Runtimes accept some violations: names in other letter cases, null values and comments.
    parsed = parse_document(data, yaml=None)
    _, loaded = loaded_document(data, NEWEST_RELEASE, parsed)
    if loaded is None and parsed.document is None:
        return None, ()
    document = _without_empty(parsed.document if loaded is None else loaded)
    return _sound(document), errors(document_rules.check(document))


def _without_empty(value: Any) -> Any:
    """Return VALUE without null values and empty texts, which Go's JSON reader treats as absent."""
    if isinstance(value, list):
        return [_without_empty(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_empty(one) for name, one in value.items() if one is not None and one != ""}


def _sound(document: dict[str, Any]) -> dict[str, Any]:
    """Return DOCUMENT with all members that the checks read; omit entries without their required paths."""
    devices = [one for one in document.get("devices") or () if isinstance(one, dict)]
    made = [{**one, "name": one.get("name", ""), "containerEdits": _edits(one)} for one in devices]
    return {**document, "containerEdits": _edits(document), "devices": made}


def _edits(owner: dict[str, Any]) -> dict[str, Any]:
    present = owner.get("containerEdits")
    edits = dict(present) if isinstance(present, dict) else {}
    for name, needed in _NEEDED.items():
        edits[name] = [
            one
            for one in edits.get(name) or ()
            if isinstance(one, dict) and all(str(one.get(key)).startswith("/") for key in needed)
        ]
    return edits


def own_file(context: Context, kind: str) -> str:
    """Return the path of cdigen's spec of KIND on the host."""
    return f"{context.configuration.spec_dirs[-1].rstrip('/')}/{spec_file_name(kind)}"


def is_ours(context: Context, path: str) -> bool:
    """Return whether cdigen wrote the spec file PATH of the host, and the file has not changed since."""
    try:
        real = context.host.resolve(path)
        return context.state.owns(context.host.outer_path(real), context.host.read(real, limit=MAX_SIZE))
    except OSError:
        return False


def was_ours(context: Context, path: str) -> bool:
    """Return whether cdigen wrote PATH, even if the file has changed since."""
    try:
        real = context.host.resolve(path)
    except OSError:
        real = path
    return context.state.of(context.host.outer_path(real)) is not None


def is_own(context: Context, spec: ExaminedSpec) -> bool:
    """Return whether cdigen wrote SPEC, or writes its own spec of the same kind to the same path."""
    return spec.path == own_file(context, spec.kind) or was_ours(context, spec.path)


def foreign_specs(context: Context) -> list[ExaminedSpec]:
    """Return the specs of required kinds that other tools wrote."""
    return [spec for spec in context.specs if not is_own(context, spec)]


def is_blocked(context: Context, product: GeneratedSpec) -> bool:
    """Return whether a path of another tool prevents cdigen from writing PRODUCT."""
    file = own_file(context, product.kind)
    try:
        present: bytes | None = context.host.read(file, limit=MAX_SIZE)
    except FileNotFoundError:
        if context.host.is_link(file):
            return True
        present = None
    except OSError:
        return True
    if present not in (None, product.content) and not is_ours(context, file):
        return True
    found = clashes(
        context.own_scan,
        directory=context.request.spec_dirs[-1],
        file_name=spec_file_name(product.kind),
        kind=product.kind,
        device_names=[device["name"] for device in product.document["devices"]],
    )
    return any(finding.severity == "error" for finding in found)
