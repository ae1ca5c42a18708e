"""Whether a container has its devices already, from another plugin or kubelet: ``already_injected``. Pure.

kubelet, a device plugin or a claim (DRA) request CDI devices of the runtime before any NRI plugin is called.
What they gave shows as names of CDI devices (containerd 2.3), as device nodes, and as
NVIDIA_VISIBLE_DEVICES=void, which every spec of NVIDIA GPUs sets. A device that is injected twice has its
hooks run twice.
"""

from __future__ import annotations

import re
from functools import lru_cache

from cdigen.host.root import shown
from cdigen.model.view import DEFAULT_TARGET, view_target
from cdigen.nri.decision.privileged import is_privileged
from cdigen.nri.decision.request import is_nvidia
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.nri.decision.makers import Makers
    from cdigen.nri.decision.request import DeviceRequest
    from cdigen.nri.pods import Container

# Family -> the nodes by which it shows.
_NODES = {
    "nvidia.com/imex-channel": r"/dev/nvidia-caps-imex-channels/channel{token}",
    "nvidia.com/gds": r"/dev/nvidia-fs[0-9]*",
    "nvidia.com/gdrcopy": r"/dev/gdrdrv",
    "nvidia.com/mofed": r"/dev/infiniband/uverbs[0-9]+",
    "nvidia.com/nvswitch": r"/dev/nvidia-nvswitch(?:ctl|[0-9]+)",
}
# GPUs of NVIDIA, Tegra's as well. nvidiactl and nvidia-uvm are for all, and no GPU. WSL2 has one node for the
# GPUs of every vendor: there the driver's files show whose it is.
_GPUS = r"/dev/(?:nvidia[0-9]+|nvhost-gpu|nvgpu/igpu[0-9]+/.+)"
_WSL = "/dev/dxg"
GPU = "nvidia.com/gpu"
# Kinds by which GPUs of NVIDIA are given: specs of cdigen and of NVIDIA's toolkit, also those of runtimes and
# administrators (runtime.nvidia.com/gpu, management.nvidia.com/gpu), NVIDIA's device plugin
# (k8s.device-plugin.nvidia.com/gpu), its DRA driver (k8s.gpu.nvidia.com/claim). Not: channels
# (k8s.compute-domain.nvidia.com), what virtual machines get (nvidia.com/pgpu), MIG's administration.
_GPU_KIND = re.compile(
    r"(?:[a-z0-9.-]+\.)?nvidia\.com/(?:gpu.*|mig[-_.].+)|k8s\.gpu\.nvidia\.com/(?:claim|device)"
    r"|nvidia\.com/management",
    re.IGNORECASE | re.ASCII,
)
# Files of NVIDIA's driver by their names, and the places where containers have views of it.
_DRIVER = re.compile(
    r"/(?:libcuda|libnvidia-ml|libdxcore)\.so"
    rf"|^(?:{re.escape(DEFAULT_TARGET)}|{re.escape(view_target('nvidia.com/'))}[^/]+)(?:/|$)",
    re.ASCII,
)

# Whose annotations another plugin reads, by how it is called (NN-name): as its file in the runtime's plugin
# folder, or as validators are told. NVIDIA's is part of its toolkit's container, has no file, and is called
# as its program is: NRI's stub takes that where no name is given (ensureIdentity).
_INJECTORS = (
    (re.compile(r"[0-9]{2}-(?:.*[-_.])?device-injector(?:[-_.].*)?"), "noderesource"),
    (re.compile(r"[0-9]{2}-nvidia-(?:ctk-installer|toolkit)"), "nvidia"),
)


@frozen
class InjectionEvidence:
    """What shows that a container has devices: names of CDI devices and paths of nodes.

    ``is_privileged``: the nodes are the host's own, all of them, and say nothing. ``has_driver``: files of
    NVIDIA's driver are mounted, or the environment is that of a spec.
    """

    cdi_devices: frozenset[str]
    nodes: frozenset[str]
    is_privileged: bool
    has_driver: bool


def injection_evidence(container: Container, visible: str | None) -> InjectionEvidence:
    """Return what shows on CONTAINER, whose NVIDIA_VISIBLE_DEVICES is VISIBLE (None: not set)."""
    nodes = frozenset(container.devices)
    return InjectionEvidence(
        cdi_devices=frozenset(container.cdi_devices),
        nodes=nodes,
        is_privileged=is_privileged(container),
        has_driver=visible == "void" or any(_DRIVER.search(mount.destination) for mount in container.mounts),
    )


