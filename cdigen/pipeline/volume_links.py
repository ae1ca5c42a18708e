"""Let the volume of a kind follow its spec: ``follow`` after one was written, ``leave`` when it is withdrawn.

A volume (``store.views.volumes``) is for engines without CDI: they mount the view as a whole, and nothing
else. A view of which some files are mounted one by one would be half a driver, so there is no volume of it.
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


def follow(document: dict[str, Any], state_dir: str) -> tuple[Finding, ...]:
    """Let the volume of the spec DOCUMENT lead to its view; return what kept it from that.

    Without a view that has everything there is no volume.
    """
    view = whole_view(document)
    name = volume_name(document["kind"])
    try:
        if not view:
            volumes.drop(state_dir, name)
        else:
            volumes.lead(state_dir, name, view)
    except StoreError as error:
        return (_stays(name, state_dir, error),)
    return ()


def leave(kind: str, state_dir: str) -> tuple[Finding, ...]:
    """Remove the volume of KIND; return what kept it from that."""
    name = volume_name(kind)
    try:
        volumes.drop(state_dir, name)
    except StoreError as error:
        return (_stays(name, state_dir, error),)
    return ()


def _stays(name: str, state_dir: str, error: StoreError) -> Finding:
    return Finding(
        severity="warning",
        rule="volume-stays",
        path=f"{state_dir}/{volumes.VOLUMES}/{name}",
        message=f"the volume {name} is not that of the present driver: {error.message}",
        hint=error.hint,
    )


def whole_view(document: dict[str, Any]) -> str:
    """Return the name of the view that DOCUMENT mounts; empty where there is none that has everything."""
    mounts = list(_mounts(document))
    inside = {mount["containerPath"]: found for mount in mounts if (found := _view_of(mount))}
    apart = [mount["containerPath"] for mount in mounts if mount["containerPath"] not in inside]
    if any(path.startswith(f"{target}/") for path in apart for target in inside):
        return ""
    names = set(inside.values())
    return names.pop() if len(names) == 1 else ""


def _mounts(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for owner in (document, *document["devices"]):
        yield from owner.get("containerEdits", {}).get("mounts", ())


def _view_of(mount: dict[str, Any]) -> str:
    found = _IN_VIEW.search(mount["hostPath"])
    return found.group(1) if found else ""
