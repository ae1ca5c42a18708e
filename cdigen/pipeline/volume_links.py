"""The volume of a kind: ``update_volume`` after a spec was written, ``remove_volume`` after a withdrawal.

A volume (``store.views.volumes``) is for engines without CDI. Such an engine mounts only the whole view. A
view is incomplete if the spec mounts more files in the view's folder. An incomplete view has no volume.
"""

from __future__ import annotations

import re

from cdigen.model.errors import StoreError
from cdigen.model.findings import Finding
from cdigen.model.view import volume_name
from cdigen.store.views import volumes
from cdigen.store.views.folder import VIEW_NAME, VIEWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_IN_VIEW = re.compile(rf"/{VIEWS}/({VIEW_NAME.pattern})(?:/|$)")


def update_volume(document: dict[str, Any], state_dir: str) -> tuple[Finding, ...]:
    """Link the volume of the spec DOCUMENT to its view, and return a finding if an error occurred.

    If DOCUMENT mounts no complete view, the function removes the volume.
    """
    return _linked(document["kind"], whole_view(document), state_dir)


def remove_volume(kind: str, state_dir: str) -> tuple[Finding, ...]:
    """Remove the volume of KIND, and return a finding if an error occurred."""
    return _linked(kind, "", state_dir)


def _linked(kind: str, view: str, state_dir: str) -> tuple[Finding, ...]:
    """Link the volume of KIND to VIEW, or remove the volume if VIEW is ""."""
    name = volume_name(kind)
    try:
        if view:
            volumes.point_link(state_dir, name, view)
        else:
            volumes.remove_link(state_dir, name)
    except StoreError as error:
        finding = Finding(
            severity="warning",
            rule="volume-not-updated",
            path=f"{state_dir}/{volumes.VOLUMES}/{name}",
            message=f"the volume {name} does not lead to the files of the present driver: {error.message}",
            hint=error.hint,
        )
        return (finding,)
    return ()


def whole_view(document: dict[str, Any]) -> str:
    """Return the name of the complete view that DOCUMENT mounts, or ""."""
    mounts = list(_mounts(document))
    inside = {mount["containerPath"]: found for mount in mounts if (found := _view_of(mount))}
    outside = [mount["containerPath"] for mount in mounts if mount["containerPath"] not in inside]
    if any(path.startswith(f"{target}/") for path in outside for target in inside):
        return ""
    names = set(inside.values())
    return names.pop() if len(names) == 1 else ""


def _mounts(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for owner in (document, *document["devices"]):
        yield from owner.get("containerEdits", {}).get("mounts", ())


def _view_of(mount: dict[str, Any]) -> str:
    found = _IN_VIEW.search(mount["hostPath"])
    return found.group(1) if found else ""
