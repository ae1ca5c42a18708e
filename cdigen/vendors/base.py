"""The vendor protocol: all that the rest of cdigen asks of a maker of GPUs."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from cdigen.host.root import Root
    from cdigen.model.cdi import Draft
    from cdigen.model.inventory import HostNode, Inventory
    from cdigen.model.profile import Profile

    class Vendor(Protocol):
        """One vendor; a module with these names is enough."""

        NAME: str
        CDI_VENDOR: str

        def discover(self, places: Places) -> Inventory:
            """Read the host; raises HostError where this vendor has nothing to offer there."""

        def edits(self, inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
            """Compute the content of each profile's spec; pure."""

        def watches(self, places: Places) -> Watches:
            """Return what is worth a look when it changes; whether it exists or not."""

        def missing_nodes(self, places: Places) -> tuple[HostNode, ...]:
            """Read which nodes nobody has made yet, as they would have to be made."""

        def wrong_nodes(self, places: Places) -> tuple[HostNode, ...]:
            """Read in whose place there is something else, as they should be."""


@frozen
class Watches:
    """What tells that a vendor's side of a host has changed.

    ``files`` are absolute paths of this machine, of files, of folders (each entry matters) or with ``*`` in
    the last name; ``polled`` are small files and folders of which the kernel announces nothing;
    ``subsystems`` are those of the kernel's uevents.
    """

    files: tuple[str, ...]
    polled: tuple[str, ...]
    subsystems: tuple[str, ...]


@frozen
class Places:
    """Where a vendor is to look.

    ``host`` is the host's own tree (/proc, /sys), ``driver`` the tree with the driver's files,
    ``dev`` the tree whose /dev holds the nodes; search paths, where given, are absolute folders of
    the driver's tree that replace the vendor's own tables.

    ``mode`` is what the host is taken for (``auto``: look). ``nvml`` says whether the vendor's
    management library may be loaded in a child process: ``auto``, ``off``, or the path of a library.
    ``compat32`` asks for 32-bit libraries; ``mps_pipe_dir`` is the folder of NVIDIA's Multi-Process
    Service, which ``mps_uid`` may own besides root, or empty.
    """

    host: Root
    driver: Root
    dev: Root
    library_search_paths: tuple[str, ...] = ()
    config_search_paths: tuple[str, ...] = ()
    mode: str = "auto"
    nvml: str = "off"
    compat32: bool = False
    mps_pipe_dir: str = ""
    mps_uid: int = 0
