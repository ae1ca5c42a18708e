"""The vendor protocol: all that the rest of cdigen asks of a maker of GPUs."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from cdigen.host.root import Root
    from cdigen.model.cdi import Draft
    from cdigen.model.inventory import Inventory
    from cdigen.model.profile import Profile

    class Vendor(Protocol):
        """One vendor; a module with these names is enough."""

        NAME: str
        CDI_VENDOR: str

        def discover(self, places: Places) -> Inventory:
            """Read the host; raises HostError where this vendor has nothing to offer there."""

        def edits(self, inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
            """Compute the content of each profile's spec; pure."""


@frozen
class Places:
    """Where a vendor is to look.

    ``host`` is the host's own tree (/proc, /sys), ``driver`` the tree with the driver's files,
    ``dev`` the tree whose /dev holds the nodes; search paths, where given, are absolute folders of
    the driver's tree that replace the vendor's own tables.
    """

    host: Root
    driver: Root
    dev: Root
    library_search_paths: tuple[str, ...] = ()
    config_search_paths: tuple[str, ...] = ()
