"""A CDI specification as values, in the specification's own names.

Only what cdigen writes is modelled; documents written by others stay JSON (``cdigen.cdi.reader``).
Source: container-device-interface SPEC.md and specs-go/config.go.
"""

from __future__ import annotations

from cdigen.model.profile import DEFAULT, Profile
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import DriverFile


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
    """A bind mount of ``host_path`` at ``container_path``; ``type`` is empty if the target knows none."""

    host_path: str
    container_path: str
    options: tuple[str, ...]
    type: str = "bind"


@frozen
class Hook:
    """A program of the host that the runtime starts before a container; ``args`` begin with its name.

    ``env`` is never empty: without one, runc up to 1.2 hands it the image's (CVE-2025-23266).
    ``timeout`` is in seconds.
    """

    path: str
    args: tuple[str, ...]
    env: tuple[str, ...]
    timeout: int
    hook_name: str = "createContainer"


@frozen
class ContainerEdits:
    """The changes to the OCI configuration of a container.

    ``additional_gids`` are groups of the host that the container's process joins, never 0.
    """

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    hooks: tuple[Hook, ...] = ()
    mounts: tuple[Mount, ...] = ()
    additional_gids: tuple[int, ...] = ()


@frozen
class Device:
    """A named device and the edits that give it to a container."""

    name: str
    edits: ContainerEdits


@frozen
class Step:
    """A step of a start-up hook, by NVIDIA's name for it (model.profile.STEPS), and its arguments."""

    name: str
    arguments: tuple[str, ...] = ()


@frozen
class Payload:
    """The driver's files for containers of one kind, before it is decided how they get there.

    ``steps`` have to be done for the vendor's software when a container starts. ``carried`` are SONAMEs that
    images are known to have in the default folders, in versions of their own. ``folder_env`` are variables
    that tell programs the folder of the libraries if no cache does.

    ``prefix`` is the container's folder in which the vendor's images expect the libraries, those of 64 bits
    in its ``lib64`` (``/usr/local/Ascend/driver``); without one they go where loaders look, or into a folder
    of the kind's own.
    """

    vendor: str
    version: str
    architecture: str
    files: tuple[DriverFile, ...]
    steps: tuple[Step, ...] = ()
    carried: tuple[str, ...] = ()
    folder_env: tuple[str, ...] = ()
    prefix: str = ""


@frozen
class Draft:
    """The content of one kind's spec before layout, versions and order are decided.

    ``cdi.layout`` turns ``payload`` into mounts and hooks, as ``profile`` wants. ``has_all``: there will be a
    device ``all``. ``yields``: where another program's spec serves the kind, ours is not written.
    """

    kind: str
    devices: tuple[Device, ...]
    edits: ContainerEdits
    payload: Payload | None = None
    profile: Profile = DEFAULT
    has_all: bool = True
    yields: bool = False


@frozen
class Spec:
    """A complete document: the content of one file in a spec directory."""

    cdi_version: str
    kind: str
    devices: tuple[Device, ...]
    edits: ContainerEdits
