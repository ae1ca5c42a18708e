"""Resources for the tests of the protocol: `units`, and `Echo`, who gives what was asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from cdigen.kubelet.listing import Listing, listing_of
from cdigen.kubelet.resources.model import Resource, Unit
from cdigen.kubelet.wire.server import Refused
from cdigen.model.inventory import Accelerator

if TYPE_CHECKING:
    from cdigen.model.health import Health

GPU = "nvidia.com/gpu"


def units(*ids: str, health: Health = "healthy", numa: int | None = 0) -> tuple[Unit, ...]:
    return tuple(
        Unit(
            id=name,
            health=health,
            numa=numa,
            accelerator=Accelerator(
                index=index, address="", model="", uuid=name, minor=index, nodes=(), usable=True
            ),
            cdi_names=(f"nvidia.com/gpu={name}",),
        )
        for index, name in enumerate(ids)
    )


class Echo:
    """Gives CDI names after the ids, and prefers the last ones; refuses the id `taken`."""

    async def allocate(self, ids: tuple[str, ...]) -> Any:
        if "taken" in ids:
            raise Refused("another container has taken")
        if "broken" in ids:
            raise ZeroDivisionError("of a fault")
        names = tuple(f"nvidia.com/gpu={name}" for name in ids)
        return SimpleNamespace(
            cdi_devices=names,
            annotations=(("cdi.k8s.io/cdigen_gpu", ",".join(names)),),
            variables=(("SEEN", "1"),),
            nodes=(SimpleNamespace(path="/dev/a", host_path="/dev/b", permissions="rw"),),
            folders=(SimpleNamespace(path="/c", host_path="/d", is_read_only=True),),
        )

    def prefer(
        self, available: tuple[str, ...], must_include: tuple[str, ...], count: int
    ) -> tuple[str, ...]:
        return (*must_include, *[name for name in reversed(available) if name not in must_include])[:count]


def offer(*ids: str, resource: str = GPU, health: Health = "healthy", numa: int | None = 0) -> Listing:
    return listing_of(Resource(name=resource, units=units(*ids, health=health, numa=numa)), Echo())
