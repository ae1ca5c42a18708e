"""The kinds of CDI devices that components other than a spec generator define.

A request for such a kind fails on a host without the component. ``component_of`` names the component.
"""

from __future__ import annotations

from cdigen.value import frozen


@frozen
class ComponentKind:
    """The CDI kinds of a component.

    ``kind`` is a kind. If it ends in ``*``, it is the beginning of kinds. ``component`` is the program that
    defines the devices, with the condition. ``instead`` is the next step without this component.
    """

    kind: str
    component: str
    instead: str

    def matches(self, kind: str) -> bool:
        """Return whether KIND is a kind of this component."""
        return kind.startswith(self.kind[:-1]) if self.kind.endswith("*") else kind == self.kind


_GPU = "request nvidia.com/gpu=NAME"
_CLAIM = "a pod gets the devices with a ResourceClaim; outside Kubernetes, "
# Sources: nvidia-container-toolkit 1.20 (pkg/nvcdi, internal/modifier/cdi.go); gpu-operator 26.3;
# k8s-device-plugin 0.20 (cmd/nvidia-device-plugin); dra-driver-nvidia-gpu 0.4.1 (cdi.go); NVIDIA's sandbox
# device plugin (generateCDISpecForClass); ROCm's k8s-gpu-dra-driver; dra-driver-cpu.
COMPONENT_KINDS = (
    ComponentKind(
        kind="management.nvidia.com/*",
        component="NVIDIA's GPU operator defines this kind for its own pods",
        instead="set 'vendor_options: {nvidia: {management: true}}' in the configuration of cdigen, or "
        f"{_GPU}",
    ),
    ComponentKind(
        kind="k8s.device-plugin.nvidia.com/*",
        component="NVIDIA's device plugin defines this kind when it starts",
        instead=f"restart the device plugin; outside Kubernetes, {_GPU}",
    ),
    ComponentKind(
        kind="k8s.gpu.nvidia.com/*",
        component="NVIDIA's DRA driver defines this kind for each ResourceClaim",
        instead=f"{_CLAIM}{_GPU}",
    ),
    ComponentKind(
        kind="k8s.compute-domain.nvidia.com/*",
        component="NVIDIA's DRA driver defines this kind for each ComputeDomain",
        instead=f"{_CLAIM}request nvidia.com/imex-channel=NAME",
    ),
    ComponentKind(
        kind="runtime.nvidia.com/*",
        component="NVIDIA's OCI runtime (nvidia-container-runtime) defines this kind for its own containers, "
        "without a spec file",
        instead=_GPU,
    ),
    ComponentKind(
        kind="nvidia.com/pgpu",
        component="NVIDIA's sandbox device plugin defines this kind for GPUs of virtual machines (vfio-pci)",
        instead=f"for a GPU with NVIDIA's driver, {_GPU}",
    ),
    ComponentKind(
        kind="nvidia.com/mig",
        component="cdigen defines this kind only for the administration of MIG (mig-config, mig-monitor)",
        instead="for a MIG instance, request nvidia.com/gpu=GPU:INSTANCE or nvidia.com/gpu=UUID",
    ),
    ComponentKind(
        kind="nvidia.com/mig-*",
        component="this is a resource of a device plugin, no CDI kind",
        instead="for a MIG instance, request nvidia.com/gpu=GPU:INSTANCE or nvidia.com/gpu=UUID",
    ),
    ComponentKind(
        kind="k8s.gpu.amd.com/*",
        component="AMD's DRA driver defines this kind for each ResourceClaim",
        instead=f"{_CLAIM}request amd.com/gpu=NAME",
    ),
    ComponentKind(
        kind="dra.k8s.io/*",
        component="a DRA driver of Kubernetes defines this kind for each ResourceClaim",
        instead="a pod gets the devices with a ResourceClaim",
    ),
)


def component_of(kind: str) -> ComponentKind | None:
    """Return the component that defines the devices of KIND (``vendor/class``), or None if it is unknown."""
    return next((row for row in COMPONENT_KINDS if row.matches(kind)), None)
