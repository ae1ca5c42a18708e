"""The allocation policy of each resource (``policy_of``), and findings on unavailable devices. No I/O."""

from __future__ import annotations

from cdigen import page_url
from cdigen.kubelet.allocation.container_response import AllocationPolicy, Mps
from cdigen.model.findings import Finding
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.config import KubeletConfig
    from cdigen.kubelet.allocation.container_response import IsInSpec
    from cdigen.kubelet.resources.model import Resource
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import ResourceNames

# The folders of an MPS control daemon below ``mps_root``, as in NVIDIA's plugin (cmd/mps-control-daemon).
_PIPE = "pipe"
_SHM = "shm"


def policy_of(
    resource: Resource, settings: KubeletConfig, inventories: Mapping[str, Inventory]
) -> AllocationPolicy:
    """Return the policy of RESOURCE.

    INVENTORIES, by vendor, have the device nodes that every container needs.
    """
    vendor = _vendor(resource, inventories)
    inventory = inventories.get(vendor)
    names = _names(resource, vendor)
    families = dict(names.families) if names else {}
    return AllocationPolicy(
        uses_field="cdi_devices" in settings.device_list_strategy,
        uses_annotation="annotation" in settings.device_list_strategy,
        variable=names.variable if settings.environment and names else "",
        passes_nodes=settings.device_nodes,
        common_nodes=inventory.nodes if settings.device_nodes and inventory else (),
        families=tuple(families[word] for word in settings.families if word in families),
        mps=_mps(resource, settings) if resource.by_mps else None,
    )


def missing_families(policies: Iterable[AllocationPolicy], is_in_spec: IsInSpec) -> tuple[Finding, ...]:
    """Return a finding for each CDI name in the families of POLICIES that no spec has."""
    names = dict.fromkeys(name for policy in policies for name in policy.families)
    return tuple(
        Finding(
            severity="warning",
            rule="resource-family-missing",
            path=name,
            message=f"{name}: no spec has this device; containers get their GPUs without it",
            hint="load the driver of the device, or remove the family from 'kubelet: {families}'",
        )
        for name in names
        if not is_in_spec(name)
    )


def memory_not_advertised(name: str, problem: str) -> Finding:
    """Return the finding that the memory units NAME are not advertised because of PROBLEM."""
    problem = problem or "--kubeconfig and --node-name are missing, so the requesting pods are unknown"
    return Finding(
        severity="error",
        rule="shared-memory-without-api",
        path=name,
        message=f"{name} is not advertised: {problem}",
        hint=f"start 'cdigen kubelet' with both options ({page_url('how-to/kubernetes/share-gpu-memory')})",
    )


def unusable_vendor(vendor: str, problem: str) -> Finding:
    """Return the finding that VENDOR, which has devices, is not usable because of PROBLEM."""
    return Finding(
        severity="error",
        rule="resource-left-out",
        path=vendor,
        message=f"{vendor}: its devices are not advertised: {problem}",
        hint="install the vendor's package in the environment of 'cdigen kubelet'",
    )


def _vendor(resource: Resource, vendors: Iterable[str]) -> str:
    """Return the vendor in the CDI names of RESOURCE's units, or "" if there is not exactly one vendor."""
    kinds = {name.partition("=")[0] for unit in resource.units for name in unit.cdi_names}
    found = {registry.vendor_of(kind, vendors) for kind in kinds}
    return found.pop() if len(found) == 1 else ""


def _names(resource: Resource, vendor: str) -> ResourceNames | None:
    """Return VENDOR's names of resources for the devices of RESOURCE, or None."""
    classes = {unit.accelerator.device_class for unit in resource.units}
    rows = registry.resource_names(vendor)
    return next((row for row in rows if row.device_class in classes), None)


def _mps(resource: Resource, settings: KubeletConfig) -> Mps:
    root = settings.mps_root.rstrip("/")
    return Mps(pipe_directory=f"{root}/{resource.name}/{_PIPE}", shm_directory=f"{root}/{_SHM}")
