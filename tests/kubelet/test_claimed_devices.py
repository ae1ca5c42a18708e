"""A device that a container has by a ResourceClaim (DRA) is not free for the device plugin."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from support.hosts.intel import discover
from support.hosts.intel_tree import b60, gaudi_3
from support.kubelet.advertised_resources import h100, in_mig, offered, sized, with_gpus
from support.kubelet.host_resources import AnyPod, allocate, allocator, made, pod, preferred, put
from support.kubelet.resources import GPU, listed
from support.kubernetes.gpu_memory_pods import MEMORY
from support.values.unhealthy_gpus import example

from cdigen.config import KubeletConfig, SharedMemory, SharingRow
from cdigen.kubelet.pods import ClaimedDevice, PodList
from cdigen.kubelet.wire import messages
from cdigen.kubelet.wire.messages import PODS
from cdigen.kubelet.wire.server import AllocateError
from cdigen.value import replace

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.kubelet.advertised_resources import AdvertisedResources
    from cdigen.model.inventory import Inventory

NVIDIA = "gpu.nvidia.com"
MIG = in_mig(h100(0), "1g.10gb", "1g.10gb", "2g.20gb")


def claim(device: str, driver: str = NVIDIA) -> ClaimedDevice:
    return ClaimedDevice(
        namespace="ml", pod="train", container="main", driver=driver, pool="node1", device=device
    )


def with_claims(*claims: ClaimedDevice) -> PodList:
    return replace(listed(), claims=claims)


def free(
    advertised: AdvertisedResources, root: Path, host: dict[str, Inventory], name: str = GPU
) -> list[str]:
    found = advertised.resources(put(root, host)) or ()
    (resource,) = (one for one, _ in found if one.name == name)
    return [unit.id for unit in resource.units if unit.health != "unhealthy"]


def names(host: dict[str, Inventory]) -> dict[str, tuple[str, ...]]:
    """Return the names of claimed devices by unit id, for all resources of HOST."""
    return {unit.id: unit.claim_names for resource in offered(host).resources for unit in resource.units}


def test_the_claims_of_a_kubelets_list_have_driver_pool_and_device() -> None:
    # The field numbers are those of kubernetes/kubelet's api.proto. Field 1 of the device is cdi_devices.
    device = b"\x0a\x05\x0a\x03a=b" + b"\x12\x01d" + b"\x1a\x01p" + b"\x22\x05gpu-1"
    claims = b"\x12\x01c\x1a\x01n\x22" + bytes([len(device)]) + device
    container = b"\x0a\x04main\x2a" + bytes([len(claims)]) + claims
    entry = b"\x0a\x05train\x12\x02ml\x1a" + bytes([len(container)]) + container
    found = messages.read_pods(b"\x0a" + bytes([len(entry)]) + entry)
    expected = ClaimedDevice(
        namespace="ml", pod="train", container="main", driver="d", pool="p", device="gpu-1"
    )
    assert found == PodList(devices=(), names=frozenset({"ml/train"}), claims=(expected,))
    written = PODS["ListPodResourcesResponse"].FromString(b"\x0a" + bytes([len(entry)]) + entry)
    assert written.pod_resources[0].containers[0].dynamic_resources[0].claim_resources[0].pool_name == "p"


def test_a_claimed_gpu_is_unhealthy_until_the_pod_ends(tmp_path: Path) -> None:
    advertised = made()
    host = example()
    every = free(advertised, tmp_path, host)
    advertised.kubelet.set_pods(with_claims(claim("gpu-2")))
    assert advertised.has_changed()
    assert free(advertised, tmp_path, host) == [*every[:2], *every[3:]]
    text = (
        f"{every[2]} cannot be allocated as {GPU}: the device is in use by pod ml/train, container main, "
        f"by a claim of the device {NVIDIA}/node1/gpu-2"
    )
    assert [one.message for one in advertised.findings() if one.rule == "resource-claimed"] == [text]
    advertised.kubelet.set_pods(with_claims())
    assert advertised.has_changed()
    assert free(advertised, tmp_path, host) == every


def test_claims_of_other_drivers_change_nothing(tmp_path: Path) -> None:
    advertised = made()
    every = free(advertised, tmp_path, example())
    advertised.kubelet.set_pods(with_claims(claim("gpu-0", "gpu.example.com"), claim("gpu-99")))
    assert free(advertised, tmp_path, example()) == every
    advertised.kubelet.set_pods(with_claims(claim("gpu-1", "gpu.example.com"), claim("gpu-99")))
    assert not advertised.has_changed()


def test_a_gpu_of_a_plugins_container_stays_healthy_for_this_container(tmp_path: Path) -> None:
    advertised = made()
    every = free(advertised, tmp_path, example())
    pods = replace(listed(pod(GPU, every[0])), claims=(claim("gpu-0"),))
    advertised.kubelet.set_pods(pods)
    assert free(advertised, tmp_path, example()) == every


def test_replicas_of_a_claimed_gpu_are_not_free(tmp_path: Path) -> None:
    advertised = made(sharing=(SharingRow(resource=GPU, replicas=2),))
    advertised.kubelet.set_pods(with_claims(claim("gpu-0")))
    left = free(advertised, tmp_path, example())
    assert len(left) == 14
    assert not [id_ for id_ in left if id_.startswith(str(h100(0).uuid))]


def test_no_memory_unit_of_a_claimed_gpu_is_free(tmp_path: Path) -> None:
    agent = AnyPod()
    shared = SharedMemory(unit="GiB", devices=("0", "1"))
    advertised = made(KubeletConfig(shared_memory=shared), make_agent=lambda _: agent)
    host = with_gpus(sized(0, 4096), sized(1, 4096))
    advertised.kubelet.set_pods(replace(listed(pod(MEMORY, f"{h100(0).uuid}-_-0")), claims=(claim("gpu-0"),)))
    assert {id_.partition("-_-")[0] for id_ in free(advertised, tmp_path, host, MEMORY)} == {h100(1).uuid}
    assert agent.advertised is not None
    assert [gpu.is_healthy for gpu in agent.advertised.gpus] == [False, True]


@pytest.mark.parametrize(
    ("device", "taken"),
    [
        ("gpu-0", {0, 1, 2}),
        ("gpu-0-mig-1g10gb-19-4", {0, 1}),
        ("gpu-0-mig-2g20gb-14-0", {2}),
        ("gpu-1", set()),
    ],
)
def test_mig_instances_are_not_free_while_their_gpu_or_an_instance_of_their_profile_is_claimed(
    tmp_path: Path, device: str, taken: set[int]
) -> None:
    advertised = made()
    advertised.kubelet.set_pods(with_claims(claim(device)))
    host = with_gpus(MIG)
    left = {
        *free(advertised, tmp_path, host, "nvidia.com/mig-1g.10gb"),
        *free(advertised, tmp_path, host, "nvidia.com/mig-2g.20gb"),
    }
    assert left == {part.uuid for number, part in enumerate(MIG.partitions) if number not in taken}


class Lister:
    """Lists `pods` instead of a kubelet, and counts the requests."""

    def __init__(self, of: AdvertisedResources, pods: PodList) -> None:
        self.pods = pods
        self.requests = 0
        of.connect(self.list_pods, lambda: None)

    async def list_pods(self, _: float) -> PodList:
        self.requests += 1
        return self.pods


def test_a_claimed_gpu_is_not_preferred_and_is_refused(tmp_path: Path) -> None:
    advertised = made()
    gpus = allocator(advertised, put(tmp_path, example()))
    ids = [unit.id for unit in gpus.resource.units]
    kubelet = Lister(advertised, with_claims(claim("gpu-0"), claim("gpu-1")))
    # The last list has an earlier claim of the same driver.
    advertised.kubelet.set_pods(with_claims(claim("gpu-0")))
    assert ids[0] not in preferred(gpus, tuple(ids), (), 4)
    for id_, device in ((ids[0], "gpu-0"), (ids[1], "gpu-1")):
        text = f"{id_} .pod ml/train, container main, by a claim of the device {NVIDIA}/node1/{device}."
        with pytest.raises(AllocateError, match=text):
            allocate(gpus, id_)
    assert allocate(gpus, ids[2]).names
    assert kubelet.requests == 2
    kubelet.pods = with_claims()
    assert asyncio.run(gpus.allocate((ids[0],))).names


@pytest.mark.needs_root  # nodes of devices
def test_the_names_are_those_of_the_vendors_dra_drivers(tmp_path: Path) -> None:
    intel = {"intel": discover(tmp_path, *b60(1), *gaudi_3(1))}
    assert names(intel) == {
        "0000:18:00.0": ("gpu.intel.com/0000-18-00-0-0xe211",),
        "0000:33:00.0": ("gaudi.intel.com/0000-33-00-0-0x1060",),
    }
    assert list(names(example()).values())[:2] == [(f"{NVIDIA}/gpu-0",), (f"{NVIDIA}/gpu-1",)]
    partitions = names(example("ubuntu-2xmi300x-cpx"))
    assert partitions["0000:05:00.0"] == ("gpu.amd.com/gpu-1-128",)
    assert partitions["amdgpu_xcp_0"] == ("gpu.amd.com/gpu-2-129",)
    assert len(set(partitions.values())) == len(partitions)
