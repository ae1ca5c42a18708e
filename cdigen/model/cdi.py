"""A CDI specification as values, in the specification's own names.

Only what cdigen writes is modelled; documents written by others stay JSON (``cdigen.spec.parse``).
Source: container-device-interface SPEC.md and specs-go/config.go.
"""

from __future__ import annotations

from cdigen.value import frozen


@frozen
class DeviceNode:
    """A device node; ``host_path`` is given only where it differs from ``path``.

    Type and numbers are left out on purpose: the runtime reads them from the host's node when the
    container starts, so they cannot be stale (docs/decisions/0003-device-numbers.md).
    """

    path: str
    host_path: str | None = None
    file_mode: int | None = None
    gid: int | None = None
    permissions: str = "rw"


@frozen
class Mount:
    """A bind mount of ``host_path`` at ``container_path``; ``type`` is empty where a target knows none."""

    host_path: str
    container_path: str
    options: tuple[str, ...]
    type: str = "bind"


@frozen
class ContainerEdits:
    """What is done to the OCI configuration of a container.

    ``additional_gids`` are groups of the host that the container's process joins, never 0.
    """

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    additional_gids: tuple[int, ...] = ()


@frozen
class Device:
    """A named device and the edits that give it to a container."""

    name: str
    edits: ContainerEdits


@frozen
class Draft:
    """The content of one kind's spec before versions and order are settled."""

    kind: str
    devices: tuple[Device, ...]
    edits: ContainerEdits


@frozen
class Spec:
    """A complete document: what one file in a spec directory holds."""

    cdi_version: str
    kind: str
    devices: tuple[Device, ...]
    edits: ContainerEdits
