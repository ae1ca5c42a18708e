"""``ExistingDevices``: detects the devices that a container already has, without I/O.

The kubelet, a device plugin or a DRA driver can request CDI devices from the runtime. These requests reach
the runtime before the runtime calls NRI plugins. cdigen detects such devices by three signs: the names of CDI
devices (containerd 2.3), device nodes, and NVIDIA_VISIBLE_DEVICES=void. Every spec of NVIDIA GPUs sets this
variable. If a device were injected twice, its hooks would run twice.

``is_privileged`` detects privileged containers, which have all device nodes of the host. NRI up to 0.12 does
not report the privileged flag or the capabilities of a container. Runtimes change privileged containers in
two ways that plugins can detect. The author of a pod cannot request these changes for other containers.

- The cgroup permits all devices by one rule without type and numbers. containerd does this in
  WithAllDevicesAllowed (container_create.go), unless the runtime handler has the option
  ``privileged_without_host_devices``. CRI-O does this in specAddHostDevicesIfPrivileged
  (internal/factory/container/device.go), with the same exception. The rules for devices from the kubelet,
  CDI and annotations contain the device numbers.
- /sys is a writable sysfs. containerd does this in WithPrivileged (WithWriteableSysfs), and CRI-O in
  addSysfsMounts (server/container_create.go). In other containers, /sys is read-only. A mount at /sys by the
  author of the pod, such as the host's /sys, is a bind mount.

These facts are true for containerd 1.7 and 2.0 to 2.3, and for CRI-O 1.26 to 1.36. cdigen does not use other
signs:

- a device plugin can pass nodes such as /dev/kmsg;
- a host path such as /dev/kmsg in a container is a mount, not a device node;
- the author of a pod writes its annotations. This includes ``io.kubernetes.cri-o.PrivilegedRuntime``, because
  CRI-O passes the pod's own value to plugins;
- an unprivileged container can also have no seccomp profile.
"""

from __future__ import annotations

import re
from functools import lru_cache

from cdigen.host.root import shown
from cdigen.model.view import DEFAULT_KIND, DEFAULT_TARGET, view_target
from cdigen.nri.decision.request.device_request import is_nvidia

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.nri.decision.request.device_request import DeviceRequest
    from cdigen.nri.decision.request.vendor_variables import VendorVariables
    from cdigen.nri.pods import Container

_SYS = "/sys"
# Kind -> the pattern of the device nodes that are a sign of a device of the kind.
_NODES = {
    "nvidia.com/imex-channel": r"/dev/nvidia-caps-imex-channels/channel{token}",
    "nvidia.com/gds": r"/dev/nvidia-fs[0-9]*",
    "nvidia.com/gdrcopy": r"/dev/gdrdrv",
    "nvidia.com/mofed": r"/dev/infiniband/uverbs[0-9]+",
    "nvidia.com/nvswitch": r"/dev/nvidia-nvswitch(?:ctl|[0-9]+)",
}
# Device nodes of NVIDIA GPUs, including Tegra. nvidiactl and nvidia-uvm belong to all GPUs, so they are no
# sign of a GPU. WSL2 has one node for the GPUs of all vendors, so the driver's files show the vendor.
_GPUS = r"/dev/(?:nvidia[0-9]+|nvhost-gpu|nvgpu/igpu[0-9]+/.+)"
_WSL = "/dev/dxg"
GPU = DEFAULT_KIND
# Kinds of NVIDIA GPUs. The specs come from cdigen, NVIDIA's toolkit (also runtime.nvidia.com/gpu and
# management.nvidia.com/gpu), NVIDIA's device plugin (k8s.device-plugin.nvidia.com/gpu) and its DRA driver
# (k8s.gpu.nvidia.com/claim). The pattern does not match channels (k8s.compute-domain.nvidia.com), devices
# for virtual machines (nvidia.com/pgpu) and MIG management.
_GPU_KIND = re.compile(
    r"(?:[a-z0-9.-]+\.)?nvidia\.com/(?:gpu.*|mig[-_.].+)|k8s\.gpu\.nvidia\.com/(?:claim|device)"
    r"|nvidia\.com/management",
    re.IGNORECASE | re.ASCII,
)
# Files of NVIDIA's driver, and the folders of driver views in containers.
_DRIVER = re.compile(
    r"/(?:libcuda|libnvidia-ml|libdxcore)\.so"
    rf"|^(?:{re.escape(DEFAULT_TARGET)}|{re.escape(view_target('nvidia.com/'))}[^/]+)(?:/|$)",
    re.ASCII,
)

