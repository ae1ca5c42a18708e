"""The kubelet's messages as values: ``read_...`` decodes the bytes of a message, ``write_...`` encodes one.

Readers raise MessageError where the bytes are not their message; writers where values do not fit, or where
the kubelet would not take a message of that size.
"""

from __future__ import annotations

import os
import time

from cdigen.frontend.descriptors import MessageError, load, read, split, write
from cdigen.kubelet.pods import PodDevices, PodList
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from cdigen.kubelet.resources.model import Unit

VERSION = "v1beta1"
# What a Go program takes at most in one message, if it does not say otherwise, and the kubelet's device
# manager does not (grpc-go, clientconn.go: defaultClientMaxReceiveMessageSize).
MAX_MESSAGE = 4 << 20
# What the proto allows in a device's id.
MAX_ID = 63
_HEALTH = {"healthy": "Healthy", "unknown": "Healthy", "unhealthy": "Unhealthy"}


@frozen
class Preference:
    """One container's question: which ``count`` of ``available`` are best, with ``must_include``."""

    available: tuple[str, ...]
    must_include: tuple[str, ...]
    count: int


def _compiled(name: str) -> Any:
    return load(os.path.join(os.path.dirname(__file__), f"{name}.binpb"), f"{name}.proto")


PLUGIN = _compiled("deviceplugin")
PODS = _compiled("podresources")

EMPTY = b""


def write_options() -> bytes:
    """Return what GetDevicePluginOptions answers: preferences are given, nothing is done before a start."""
    return write(PLUGIN["DevicePluginOptions"], get_preferred_allocation_available=True)


def write_registration(resource: str, endpoint: str) -> bytes:
    """Return the registration of RESOURCE, served at the socket named ENDPOINT in the kubelet's folder."""
    options = {"get_preferred_allocation_available": True}
    return write(
        PLUGIN["RegisterRequest"], version=VERSION, endpoint=endpoint, resource_name=resource, options=options
    )


def write_devices(units: Iterable[Unit]) -> bytes:
    """Return the list of UNITS, in their order. MessageError: an id or the list is too long, an id twice."""
    devices = [_device(unit) for unit in units]
    ids = [device["id"] for device in devices]
    for id_ in ids:
        if not 0 < len(id_) <= MAX_ID:
            raise MessageError(f"the device id {id_!r} has {len(id_)} characters: 1 to {MAX_ID} are allowed")
    if len(set(ids)) < len(ids):
        raise MessageError("two devices have the same id")
    data = write(PLUGIN["ListAndWatchResponse"], devices=devices)
    if len(data) >= MAX_MESSAGE:
        raise MessageError(
            f"the list of {len(devices)} devices has {len(data)} bytes, and a kubelet takes less than "
            f"{MAX_MESSAGE}: configure fewer replicas"
        )
    return data


def _device(unit: Unit) -> dict[str, Any]:
    device: dict[str, Any] = {"id": unit.id, "health": _HEALTH[unit.health]}
    # -1, a guess or an empty list would make the topology manager refuse pods.
    if unit.numa is not None and unit.numa >= 0:
        device["topology"] = {"nodes": [{"id": unit.numa}]}
    return device


def read_devices(data: bytes) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """Return id, health and NUMA nodes of each device, as a kubelet reads them."""
    devices = read(PLUGIN["ListAndWatchResponse"], data).devices
    return tuple((each.id, each.health, tuple(node.id for node in each.topology.nodes)) for each in devices)


def read_preferences(data: bytes) -> tuple[Preference, ...]:
    """Return the questions of a GetPreferredAllocation, one for each container."""
    return tuple(
        Preference(
            available=tuple(each.available_device_ids),
            must_include=tuple(each.must_include_device_ids),
            count=each.allocation_size,
        )
        for each in read(PLUGIN["PreferredAllocationRequest"], data).container_requests
    )


def write_preferred(chosen: Iterable[tuple[str, ...]]) -> bytes:
    """Return the ids CHOSEN for each container."""
    responses = [{"device_ids": ids} for ids in chosen]
    return write(PLUGIN["PreferredAllocationResponse"], container_responses=responses)


def read_allocate(data: bytes) -> tuple[tuple[str, ...], ...]:
    """Return the ids that each container of an Allocate is to have."""
    requests = read(PLUGIN["AllocateRequest"], data).container_requests
    return tuple(tuple(each.device_ids) for each in requests)


def write_allocated(answers: Iterable[Any]) -> bytes:
    """Return the ANSWERS of an Allocate, one for each container.

    An answer has ``cdi_devices``; ``variables`` and ``annotations``, pairs; ``nodes`` with host_path, path
    and permissions; ``folders`` with host_path, path and is_read_only.
    """
    return write(PLUGIN["AllocateResponse"], container_responses=[_container(answer) for answer in answers])


def _container(answer: Any) -> dict[str, Any]:
    return {
        "envs": dict(answer.variables),
        "annotations": dict(answer.annotations),
        "cdi_devices": [{"name": name} for name in answer.cdi_devices],
        "devices": [
            {"container_path": node.path, "host_path": node.host_path, "permissions": node.permissions}
            for node in answer.nodes
        ],
        "mounts": [
            {"container_path": folder.path, "host_path": folder.host_path, "read_only": folder.is_read_only}
            for folder in answer.folders
        ],
    }


def read_pods(data: bytes, until_s: float = float("inf")) -> PodList:
    """Return what List of the pod resources says: one value for each container and resource.

    Newer kubelets list devices of one resource apart by NUMA node: they are joined. MessageError: it is no
    such list, or reading has not ended at UNTIL_S (monotonic): tenants choose how many containers pods have.
    """
    found: dict[tuple[str, str, str, str], list[str]] = {}
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
    devices = (
        PodDevices(namespace=namespace, pod=pod, container=container, resource=resource, ids=tuple(ids))
        for (namespace, pod, container, resource), ids in found.items()
    )
    return PodList(devices=tuple(devices), names=frozenset(names))


def read_allocatable(data: bytes) -> dict[str, frozenset[str]]:
    """Return the ids of healthy devices that the kubelet has of each resource (GetAllocatableResources)."""
    found: dict[str, set[str]] = {}
    for devices in read(PODS["AllocatableResourcesResponse"], data).devices:
        found.setdefault(devices.resource_name, set()).update(devices.device_ids)
    return {resource: frozenset(ids) for resource, ids in found.items()}
