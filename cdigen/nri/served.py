"""Whether somebody else has given a container its devices, and who else may: ``Signs``. Pure.

kubelet, a device plugin or a claim (DRA) ask the runtime for CDI devices before any plugin is called. What
they gave shows as names of CDI devices (containerd 2.3), as device nodes, and as NVIDIA_VISIBLE_DEVICES=void,
which is in every spec of NVIDIA GPUs and asks for nothing. A device given twice has its hooks run twice.
"""

from __future__ import annotations

import re
from functools import lru_cache

from cdigen.nri.request import is_nvidia_gpu
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.nri.pods import Container
    from cdigen.nri.request import Item

# Kind -> the nodes by which it shows. Kinds that begin as the last ones do are GPUs.
_NODES = (
    ("nvidia.com/imex-channel", r"/dev/nvidia-caps-imex-channels/channel{token}"),
    ("nvidia.com/gds", r"/dev/nvidia-fs[0-9]*"),
    ("nvidia.com/gdrcopy", r"/dev/gdrdrv"),
    ("nvidia.com/mofed", r"/dev/infiniband/uverbs[0-9]+"),
    ("nvidia.com/nvswitch", r"/dev/nvidia-nvswitch(?:ctl|[0-9]+)"),
    ("nvidia.com/mig", ""),  # its nodes are numbered among those of MIG instances
    ("nvidia.com/", r"/dev/(?:nvidia[0-9]+|nvidiactl|dxg)"),
    ("amd.com/", r"/dev/(?:kfd|dri/renderD[0-9]+)"),
)
GPU = "nvidia.com/gpu"
# Nodes that no device plugin gives: a privileged container has them, and with them all of the host's.
_PRIVILEGED = frozenset(("/dev/mem", "/dev/port", "/dev/kmsg", "/dev/snapshot", "/dev/loop-control"))
_DRIVER = re.compile(r"/(?:libcuda|libnvidia-ml|libdxcore)\.so|^/usr/local/nvidia(?:/|$)", re.ASCII)

# Whose annotations another plugin reads, by how its file in the runtime's plugin folder may be called
# (NN-name); NVIDIA's is part of its toolkit's container and has no file.
_INJECTORS = ((re.compile(r"[0-9]{2}-(?:.*[-_.])?device-injector(?:[-_.].*)?"), "noderesource"),)


@frozen
class Signs:
    """What shows that a container was served: names of CDI devices and paths of nodes.

    ``is_privileged``: the nodes are the host's own, all of them, and say nothing. ``has_driver``: files of
    NVIDIA's driver are mounted, or the environment is that of a spec.
    """

    cdi_devices: frozenset[str]
    nodes: frozenset[str]
    is_privileged: bool
    has_driver: bool


def signs(container: Container, visible: str | None) -> Signs:
    """Return the signs on CONTAINER, whose NVIDIA_VISIBLE_DEVICES is VISIBLE (None: not set)."""
    nodes = frozenset(container.devices)
    return Signs(
        cdi_devices=frozenset(container.cdi_devices),
        nodes=nodes,
        is_privileged=bool(nodes & _PRIVILEGED),
        has_driver=visible == "void" or any(_DRIVER.search(mount.destination) for mount in container.mounts),
    )


def has(found: Signs, item: Item) -> str:
    """Return by what a container has what ITEM asks for; empty where it has it not."""
    kind = item.kind or GPU
    if found.cdi_devices:
        if (device := f"{kind}={item.token}") in found.cdi_devices:
            return f"CDI device {device}"
        # Who gave any device of the vendor decided which: the environment only repeats it.
        same = next((name for name in sorted(found.cdi_devices) if _is_alike(name, kind)), "")
        if same and not item.qualified:
            return f"CDI device {same}"
    if found.is_privileged or not found.nodes:
        return ""
    rule = next((rule for start, rule in _NODES if kind.startswith(start)), "")
    node = _node(found.nodes, rule.replace("{token}", re.escape(item.token))) if rule else ""
    return f"device node {node}" if node else ""


# A container that asks for 64 GPUs asks 64 times for the same.
@lru_cache(maxsize=16)
def _node(nodes: frozenset[str], rule: str) -> str:
    pattern = re.compile(rule)
    return next((node for node in sorted(nodes) if pattern.fullmatch(node)), "")


def lacks_driver(found: Signs) -> bool:
    """Return whether nodes of NVIDIA GPUs are there and nothing shows that the driver's files are.

    So it is where a device plugin passes nodes and leaves the rest to NVIDIA's runtime, which is not there.
    """
    has_nodes = any(re.fullmatch(r"/dev/nvidia[0-9]+", node) for node in found.nodes)
    return has_nodes and not found.has_driver and not found.cdi_devices


def other_injectors(plugin_files: Iterable[str], readers: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return which files of the runtime's plugin folder read annotations of READERS as well, and whose."""
    return tuple(
        (name, reader)
        for name in sorted(plugin_files)
        for rule, reader in _INJECTORS
        if reader in readers and rule.fullmatch(name)
    )


def injected_by_another(
    container: Container, asked: tuple[tuple[str, str], ...], marks: Mapping[str, str], mark: str
) -> tuple[str, ...]:
    """Return the annotations that another plugin must have served in a running CONTAINER.

    ASKED are pairs of annotation and reader, MARKS the container's annotations, of which MARK is the one that
    cdigen leaves. A device plugin that serves it, too, shows as CDI devices where the runtime tells them.
    """
    found = signs(container, None)
    has_nodes = any(re.fullmatch(r"/dev/(?:nvidia[0-9]+|dxg|kfd)", node) for node in found.nodes)
    if mark in marks or found.cdi_devices or found.is_privileged or not has_nodes:
        return ()
    return tuple(name for name, reader in asked if reader != "cdigen")


def _is_alike(device: str, kind: str) -> bool:
    """Return whether the CDI name DEVICE is of the same vendor's GPUs as KIND, in whichever way."""
    own = device.partition("=")[0]
    if kind == GPU:
        return is_nvidia_gpu(own)
    if kind == "amd.com/gpu":
        return own.split("/")[0].endswith("amd.com")
    return False
