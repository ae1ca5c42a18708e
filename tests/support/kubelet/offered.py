"""What tests of the protocol offer to the kubelet: `offer`, answered by an `Echo`, over a link: `linked`."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from support.kubelet.resources import GPU, units
from support.waiting import until

from cdigen.kubelet.link import Link
from cdigen.kubelet.listing import Listing, listing_of
from cdigen.kubelet.resources.model import Resource
from cdigen.kubelet.wire.server import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.kubelet.double import Endpoint, Kubelet

    from cdigen.model.health import Health


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


@contextmanager
def linked(plugins: Path, pods: Path, **options: Any) -> Iterator[Link]:
    """Run a link to the kubelet whose folder is PLUGINS, and whose socket of pod resources is PODS."""
    made = Link(str(plugins), str(pods), notify=lambda: None, log=lambda _, __: None, **options)
    made.start()
    try:
        yield made
    finally:
        made.stop()
    assert until(lambda: not made.is_running())


def registered(kubelet: Kubelet, link: Link, *ids: str) -> Endpoint:
    """Start KUBELET, offer IDS by LINK, and return the endpoint once the kubelet has the list."""
    kubelet.start()
    link.offer((offer(*ids),))
    assert until(lambda: kubelet.lists(*ids))
    return kubelet.endpoints[GPU]