# Names of other plugins (NN-name), and the reader of their annotations (annotations.PREFIXES). The name is a
# file name in the runtime's plugin folder, or an entry of the plugin list that the runtime sends to
# validators. NVIDIA's plugin is part of the toolkit's container, and has no file in the plugin folder. Its
# name is the name of its program, which is the default of NRI's stub (ensureIdentity).
_INJECTORS = (
    (re.compile(r"[0-9]{2}-(?:.*[-_.])?device-injector(?:[-_.].*)?"), "noderesource"),
    (re.compile(r"[0-9]{2}-nvidia-(?:ctk-installer|toolkit)"), "nvidia"),
)


class ExistingDevices:
    """The signs of devices in CONTAINER.

    VISIBLE is the value of NVIDIA_VISIBLE_DEVICES in CONTAINER, or None if the variable is not set. GPU_KINDS
    are the configured kinds of NVIDIA GPUs. VENDOR_VARIABLES describe the devices of other vendors.
    """

    def __init__(
        self,
        container: Container,
        visible: str | None,
        gpu_kinds: frozenset[str],
        vendor_variables: VendorVariables,
    ) -> None:
        self._cdi_devices = frozenset(container.cdi_devices)
        self._nodes = frozenset(container.devices)
        # A privileged container has all nodes of the host, so its nodes are no sign.
        self._is_privileged = is_privileged(container)
        mounts = container.mounts
        self._has_driver = visible == "void" or any(_DRIVER.search(mount.destination) for mount in mounts)
        self._gpu_kinds = gpu_kinds
        self._vendor_variables = vendor_variables

    def sign_of(self, item: DeviceRequest, nodes: tuple[str, ...] = ()) -> str:
        """Return a text about the sign that the container already has the device of ITEM, or "".

        For a request without a kind, each GPU is a sign. In this case a device plugin has chosen the GPU, and
        the environment only repeats the choice. For a request with a kind, the container must have all NODES
        of the GPU. NODES is empty if the nodes are unknown.
        """
        if (device := f"{item.kind or GPU}={item.token}") in self._cdi_devices:
            return f"CDI device {shown(device)}"
        if not item.qualified:
            alike = (name for name in sorted(self._cdi_devices) if self._is_same_class(name, item))
            if device := next(alike, ""):
                return f"CDI device {shown(device)}"
        if self._is_privileged or not self._nodes:
            return ""
        if item.qualified and nodes:
            node = nodes[0] if self._nodes.issuperset(nodes) else ""
        else:
            node = self._evident_node(item)
        return f"device node {shown(node)}" if node else ""

    def lacks_driver(self) -> bool:
        """Return whether the container has nodes of NVIDIA GPUs, but no sign of the driver's files.

        A device plugin can pass only nodes, and expect NVIDIA's runtime to inject the files. A CDI device of
        a kind of NVIDIA GPUs is a sign of the files. CDI devices of other kinds, such as network cards, are
        no sign. If a device of another kind injects the files, their mounts are a sign.
        """
        if self._has_driver or not _node(self._nodes, _GPUS):
            return False
        return not any(self._is_gpu_kind(device.partition("=")[0]) for device in self._cdi_devices)

    def _evident_node(self, item: DeviceRequest) -> str:
        """Return the node that shows the device of ITEM, or "" if there is no such node."""
        kind, token = item.kind or GPU, item.token
        if is_gpu(kind, self._gpu_kinds):
            has_wsl = self._has_driver and _WSL in self._nodes
            return _node(self._nodes, _GPUS) or (_WSL if has_wsl else "")
        if rule := _NODES.get(kind):
            return _node(self._nodes, rule.replace("{token}", re.escape(token)))
        row = self._vendor_variables.of_kind(kind)
        # For a request with a kind, the number of the node must match, if the node has a number.
        number = token if item.qualified and token.isdecimal() else ""
        return _node(self._nodes, row.nodes, number) if row else ""

    def _is_same_class(self, device: str, item: DeviceRequest) -> bool:
        """Return whether the CDI device DEVICE has the device class that ITEM requests.

        The vendor names in DEVICE and ITEM can be different.
        """
        own, _, name = device.partition("=")
        kind = item.kind or GPU
        if is_gpu(kind, self._gpu_kinds):
            return self._is_gpu_kind(own)
        if row := self._vendor_variables.of_kind(kind):
            return re.fullmatch(row.allocated_kinds, own) is not None
        alike = own.partition("/")[2] == kind.partition("/")[2] and name == item.token
        return alike and is_nvidia(own) and is_nvidia(kind)

    def _is_gpu_kind(self, kind: str) -> bool:
        return kind in self._gpu_kinds or bool(_GPU_KIND.fullmatch(kind))


