"""A host with two GPUs, one of them in MIG mode, and what becomes of containers on it."""

from __future__ import annotations

import json
from typing import Any

from cdigen.config import AllowRule, GpuKind, NriConfig, Settings
from cdigen.frontend.host_state import parse_inventory
from cdigen.model.inventory import Accelerator, Driver, Inventory, Partition
from cdigen.model.inventory_json import to_document
from cdigen.nri.decision.decide import Decision, decide
from cdigen.nri.decision.machine import VENDOR, Machine, machine_of
from cdigen.nri.decision.policy import Policy, policy_of
from cdigen.nri.decision.select import DeviceNames
from cdigen.nri.pods import Container, ContainerMount, Pod
from cdigen.value import replace

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
        vendor="nvidia", driver=driver, accelerators=gpus, nodes=(), files=(), sought=(), findings=()
    )
    return replace(made, **changes)


def content(found: Inventory | None = None) -> bytes:
    return json.dumps(to_document({"nvidia": found or inventory()})).encode()


def machine(found: bytes | None, *, running_driver: str = "", has_daemon: bool = True) -> Machine:
    """Return the machine that decisions know by the inventory FOUND."""
    drivers = {VENDOR: running_driver}
    inventory = parse_inventory(found, running_drivers=drivers, has_daemon=has_daemon)
    return machine_of(*inventory.of(VENDOR))


MACHINE = machine(content())
NAMES = DeviceNames(DEVICES)
POD = Pod(id="p", name="pod", namespace="ml", runtime_handler="runc", labels={"team": "a"}, annotations={})
ALLOWED = (AllowRule(namespaces=("ml",)),)
# Where NVIDIA's device plugin mounts /dev/null (internal/plugin/server.go).
LISTS = "/var/run/nvidia-container-devices"
COMPUTE = (
    GpuKind(kind="nvidia.com/gpu"),
    GpuKind(kind="nvidia.com/gpu-compute", capabilities=("compute", "utility")),
)


def allowed(*sources: str, **row: Any) -> tuple[AllowRule, ...]:
    """Return the rows of a policy: a single one for the namespace `ml`; no SOURCES are all of them."""
    keys = {"sources": sources, **row} if sources else row
    return (AllowRule(namespaces=("ml",), **keys),)


def policy(**settings: Any) -> Policy:
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
    asked: dict[str, str] | None = None,
    pod: Pod = POD,
    names: DeviceNames = NAMES,
    machine: Machine = MACHINE,
    here: Container | None = None,
    **settings: Any,
) -> Decision:
    """Return what becomes of a container with ENV in POD, annotated with ASKED, by a policy of SETTINGS."""
    given = replace(here, env=(*here.env, *env)) if here else container(*env)
    return decide(
        replace(pod, annotations=asked or {}),
        given,
        policy=policy(**settings),
        names=names,
        machine=machine,
    )


def devices(*env: str, **more: Any) -> tuple[str, ...]:
    """Return the names of the devices that such a container gets; it must not be refused."""
    decision = outcome(*env, **more)
    assert decision.outcome != "refuse", decision.reason
    return decision.devices
