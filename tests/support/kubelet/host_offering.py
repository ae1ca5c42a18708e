"""What a host offers to its kubelet, and who answers for it."""

from __future__ import annotations

import asyncio
import json
import socket
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from support.kubelet import offering
from support.kubelet.resources import GPU, listed
from support.values import unhealthy_gpus

from cdigen.config import KubeletConfig
from cdigen.frontend.host_state import HostSources, HostState, read_host_state
from cdigen.kubelet.desks import Desk, MemoryDesk
from cdigen.kubelet.offering import HostOffering
from cdigen.kubelet.plugin_config import PluginConfig
from cdigen.kubelet.pods import PodDevices, PodList
from cdigen.kubelet.wire.clients import KubeletError
from cdigen.model.profile import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cdigen.config import SharedMemory
    from cdigen.kubelet.answers import Answer
    from cdigen.kubelet.resources.memory import MemoryOffer
    from cdigen.kubelet.shares.settling import Settled
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory


def put(root: Path, inventories: dict[str, Inventory], *, names: set[str] | None = None) -> HostState:
    """Write the inventory and specs with NAMES, or all, below ROOT; return the host's state."""
    unhealthy_gpus.save(root, inventories)
    folder = root / "run/cdi"
    folder.mkdir(parents=True, exist_ok=True)
    kinds: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(offering.names_of(inventories) if names is None else names):
        kind, _, device = name.partition("=")
        kinds.setdefault(kind, []).append({"name": device, "containerEdits": {"env": ["A=B"]}})
    for kind, devices in kinds.items():
        document = {"cdiVersion": "0.6.0", "kind": kind, "devices": devices}
        (folder / f"{kind.replace('/', '-')}.json").write_text(json.dumps(document))
    return state(root)


def made(
    settings: KubeletConfig | None = None,
    *,
    agents: Callable[[SharedMemory], Any] = lambda _: None,
    state_dir: str = "",
    **more: Any,
) -> HostOffering:
    """Return what is offered by SETTINGS, or by those in MORE."""
    chosen = settings or KubeletConfig(**more)
    return HostOffering(chosen, (DEFAULT,), "/var/lib/kubelet", agents=agents, state_dir=state_dir)


def configure(of: HostOffering, settings: KubeletConfig, found: tuple[Finding, ...] = ()) -> None:
    """Let OF have SETTINGS, in which FOUND was found."""
    sources = cast("HostSources", None)
    of.configure(PluginConfig(kubelet_dir="", run_dir="", sources=sources, settings=settings), found)


def memory_desk(of: HostOffering, host: HostState) -> MemoryDesk:
    return next(one for _, one in of.resources(host) or () if isinstance(one, MemoryDesk))


def desk(of: HostOffering, host: HostState, name: str = GPU) -> Desk:
    found = of.resources(host)
    assert found is not None
    (one,) = (one for resource, one in found if resource.name == name)
    assert isinstance(one, Desk)
    return one


def given(by: Desk | MemoryDesk, *ids: str) -> Answer:
    return asyncio.run(by.allocate(ids))


class PodLister:
    """Answers OF's questions in place of a kubelet: `pods` are the answer, None: there is none."""

    def __init__(self, of: HostOffering, *pods: PodDevices, has_told: bool = True) -> None:
        self.pods: tuple[PodDevices, ...] | None = pods
        self.asked = 0
        of.connect(self.ask, lambda: None)
        if has_told:
            of.set_pods(listed(*pods))

    async def ask(self, timeout_s: float) -> PodList:
        assert timeout_s <= 1.0
        self.asked += 1
        if self.pods is None:
            raise KubeletError("DEADLINE_EXCEEDED", was_reached=True)
        return listed(*self.pods)


def pod(resource: str, *ids: str) -> PodDevices:
    return PodDevices(namespace="ml", pod="a", container="main", resource=resource, ids=ids)


class AnyPod:
    """Promises every unit to a pod that nobody knows more of."""

    problem = ""

    def __init__(self) -> None:
        self.shown: MemoryOffer | None = None
        self.is_stopped = False
        self.heard: Any = None

    def stop(self) -> None:
        self.is_stopped = True

    def state(self) -> None:
        """Tell nothing."""

    def show(self, shares: MemoryOffer | None) -> None:
        self.shown = shares

    def told(self, pods: Any, _asked_s: float) -> None:
        self.heard = pods

    def prefer(self, free: dict[int, int], _must: Sequence[int], _count: int) -> int | None:
        return next(iter(free), None)

    def settle(self, _gpu: int, _ids: frozenset[str]) -> Future[Settled]:
        done: Future[Any] = Future()
        done.set_result(None)
        return done


@contextmanager
def mps_control(pipe: Path) -> Iterator[None]:
    """Listen as the mps_control daemon in the folder PIPE, and take no connection."""
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
