"""How each resource is answered, as the configuration says: ``policy_of``; and what is not. Pure."""

from __future__ import annotations

from cdigen.kubelet.answers import Mps, Policy
from cdigen.model.findings import Finding
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cdigen.config import KubeletConfig
    from cdigen.kubelet.answers import IsOffered
    from cdigen.kubelet.resources.model import Resource
    from cdigen.kubelet.resources.offer import Offer
    from cdigen.model.inventory import Inventory

# The variable and the families are NVIDIA's. Family of the configuration -> class and device of its CDI name,
# as discovery offers it (vendors.nvidia.families); channel 0 is what NVIDIA's plugin gives, too.
_NVIDIA = "nvidia"
_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
_FAMILIES = {
    "gdrcopy": "gdrcopy=all",
    "gds": "gds=all",
    "imex": "imex-channel=0",
    "mofed": "mofed=all",
}
# The folders of a control daemon below the root of all, as NVIDIA's plugin has them (cmd/mps-control-daemon).
_PIPE = "pipe"
_SHM = "shm"


def policy_of(
    resource: Resource,
    offer: Offer,
    settings: KubeletConfig,
    inventories: Mapping[str, Inventory],
    mps_problem: Callable[[str], str],
) -> Policy:
    """Return how requests for RESOURCE, one of OFFER, are answered.

    INVENTORIES, by vendor, have the device nodes that every container needs. MPS_PROBLEM returns why no
    control daemon can be reached in a pipe directory, or "".
    """
    vendor = _vendor(resource, inventories)
    is_nvidia = vendor == _NVIDIA
    inventory = inventories.get(vendor)
    return Policy(
        uses_field="cdi_devices" in settings.answer,
        uses_annotation="annotation" in settings.answer,
        variable=_VARIABLE if settings.environment and is_nvidia else "",
        passes_nodes=settings.device_nodes,
        common_nodes=inventory.nodes if settings.device_nodes and inventory else (),
        families=tuple(_family(name) for name in settings.families) if is_nvidia else (),
        fails_many=resource.name in offer.fails_many,
        mps=_mps(resource, settings, mps_problem) if resource.name in offer.by_mps else None,
    )


def missing_families(policies: Iterable[Policy], is_offered: IsOffered) -> tuple[Finding, ...]:
    """Return the findings on CDI names of families that POLICIES add, and no spec offers."""
    names = dict.fromkeys(name for policy in policies for name in policy.families)
    return tuple(
        Finding(
            severity="warning",
            rule="resource-family-missing",
            path=name,
            message=f"{name} is in no spec: containers get their GPUs without it",
            hint="see whether its driver is loaded, or leave it out of 'kubelet: {families}'",
        )
        for name in names
        if not is_offered(name)
    )


def without_api(name: str, problem: str) -> Finding:
    """Return the finding that units of memory, the resource NAME, are not offered for PROBLEM."""
    problem = problem or "no --kubeconfig and --node-name say which pods ask for it"
    return Finding(
        severity="error",
        rule="shared-memory-without-api",
        path=name,
        message=f"{name} is not offered: {problem}",
        hint="give both to 'cdigen kubelet', as docs/sharing.md says",
    )


def unknown_vendor(vendor: str) -> Finding:
    """Return the finding that no package here has VENDOR, of which there are devices."""
    return Finding(
        severity="error",
        rule="resource-left-out",
        path=vendor,
        message=f"no device of {vendor} is offered: no package here has this vendor",
        hint="install the package where 'cdigen kubelet' runs as well",
    )


def _vendor(resource: Resource, vendors: Iterable[str]) -> str:
    """Return which of VENDORS has the devices of RESOURCE, by their CDI names; "" if none or several have."""
    kinds = {name.partition("=")[0] for unit in resource.units for name in unit.cdi_names}
    found = {registry.vendor_of(kind, vendors) for kind in kinds}
    return found.pop() if len(found) == 1 else ""


def _family(name: str) -> str:
    return f"{registry.cdi_vendor(_NVIDIA)}/{_FAMILIES[name]}"


def _mps(resource: Resource, settings: KubeletConfig, mps_problem: Callable[[str], str]) -> Mps:
    root = settings.mps_root.rstrip("/")
    pipe = f"{root}/{resource.name}/{_PIPE}"
    return Mps(pipe_directory=pipe, shm_directory=f"{root}/{_SHM}", problem=mps_problem(pipe))
