"""The advertised resources of a host, and their allocators."""

from __future__ import annotations

import asyncio
import json
import socket
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from support.kubelet import advertised_resources
from support.kubelet.resources import GPU, listed
from support.values import unhealthy_gpus

from cdigen.config import KubeletConfig
from cdigen.kubelet.advertised_resources import AdvertisedResources
from cdigen.kubelet.allocators import MemoryAllocator, ResourceAllocator
from cdigen.kubelet.plugin_config import KubeletPluginConfig
from cdigen.kubelet.pods import PodDevices, PodList
from cdigen.kubelet.wire.clients import KubeletError
from cdigen.service.host_state import HostSources, HostState, read_host_state
from cdigen.value import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cdigen.config import SharedMemory
    from cdigen.kubelet.allocation.container_response import ContainerResponse
    from cdigen.kubelet.gpu_memory.assign import Assignment
    from cdigen.kubelet.resources.memory import AdvertisedMemory
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory


def put(root: Path, inventories: dict[str, Inventory], *, names: set[str] | None = None) -> HostState:
    """Write INVENTORIES and specs of the devices NAMES (None: all) below ROOT; return the host's state."""
    unhealthy_gpus.save(root, inventories)
    folder = root / "run/cdi"
    folder.mkdir(parents=True, exist_ok=True)
    kinds: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(advertised_resources.names_of(inventories) if names is None else names):
        kind, _, device = name.partition("=")
        kinds.setdefault(kind, []).append({"name": device, "containerEdits": {"env": ["A=B"]}})
    for kind, devices in kinds.items():
        document = {"cdiVersion": "0.6.0", "kind": kind, "devices": devices}
        (folder / f"{kind.replace('/', '-')}.json").write_text(json.dumps(document))
    return state(root)


def made(
    settings: KubeletConfig | None = None,
    *,
    make_agent: Callable[[SharedMemory], Any] = lambda _: None,
    state_dir: str = "",
    **more: Any,
) -> AdvertisedResources:
    """Return the resources with SETTINGS; if it is None, with the keys in MORE."""
    config = config_of(settings or KubeletConfig(**more))
    return AdvertisedResources(replace(config, state_dir=state_dir), make_agent)


def config_of(settings: KubeletConfig) -> KubeletPluginConfig:
    sources = cast("HostSources", None)
    return KubeletPluginConfig(kubelet_dir="/var/lib/kubelet", run_dir="", sources=sources, settings=settings)


def configure(of: AdvertisedResources, settings: KubeletConfig, found: tuple[Finding, ...] = ()) -> None:
    """Configure the resources OF with SETTINGS, whose findings are FOUND."""
    of.configure(config_of(settings), found)


def memory_allocator(of: AdvertisedResources, host: HostState) -> MemoryAllocator:
    return next(one for _, one in of.resources(host) or () if isinstance(one, MemoryAllocator))


def allocator(of: AdvertisedResources, host: HostState, name: str = GPU) -> ResourceAllocator:
    found = of.resources(host)
    assert found is not None
    (one,) = (one for resource, one in found if resource.name == name)
    assert isinstance(one, ResourceAllocator)
    return one


def allocate(by: ResourceAllocator | MemoryAllocator, *ids: str) -> ContainerResponse:
    return asyncio.run(by.allocate(ids))


def preferred(
    by: ResourceAllocator | MemoryAllocator,
    available: tuple[str, ...],
    must_include: tuple[str, ...],
    count: int,
) -> tuple[str, ...]:
    return asyncio.run(by.preferred_allocation(available, must_include, count))


class PodLister:
    """Lists `pods` for the resources OF instead of a kubelet; if `pods` is None, it does not respond."""

    def __init__(self, of: AdvertisedResources, *pods: PodDevices, has_list: bool = True) -> None:
        self.pods: tuple[PodDevices, ...] | None = pods
        self.requests = 0
        of.connect(self.list_pods, lambda: None)
        if has_list:
            of.kubelet.set_pods(listed(*pods))

    async def list_pods(self, timeout_s: float) -> PodList:
        assert timeout_s <= 1.0
        self.requests += 1
        if self.pods is None:
            raise KubeletError("DEADLINE_EXCEEDED", was_reached=True)
        return listed(*self.pods)


def pod(resource: str, *ids: str) -> PodDevices:
    return PodDevices(namespace="ml", pod="a", container="main", resource=resource, ids=ids)


class AnyPod:
    """An agent that assigns every unit to an unknown pod."""

    problem = ""

    def __init__(self) -> None:
        self.advertised: AdvertisedMemory | None = None
        self.is_stopped = False
        self.pods: Any = None

    def stop(self) -> None:
        self.is_stopped = True

    def state(self) -> None:
        """Return no state."""

    def advertise(self, memory: AdvertisedMemory | None) -> None:
        self.advertised = memory

    def set_pods(self, pods: Any, _requested_s: float) -> None:
        self.pods = pods

    def preferred_gpu(self, free: dict[int, int], _must: Sequence[int], _count: int) -> Future[int | None]:
        done: Future[int | None] = Future()
        done.set_result(next(iter(free), None))
        return done

    def assign(self, _gpu: int, _ids: frozenset[str]) -> Future[Assignment]:
        done: Future[Any] = Future()
        done.set_result(None)
        return done


@contextmanager
def mps_control(pipe: Path) -> Iterator[None]:
    """Listen as the mps_control daemon in the folder PIPE, and accept no connection."""
    pipe.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(pipe / "control"))
        daemon.listen(0)
        yield


def state(root: Path) -> HostState:
    sources = HostSources(
        host=str(root), specs=str(root), spec_dirs=("/run/cdi",), runs=str(root), run_dir="/run/cdigen"
    )
    return read_host_state(sources, library="1.0.1")
