"""A device that the host no longer has stays in the kubelet's list as unhealthy while a container has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.kubelet.advertised_resources import h100, in_mig, sized, with_gpus
from support.kubelet.host_resources import AnyPod, allocate, configure, made, pod, put
from support.kubelet.resources import GPU, listed
from support.kubernetes.gpu_memory_pods import MEMORY
from support.values.unhealthy_gpus import ECC, example, with_causes

from cdigen.config import KubeletConfig, SharedMemory, SharingRow
from cdigen.kubelet.resources.model import MAX_MESSAGE
from cdigen.kubelet.wire.messages import write_devices
from cdigen.kubelet.wire.server import AllocateError
from cdigen.value import replace

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.kubelet.advertised_resources import AdvertisedResources
    from cdigen.model.inventory import Inventory

FIRST = str(h100(0).uuid)
SHARED = KubeletConfig(sharing=(SharingRow(resource=GPU, replicas=2),))
IN_UNITS = KubeletConfig(shared_memory=SharedMemory(unit="GiB", devices=("0", "1")))
MIG = in_mig(h100(0), "1g.10gb", "1g.10gb")


def without_first(hosts: dict[str, Inventory]) -> dict[str, Inventory]:
    host = hosts["nvidia"]
    return {"nvidia": replace(host, accelerators=host.accelerators[1:])}


def health(
    advertised: AdvertisedResources, root: Path, hosts: dict[str, Inventory], name: str
) -> dict[str, str]:
    """Return the health of each unit of the resource NAME on the host HOSTS."""
    found = advertised.resources(put(root, hosts)) or ()
    return {unit.id: unit.health for resource, _ in found if resource.name == name for unit in resource.units}


def unhealthy(*of: Any) -> list[str]:
    return [id_ for id_, each in health(*of).items() if each == "unhealthy"]


def messages(advertised: AdvertisedResources) -> list[tuple[str, str]]:
    return [(one.message, one.hint) for one in advertised.findings() if one.rule == "resource-removed"]


@pytest.mark.parametrize(
    ("settings", "resource", "ids", "host"),
    [
        (KubeletConfig(), GPU, (FIRST,), example()),
        (SHARED, GPU, (f"{FIRST}::1",), example()),
        (IN_UNITS, MEMORY, (f"{FIRST}-_-0", f"{FIRST}-_-3"), with_gpus(sized(0, 4096), sized(1, 4096))),
        (KubeletConfig(), "nvidia.com/mig-1g.10gb", (str(MIG.partitions[1].uuid),), with_gpus(MIG)),
    ],
    ids=["whole", "replica", "memory", "mig"],
)
def test_a_removed_device_is_unhealthy_until_no_container_has_it(
    tmp_path: Path, settings: KubeletConfig, resource: str, ids: tuple[str, ...], host: dict[str, Inventory]
) -> None:
    advertised = made(settings, make_agent=lambda _: AnyPod())
    before = health(advertised, tmp_path, host, resource)
    assert set(ids) <= before.keys()
    advertised.kubelet.set_pods(listed(pod(resource, *ids)))
    # The first list also verifies the sizes of memory units.
    assert advertised.has_changed() == (resource == MEMORY)

    left = without_first(host)
    assert unhealthy(advertised, tmp_path, left, resource) == list(ids)
    device = ids[0].partition("::")[0].partition("-_-")[0]
    owner = "pod ml/a, container main"
    text = (
        f"{device} is advertised as unhealthy in {resource}: the host has no such device, and {owner} has it"
    )
    assert messages(advertised) == [(text, "kubectl --namespace ml delete pod a")]

    advertised.kubelet.set_pods(listed())
    assert advertised.has_changed()
    assert not unhealthy(advertised, tmp_path, left, resource)
    assert not messages(advertised)


def test_the_device_is_healthy_again_after_it_has_come_back(tmp_path: Path) -> None:
    advertised = made()
    advertised.kubelet.set_pods(listed(pod(GPU, FIRST)))
    assert unhealthy(advertised, tmp_path, without_first(example()), GPU) == [FIRST]
    # The labels count the devices of the host.
    assert dict(advertised.labels() or ())["nvidia.com/gpu.count"] == "7"
    assert not unhealthy(advertised, tmp_path, example(), GPU)
    assert not messages(advertised)


def test_the_first_list_of_a_new_process_adds_a_device_that_was_removed_before(tmp_path: Path) -> None:
    advertised = made()
    left = without_first(example())
    assert FIRST not in health(advertised, tmp_path, left, GPU)
    advertised.kubelet.set_pods(listed(pod(GPU, FIRST)))
    assert advertised.has_changed()
    assert unhealthy(advertised, tmp_path, left, GPU) == [FIRST]


def test_all_devices_of_containers_are_unhealthy_while_the_host_has_no_device(tmp_path: Path) -> None:
    advertised = made()
    health(advertised, tmp_path, example(), GPU)
    advertised.kubelet.set_pods(listed(pod(GPU, FIRST), pod("x.com/y", "z")))
    assert health(advertised, tmp_path, {}, GPU) == {FIRST: "unhealthy"}


def test_a_device_that_another_configuration_advertised_stays_healthy_for_its_container(
    tmp_path: Path,
) -> None:
    advertised = made()
    advertised.kubelet.set_pods(listed(pod(GPU, FIRST)))
    for settings in (SHARED, KubeletConfig(ignore=("0",))):
        configure(advertised, settings)
        # The kubelet reports a device as healthy that is not in the list.
        assert FIRST not in health(advertised, tmp_path, example(), GPU)
        assert not messages(advertised)
        # The device is unhealthy, but it is not removed.
        assert FIRST in unhealthy(advertised, tmp_path, with_causes(example(), 0, ECC), GPU)
        assert not messages(advertised)


def test_no_container_gets_a_removed_device(tmp_path: Path) -> None:
    advertised = made()
    advertised.kubelet.set_pods(listed(pod(GPU, FIRST)))
    (allocator,) = (by for _, by in advertised.resources(put(tmp_path, without_first(example()))) or ())
    with pytest.raises(AllocateError, match=f"unknown device {FIRST}; the resource has 7 devices now"):
        allocate(allocator, FIRST)  # type: ignore[arg-type]


def test_the_list_stays_valid_with_invalid_and_with_too_many_ids(tmp_path: Path) -> None:
    advertised = made()
    many = (f"{number:060}" for number in range(MAX_MESSAGE // 60))
    advertised.kubelet.set_pods(listed(pod(GPU, "x" * 64, FIRST, *many)))
    ((resource, _),) = advertised.resources(put(tmp_path, without_first(example()))) or ()
    assert len(write_devices(resource.units)) < MAX_MESSAGE
    ids = [unit.id for unit in resource.units]
    assert ids[7] == FIRST
    assert "x" * 64 not in ids
