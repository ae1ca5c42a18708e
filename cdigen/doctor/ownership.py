"""Which spec files are cdigen's own, and whether others' files keep it from writing."""

from __future__ import annotations

from cdigen.model.names import spec_file_name
from cdigen.runtimes.clashes import clashes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.doctor.context import Context
    from cdigen.pipeline.generate import GeneratedSpec

_MAX = 64 << 20


def own_file(context: Context, kind: str) -> str:
    """Return where cdigen keeps the spec of KIND, as a path of the host."""
    return f"{context.configuration.spec_dirs[-1].rstrip('/')}/{spec_file_name(kind)}"


def is_ours(context: Context, path: str) -> bool:
    """Return whether the spec file PATH of the host is one that cdigen wrote, unchanged since."""
    try:
        real = context.host.resolve(path)
        return context.state.owns(context.host.outer_path(real), context.host.read(real, limit=_MAX))
    except OSError:
        return False


def was_ours(context: Context, path: str) -> bool:
    """Return whether cdigen has written PATH, whatever became of it since."""
    try:
        real = context.host.resolve(path)
    except OSError:
        real = path
    return context.state.of(context.host.outer_path(real)) is not None


def is_blocked(context: Context, product: GeneratedSpec) -> bool:
    """Return whether something that is not cdigen's keeps it from writing PRODUCT."""
    file = own_file(context, product.kind)
    try:
        present: bytes | None = context.host.read(file, limit=_MAX)
    except FileNotFoundError:
        if context.is_link(file):
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
