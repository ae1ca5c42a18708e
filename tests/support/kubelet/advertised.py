"""For tests of the device plugin protocol: `listing` with the allocator `Echo`, `linked` (a KubeletLink)."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from support.kubelet.resources import GPU, units
from support.waiting import until

from cdigen.kubelet.registration.link import KubeletLink
from cdigen.kubelet.registration.listing import Listing, listing_of
from cdigen.kubelet.resources.model import Resource
from cdigen.kubelet.wire.server import AllocateError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.kubelet.double import Endpoint, Kubelet

    from cdigen.model.health import Health


class Echo:
    """Allocates CDI names for the ids, prefers the last ids, and refuses the id `refused`."""

    async def allocate(self, ids: tuple[str, ...]) -> Any:
        if "refused" in ids:
            raise AllocateError("another container has it")
        if "broken" in ids:
            raise ZeroDivisionError("a fault")
        names = tuple(f"nvidia.com/gpu={name}" for name in ids)
        return SimpleNamespace(
            cdi_devices=names,
            annotations=(("cdi.k8s.io/cdigen_gpu", ",".join(names)),),
            variables=(("VARIABLE", "1"),),
            nodes=(SimpleNamespace(path="/dev/a", host_path="/dev/b"),),
            folders=(SimpleNamespace(path="/c", host_path="/d"),),
        )

    async def preferred_allocation(
        self, available: tuple[str, ...], must_include: tuple[str, ...], count: int
    ) -> tuple[str, ...]:
        return (*must_include, *[name for name in reversed(available) if name not in must_include])[:count]


def listing(*ids: str, resource: str = GPU, health: Health = "healthy", numa: int | None = 0) -> Listing:
    return listing_of(Resource(name=resource, units=units(*ids, health=health, numa=numa)), Echo())


@contextmanager
def linked(plugins: Path, pods: Path, **options: Any) -> Iterator[KubeletLink]:
    """Run a KubeletLink to the kubelet with the folder PLUGINS and the pod resources socket PODS."""
    made = KubeletLink(str(plugins), str(pods), notify=lambda: None, log=lambda _, __: None, **options)
    made.start()
    try:
        yield made
    finally:
        made.stop()
    assert until(made.problem)


def registered(kubelet: Kubelet, link: KubeletLink, *ids: str) -> Endpoint:
    """Start KUBELET, advertise IDS by LINK, and return the endpoint after the kubelet has the list."""
    kubelet.start()
    link.advertise((listing(*ids),))
    assert until(lambda: kubelet.lists(*ids))
    return kubelet.endpoints[GPU]