def is_gpu(kind: str, gpu_kinds: frozenset[str]) -> bool:
    """Return whether devices of KIND are NVIDIA GPUs for applications.

    The result is false for management kinds.
    """
    return kind in gpu_kinds or kind == GPU or kind.startswith(f"{GPU}-")


def _node(nodes: frozenset[str], rule: str, number: str = "") -> str:
    """Return the first of NODES that matches RULE, or "" if no node matches.

    If NUMBER is not empty and the node has a number, both numbers must be equal.
    """
    matches = _matching(nodes, rule)
    return next((node for node, found in matches if not number or found in {number, ""}), "")


# For a container that requests 64 GPUs, the function is called 64 times with the same nodes.
@lru_cache(maxsize=16)
def _matching(nodes: frozenset[str], rule: str) -> tuple[tuple[str, str], ...]:
    """Return the NODES that match RULE, each with the text of the last group in RULE."""
    matches = (re.fullmatch(rule, node) for node in sorted(nodes))
    return tuple([(m[0], m[m.lastindex] if m.lastindex else "") for m in matches if m])


def is_privileged(container: Container) -> bool:
    """Return whether CONTAINER is privileged.

    The result is also false if a privileged container has none of the two changes.
    """
    return container.may_use_all_devices or any(
        mount.destination == _SYS and mount.type == "sysfs" and "ro" not in mount.options
        for mount in container.mounts
    )


def conflicting_plugins(plugins: Iterable[str], readers: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the PLUGINS (``10-name``) that read annotations of READERS, as pairs of plugin and reader."""
    return tuple(
        (name, reader)
        for name in sorted(plugins)
        for rule, reader in _INJECTORS
        if reader in readers and rule.fullmatch(name)
    )


def injected_by_other_plugin(
    container: Container, annotations: tuple[tuple[str, str], ...]
) -> tuple[str, ...]:
    """Return the annotations for which another NRI plugin has injected devices into CONTAINER.

    CONTAINER is a running container into which cdigen has injected no devices. ANNOTATIONS are pairs of
    annotation and reader. The result is empty if the runtime reports CDI devices of the container, because a
    device plugin can have requested these devices.
    """
    has_nodes = any(re.fullmatch(r"/dev/(?:nvidia[0-9]+|dxg|kfd)", node) for node in container.devices)
    if container.cdi_devices or is_privileged(container) or not has_nodes:
        return ()
    return tuple(name for name, reader in annotations if reader != "cdigen")
