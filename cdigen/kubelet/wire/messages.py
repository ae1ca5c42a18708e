"""The kubelet's messages as values: the functions ``read_...`` decode bytes, ``write_...`` encode values.

The functions ``read_...`` raise MessageError if the bytes are not the expected message. The functions
``write_...`` raise MessageError if a value is invalid, or if the kubelet would reject a message of that size.
"""

from __future__ import annotations

import os
import time

from cdigen.kubelet.pods import ClaimedDevice, PodDevices, PodList
from cdigen.kubelet.resources.model import MAX_ID, MAX_MESSAGE
from cdigen.service.descriptors import MessageError, load, read, split, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from cdigen.kubelet.resources.model import Unit

VERSION = "v1beta1"
_HEALTH = {"healthy": "Healthy", "unknown": "Healthy", "unhealthy": "Unhealthy"}


def _compiled(name: str) -> Any:
    return load(os.path.join(os.path.dirname(__file__), f"{name}.binpb"), f"{name}.proto")


PLUGIN = _compiled("deviceplugin")
PODS = _compiled("podresources")

EMPTY = b""


def write_options() -> bytes:
    """Return the response of GetDevicePluginOptions, which enables only GetPreferredAllocation."""
    return write(PLUGIN["DevicePluginOptions"], get_preferred_allocation_available=True)


def write_registration(resource: str, endpoint: str) -> bytes:
    """Return the registration of RESOURCE; ENDPOINT is the socket's name in the kubelet's folder."""
    options = {"get_preferred_allocation_available": True}
    return write(
        PLUGIN["RegisterRequest"], version=VERSION, endpoint=endpoint, resource_name=resource, options=options
    )


def write_devices(units: Iterable[Unit]) -> bytes:
    """Return the list of UNITS in their order, or raise MessageError if the list is invalid or too long."""
    devices = [_device(unit) for unit in units]
    ids = [device["id"] for device in devices]
    for id_ in ids:
        if not 0 < len(id_) <= MAX_ID:
            raise MessageError(f"device id {id_!r}: {len(id_)} characters, but 1 to {MAX_ID} are allowed")
    if len(set(ids)) < len(ids):
        raise MessageError("two devices have the same id")
    data = write(PLUGIN["ListAndWatchResponse"], devices=devices)
    if len(data) >= MAX_MESSAGE:
        raise MessageError(
            f"the list of {len(devices)} devices has {len(data)} bytes, and a kubelet reads less than "
            f"{MAX_MESSAGE}: configure fewer replicas"
        )
    return data


def _device(unit: Unit) -> dict[str, Any]:
    device: dict[str, Any] = {"id": unit.id, "health": _HEALTH[unit.health]}
    # The topology manager would refuse pods for an empty list of nodes, for -1 or for a wrong node.
    if unit.numa is not None and unit.numa >= 0:
        device["topology"] = {"nodes": [{"id": unit.numa}]}
    return device


def read_preferred_requests(data: bytes) -> tuple[tuple[tuple[str, ...], tuple[str, ...], int], ...]:
    """Return the arguments of ``Allocator.preferred_allocation`` for each container of the request DATA."""
    return tuple(
        (tuple(each.available_device_ids), tuple(each.must_include_device_ids), each.allocation_size)
        for each in read(PLUGIN["PreferredAllocationRequest"], data).container_requests
    )


def write_preferred(chosen: Iterable[tuple[str, ...]]) -> bytes:
    """Return the response of a GetPreferredAllocation request with the ids CHOSEN for each container."""
    responses = [{"device_ids": ids} for ids in chosen]
    return write(PLUGIN["PreferredAllocationResponse"], container_responses=responses)


def read_allocate(data: bytes) -> tuple[tuple[str, ...], ...]:
    """Return the ids for each container of an Allocate request."""
    requests = read(PLUGIN["AllocateRequest"], data).container_requests
    return tuple(tuple(each.device_ids) for each in requests)


def write_allocated(answers: Iterable[Any]) -> bytes:
    """Return the response of an Allocate request with ANSWERS, one for each container.

    An answer has ``cdi_devices``. Its ``variables`` and ``annotations`` are pairs. Its ``nodes`` and
    ``folders`` have host_path and path.
    """
    return write(PLUGIN["AllocateResponse"], container_responses=[_container(answer) for answer in answers])


def _container(answer: Any) -> dict[str, Any]:
    return {
        "envs": dict(answer.variables),
        "annotations": dict(answer.annotations),
        "cdi_devices": [{"name": name} for name in answer.cdi_devices],
        "devices": [
            {"container_path": node.path, "host_path": node.host_path, "permissions": "rw"}
            for node in answer.nodes
        ],
        "mounts": [
            {"container_path": folder.path, "host_path": folder.host_path} for folder in answer.folders
        ],
    }


def read_pods(data: bytes, until_s: float = float("inf")) -> PodList:
    """Return the list of the pod resources API, with one value for each container and resource.

    Newer kubelets list the devices of one resource separately by NUMA node. This function joins such parts.
    The CDI names of claims are not read, because kubelet 1.36 lists them wrongly from the second device of a
    claim on (pkg/kubelet/cm, container_manager_linux.go: GetDynamicResources).
    Raise MessageError if DATA is not such a list, or if the decoding has not ended at the monotonic time
    UNTIL_S. The limit is necessary, because tenants choose the number of containers in pods.
    """
    found: dict[tuple[str, str, str, str], list[str]] = {}
    claims: list[ClaimedDevice] = []
    names = set()
    for part in split(data, PODS["ListPodResourcesResponse"].POD_RESOURCES_FIELD_NUMBER):
        pod = read(PODS["PodResources"], part)
        if time.monotonic() > until_s:
            raise MessageError(f"the list of pods, {len(data) >> 10} KiB, takes too long to read")
        names.add(f"{pod.namespace}/{pod.name}")
        for container in pod.containers:
            for devices in container.devices:
                key = (pod.namespace, pod.name, container.name, devices.resource_name)
                found.setdefault(key, []).extend(devices.device_ids)
            claims += (
                ClaimedDevice(
                    namespace=pod.namespace,
                    pod=pod.name,
                    container=container.name,
                    driver=device.driver_name,
                    pool=device.pool_name,
                    device=device.device_name,
                )
                for claim in container.dynamic_resources
                for device in claim.claim_resources
            )
    devices = (
        PodDevices(namespace=namespace, pod=pod, container=container, resource=resource, ids=tuple(ids))
        for (namespace, pod, container, resource), ids in found.items()
    )
    return PodList(devices=tuple(devices), names=frozenset(names), claims=tuple(claims))


def read_allocatable(data: bytes) -> dict[str, frozenset[str]]:
    """Return the ids of the kubelet's healthy devices by resource (GetAllocatableResources)."""
    found: dict[str, set[str]] = {}
    for devices in read(PODS["AllocatableResourcesResponse"], data).devices:
        found.setdefault(devices.resource_name, set()).update(devices.device_ids)
    return {resource: frozenset(ids) for resource, ids in found.items()}
