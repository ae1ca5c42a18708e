"""A host with two GPUs (one in MIG mode) and a lost GPU, and the decisions about containers on this host."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from support.nri.device_names import device_names

from cdigen.config import AllowRule, GpuKind, NriConfig, Settings
from cdigen.model.inventory import Accelerator, Driver, Inventory, Partition
from cdigen.model.inventory_json import to_document
from cdigen.nri.decision.decide import InjectionDecision, decide
from cdigen.nri.decision.limits.policy import InjectionPolicy, policy_of
from cdigen.nri.decision.request.host_gpus import VENDOR, HostGpus, host_gpus_of
from cdigen.nri.pods import Container, ContainerMount, Pod
from cdigen.service.host_state import parse_inventory
from cdigen.value import replace

if TYPE_CHECKING:
    from cdigen.nri.decision.request.select import DeviceNames

DRIVER = "550.163.01"
UUID = "GPU-3c7f6a52-9b1d-4e08-a2c4-5d6e7f8091a2"
UUID1 = "GPU-11111111-2222-3333-4444-555555555555"
MIG = "MIG-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
GPU_NAMES = ("0", UUID, "1:0", MIG, "all")
KINDS = {
    "nvidia.com/gpu": GPU_NAMES,
    "nvidia.com/gpu-compute": GPU_NAMES,
    "nvidia.com/imex-channel": ("0", "7"),
    "nvidia.com/gds": ("all",),
    "nvidia.com/mofed": ("all",),
    "nvidia.com/gdrcopy": ("all",),
    "nvidia.com/nvswitch": ("all",),
    "nvidia.com/mig": ("mig-config", "mig-monitor"),
    "nvidia.com/management": ("all",),
}
DEVICES = tuple(f"{kind}={name}" for kind, names in KINDS.items() for name in names)
AMD = tuple(f"amd.com/gpu={name}" for name in ("0", "1", "2", "10", "all", "0xEA35F57CC80DEB35"))


def inventory(**changes: Any) -> Inventory:
    part = Partition(
        index=0, uuid=MIG, profile="1g.10gb", instance="gi1/ci0", graphics=False, nodes=(), usable=True
    )
    whole: dict[str, Any] = {"nodes": (), "usable": True, "model": "NVIDIA H100 80GB HBM3"}
    gpus = (
        Accelerator(index=0, address="0000:1b:00.0", uuid=UUID, minor=0, **whole),
        Accelerator(
            index=1,
            address="0000:43:00.0",
            uuid=UUID1,
            minor=1,
            partitioned=True,
            partitions=(part,),
            **whole,
        ),
        Accelerator(
            index=2,
            address="0000:52:00.0",
            uuid=None,
            minor=2,
            **{**whole, "usable": False, "problem": "it has fallen off the bus"},
        ),
    )
    driver = Driver(version=DRIVER, flavour="open", architecture="x86_64")
    made = Inventory(
        vendor="nvidia", driver=driver, accelerators=gpus, nodes=(), files=(), searched=(), findings=()
    )
    return replace(made, **changes)


def content(found: Inventory | None = None) -> bytes:
    return json.dumps(to_document({"nvidia": found or inventory()})).encode()


def host_gpus(found: bytes | None, *, running_driver: str = "", has_daemon: bool = True) -> HostGpus:
    """Return the GPUs of the host according to the inventory FOUND."""
    drivers = {VENDOR: running_driver}
    inventory = parse_inventory(found, running_drivers=drivers, has_daemon=has_daemon)
    return host_gpus_of(*inventory.of(VENDOR))


HOST_GPUS = host_gpus(content())
NAMES = device_names(DEVICES)
POD = Pod(id="p", name="pod", namespace="ml", runtime_handler="runc", labels={"team": "a"}, annotations={})
ALLOWED = (AllowRule(namespaces=("ml",)),)
# The folder in which NVIDIA's device plugin mounts /dev/null (internal/plugin/server.go).
LISTS = "/var/run/nvidia-container-devices"
COMPUTE = (
    GpuKind(kind="nvidia.com/gpu"),
    GpuKind(kind="nvidia.com/gpu-compute", capabilities=("compute", "utility")),
)


def allowed(*sources: str, **row: Any) -> tuple[AllowRule, ...]:
    """Return a policy's only rule, for the namespace `ml` and SOURCES; without SOURCES, for all sources."""
    keys = {"sources": sources, **row} if sources else row
    return (AllowRule(namespaces=("ml",), **keys),)


def policy(**settings: Any) -> InjectionPolicy:
    """Return the policy of SETTINGS: `profiles`, and keys of `nri`."""
    profiles = settings.pop("profiles", Settings().profiles)
    return policy_of(Settings(profiles=profiles, nri=NriConfig(**{"allow": ALLOWED, **settings})))


def container(
    *env: str, devices: tuple[str, ...] = (), cdi: tuple[str, ...] = (), mounts: tuple[str, ...] = ()
) -> Container:
    return Container(
        id="c",
        pod_id="p",
        name="main",
        annotations={},
        env=env,
        mounts=tuple(
            ContainerMount(destination=path, source="/s", type="bind", options=()) for path in mounts
        ),
        devices=devices,
        cdi_devices=cdi,
    )


def listing(*names: str, source: str = "/dev/null", folder: str = LISTS) -> Container:
    """Return a container with a mount of SOURCE at each of NAMES in FOLDER, as NVIDIA's plugin makes."""
    found = container(mounts=tuple(f"{folder}/{name}" for name in names))
    return replace(found, mounts=tuple(replace(mount, source=source) for mount in found.mounts))


def outcome(
    *env: str,
    pod_annotations: dict[str, str] | None = None,
    pod: Pod = POD,
    names: DeviceNames = NAMES,
    host_gpus: HostGpus = HOST_GPUS,
    here: Container | None = None,
    **settings: Any,
) -> InjectionDecision:
    """Return the decision about a container with ENV in POD with POD_ANNOTATIONS, by SETTINGS."""
    given = replace(here, env=(*here.env, *env)) if here else container(*env)
    return decide(
        replace(pod, annotations=pod_annotations or {}),
        given,
        policy=policy(**settings),
        names=names,
        host_gpus=host_gpus,
    )


def devices(*env: str, **more: Any) -> tuple[str, ...]:
    """Return the devices that `outcome` selects for a container; assert that the container is not refused."""
    decision = outcome(*env, **more)
    assert decision.outcome != "refuse", decision.reason
    return decision.devices
