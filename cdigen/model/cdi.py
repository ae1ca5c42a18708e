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
    """A bind mount of ``host_path`` at ``container_path``; ``type`` is empty where a target knows none."""

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
    """What is done to the OCI configuration of a container.

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
    """A piece of a start-up hook's work, by NVIDIA's name of it (model.profile.STEPS), and its arguments."""

    name: str
    arguments: tuple[str, ...] = ()


@frozen
class Payload:
    """The driver's files that containers of one kind get, before it is settled how these reach them.

    ``steps`` is what the vendor's software needs done when a container starts. ``carried`` are
    SONAMEs that images are known to bring along, in the default folders, in versions of their own.
    ``folder_env`` are variables that tell programs the folder of the libraries where no cache does.

    ``prefix`` is the container's folder in which the vendor's images expect the libraries, those of 64 bits
    in its ``lib64`` (``/usr/local/Ascend/driver``); without one they come where loaders look, or into a
    folder of the kind's own.
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
    """The content of one kind's spec before layout, versions and order are settled.

    ``payload`` is what ``cdi.layout`` turns into mounts and hooks, as ``profile`` wants it. ``has_all`` says
    whether there is to be a device ``all``.
    """

    kind: str
    devices: tuple[Device, ...]
    edits: ContainerEdits
    payload: Payload | None = None
    profile: Profile = DEFAULT
    has_all: bool = True


@frozen
class Spec:
    """A complete document: what one file in a spec directory holds."""

    cdi_version: str
    kind: str
    devices: tuple[Device, ...]
    edits: ContainerEdits
