"""The classes of a CDI spec, with the field names of the CDI specification.

The classes have only the fields that cdigen writes. Specs of other programs stay JSON
(``cdigen.cdi.reader``). Source: container-device-interface SPEC.md and specs-go/config.go.
"""

from __future__ import annotations

from cdigen.model.profile import DEFAULT, Profile
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import DriverFile


@frozen
class DeviceNode:
    """A device node; ``host_path`` is set only if it differs from ``path``.

    cdigen omits the node's type and device numbers on purpose. The runtime reads both from the host's node
    when the container starts, and thus both are never stale (docs/decisions/0003-device-numbers.md).
    """

    path: str
    host_path: str | None = None
    file_mode: int | None = None
    gid: int | None = None
    permissions: str = "rw"


@frozen
class Mount:
    """A bind mount of ``host_path`` at ``container_path``; ``type`` is empty if the runtime rejects types."""

    host_path: str
    container_path: str
    options: tuple[str, ...]
    type: str = "bind"


@frozen
class Hook:
    """A program of the host that the runtime starts before a container.

    The first of ``args`` is the program's name. ``env`` is never empty, because runc up to 1.2 runs a hook
    with an empty ``env`` in the image's environment (CVE-2025-23266). ``timeout`` is in seconds.
    """

    path: str
    args: tuple[str, ...]
    env: tuple[str, ...]
    timeout: int
    hook_name: str = "createContainer"


@frozen
class ContainerEdits:
    """The changes to the OCI configuration of a container.

    ``additional_gids`` are groups of the host that the container's process joins. They never include 0.
    """

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    hooks: tuple[Hook, ...] = ()
    mounts: tuple[Mount, ...] = ()
    additional_gids: tuple[int, ...] = ()


@frozen
class Device:
    """A named device and the container edits of this device."""

    name: str
    edits: ContainerEdits


@frozen
class HookStep:
    """A step of a hook; ``name`` is the name of the step in NVIDIA's hook (model.profile.STEPS)."""

    name: str
    arguments: tuple[str, ...] = ()


@frozen
class Payload:
    """The driver's files for containers of one kind, before the layout is chosen.

    ``steps`` are hook steps that the vendor's software needs when a container starts. ``carried`` are SONAMEs
    of libraries that images also have in the default folders, but in another version than the driver's.
    ``folder_env`` are variables that contain the folder of the libraries, for programs that do not use the
    loader's cache.

    ``prefix`` is the container's folder in which the vendor's images expect the libraries
    (``/usr/local/Ascend/driver``). Its subfolder ``lib64`` contains the 64-bit libraries. If ``prefix`` is
    empty, the libraries are in the loader's default folders, or in a folder of the kind.
    """

    vendor: str
    version: str
    architecture: str
    files: tuple[DriverFile, ...]
    steps: tuple[HookStep, ...] = ()
    carried: tuple[str, ...] = ()
    folder_env: tuple[str, ...] = ()
    prefix: str = ""


@frozen
class Draft:
    """The content of one kind's spec before the choice of layout, versions and order.

    ``cdi.layout`` converts ``payload`` to mounts and hooks according to ``profile``.

    - ``has_all``: whether the spec gets a device ``all``.
    - ``yields``: whether cdigen omits the spec if another program's spec has the same kind.
    - ``withheld``: the finding that forbids the spec. With the spec, containers would start, but the programs
      in them would fail.
    """

    kind: str
    devices: tuple[Device, ...]
    edits: ContainerEdits
    payload: Payload | None = None
    profile: Profile = DEFAULT
    has_all: bool = True
    yields: bool = False
    withheld: Finding | None = None