def already_injected(
    found: InjectionEvidence,
    item: DeviceRequest,
    *,
    gpu_kinds: frozenset[str],
    makers: Makers,
    nodes: tuple[str, ...] = (),
) -> str:
    """Return what shows that a container has what ITEM requests; empty where nothing does.

    GPU_KINDS are kinds of NVIDIA GPUs whatever their names. Without a kind any GPU will do: who gave it has
    decided which, and the environment only repeats it. For one that was named in full by its kind the nodes
    of that GPU have to be there, which are NODES, or unknown if empty. MAKERS tell how the devices of others
    show.
    """
    kind = item.kind or GPU
    if (device := f"{kind}={item.token}") in found.cdi_devices:
        return f"CDI device {shown(device)}"
    if not item.qualified:
        same = (name for name in sorted(found.cdi_devices) if _is_alike(name, item, gpu_kinds, makers))
        if device := next(same, ""):
            return f"CDI device {shown(device)}"
    if found.is_privileged or not found.nodes:
        return ""
    if item.qualified and nodes:
        node = nodes[0] if found.nodes.issuperset(nodes) else ""
    else:
        node = _shows(found, item, gpu_kinds, makers)
    return f"device node {shown(node)}" if node else ""


def _shows(found: InjectionEvidence, item: DeviceRequest, gpu_kinds: frozenset[str], makers: Makers) -> str:
    """Return the node that shows the device of ITEM, empty where there is none."""
    kind, token = item.kind or GPU, item.token
    if is_gpu(kind, gpu_kinds):
        return _node(found.nodes, _GPUS) or (_WSL if found.has_driver and _WSL in found.nodes else "")
    if rule := _NODES.get(kind):
        return _node(found.nodes, rule.replace("{token}", re.escape(token)))
    row = makers.of_kind(kind)
    # One that was named in full is told by its number, where its node has it.
    number = token if item.qualified and token.isdecimal() else ""
    return _node(found.nodes, row.nodes, number) if row else ""


def _node(nodes: frozenset[str], rule: str, number: str = "") -> str:
    """Return the first of NODES by RULE; its group, where it has matched, is NUMBER, unless that is empty."""
    return next((node for node, own in _matching(nodes, rule) if not number or own in {number, ""}), "")


# A container that asks for 64 GPUs asks 64 times for the same.
@lru_cache(maxsize=16)
def _matching(nodes: frozenset[str], rule: str) -> tuple[tuple[str, str], ...]:
    """Return those of NODES that match RULE, each with what the group in it has matched."""
    matches = (re.fullmatch(rule, node) for node in sorted(nodes))
    return tuple([(m[0], m[m.lastindex] if m.lastindex else "") for m in matches if m])


def lacks_driver(found: InjectionEvidence, gpu_kinds: frozenset[str]) -> bool:
    """Return whether nodes of NVIDIA GPUs are there and nothing shows that the driver's files are.

    So it is where a device plugin passes nodes and leaves the rest to NVIDIA's runtime, which is not there.
    CDI devices show the files where they are of GPU_KINDS or other kinds of NVIDIA GPUs: a network card does
    not, and what another vendor's brings shows as mounts.
    """
    if found.has_driver or not _node(found.nodes, _GPUS):
        return False
    return not any(_gives_gpus(device.partition("=")[0], gpu_kinds) for device in found.cdi_devices)


def other_injectors(plugins: Iterable[str], readers: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return which of PLUGINS (``10-name``) read annotations of READERS as well, and whose."""
    return tuple(
        (name, reader)
        for name in sorted(plugins)
        for rule, reader in _INJECTORS
        if reader in readers and rule.fullmatch(name)
    )


def injected_by_another(container: Container, asked: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return the annotations by which another plugin must have given a running CONTAINER devices.

    We have not, and ASKED are pairs of annotation and reader. A device plugin that serves it, too, shows as
    CDI devices where the runtime tells them.
    """
    found = injection_evidence(container, None)
    has_nodes = any(re.fullmatch(r"/dev/(?:nvidia[0-9]+|dxg|kfd)", node) for node in found.nodes)
    if found.cdi_devices or found.is_privileged or not has_nodes:
        return ()
    return tuple(name for name, reader in asked if reader != "cdigen")


def _is_alike(device: str, item: DeviceRequest, gpu_kinds: frozenset[str], makers: Makers) -> bool:
    """Return whether the CDI name DEVICE, of whichever vendor's name, is such a device as ITEM requests."""
    own, _, name = device.partition("=")
    kind = item.kind or GPU
    if is_gpu(kind, gpu_kinds):
        return _gives_gpus(own, gpu_kinds)
    if row := makers.of_kind(kind):
        return re.fullmatch(row.given_as, own) is not None
    same = own.partition("/")[2] == kind.partition("/")[2] and name == item.token
    return same and is_nvidia(own) and is_nvidia(kind)


def _gives_gpus(kind: str, gpu_kinds: frozenset[str]) -> bool:
    return kind in gpu_kinds or bool(_GPU_KIND.fullmatch(kind))


def is_gpu(kind: str, gpu_kinds: frozenset[str]) -> bool:
    """Return whether devices of KIND are GPUs of NVIDIA for programs, and not all of them for tools."""
    return kind in gpu_kinds or kind == GPU or kind.startswith(f"{GPU}-")
