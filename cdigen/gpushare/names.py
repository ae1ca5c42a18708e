"""What resources, annotations and objects are called: gpushare's names, and ours beside them.

Sources: AliyunContainerService/gpushare-device-plugin, pkg/gpu/nvidia/const.go, and
gpushare-scheduler-extender, pkg/utils/const.go.
"""

from __future__ import annotations

import hashlib

from cdigen.value import frozen


@frozen
class Resources:
    """The extended resources: units of memory of all GPUs of a node, and their number."""

    memory: str = "aliyun.com/gpu-mem"
    count: str = "aliyun.com/gpu-count"


# Annotations of a pod. Where it is: the GPU's index, or several with commas.
INDEX = "ALIYUN_COM_GPU_MEM_IDX"
# Units of that GPU, and of the pod.
OF_GPU = "ALIYUN_COM_GPU_MEM_DEV"
OF_POD = "ALIYUN_COM_GPU_MEM_POD"
# When the extender chose, in nanoseconds since 1970; whether the node has given it to the containers.
ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
# JSON, {index of the container: {index of the GPU: units}}: 'kubectl inspect gpushare' reads it before INDEX.
ALLOCATION = "scheduler.framework.gpushare.allocation"
# Ours: the namespace in which the extender that bound the pod keeps its ledgers.
LEDGER_IN = "cdigen.dev/gpu-mem-ledger"
# Only a variable of the container: its own units.
OF_CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"

# Our annotation of a node: the size and health of each of its GPUs (``nodes.node_annotation``).
GPUS = "cdigen.dev/gpu-mem"
# ConfigMaps of kube-system that list unhealthy GPUs of a node; the second is of gpushare's first releases.
UNHEALTHY = ("unhealthy-gpu-", "unhealthy-")
UNHEALTHY_NAMESPACE = "kube-system"
UNHEALTHY_KEY = "gpus"

# Where ledgers are if nobody says it, and the key of the ConfigMap with the ledger of a node.
LEDGERS = "cdigen"
LEDGER_KEY = "claims"
_LEDGER = "cdigen-gpu-mem-"
_MAX_NAME = 253
_DIGEST = 16


def ledger_name(node: str) -> str:
    """Return the name of the object that holds NODE's ledger; one that would be too long has a digest."""
    name = _LEDGER + node
    if len(name) <= _MAX_NAME:
        return name
    digest = hashlib.sha256(node.encode()).hexdigest()[:_DIGEST]
    return f"{name[: _MAX_NAME - _DIGEST - 1].rstrip('.-')}-{digest}"
