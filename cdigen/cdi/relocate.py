"""Move a draft's files to another place in the container (``--container-driver-root``)."""

from __future__ import annotations

from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.cdi import ContainerEdits, Draft


def relocate(draft: Draft, folder: str) -> Draft:
    """Return DRAFT with every mount below FOLDER, an absolute path of the container; nodes stay."""
    prefix = folder.rstrip("/")
    if not prefix:
        return draft
    devices = tuple(replace(device, edits=_moved(device.edits, prefix)) for device in draft.devices)
    return replace(draft, devices=devices, edits=_moved(draft.edits, prefix))


def _moved(edits: ContainerEdits, prefix: str) -> ContainerEdits:
    mounts = tuple(replace(mount, container_path=prefix + mount.container_path) for mount in edits.mounts)
    return replace(edits, mounts=mounts)
