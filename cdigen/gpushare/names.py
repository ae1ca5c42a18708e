"""The names of resources, annotations and objects of gpushare and of cdigen.

The sources are AliyunContainerService/gpushare-device-plugin, pkg/gpu/nvidia/const.go, and
gpushare-scheduler-extender, pkg/utils/const.go.
"""

from __future__ import annotations

import hashlib

from cdigen.value import frozen


@frozen
class Resources:
    """The names of two extended resources of a node: the memory units, and the number of GPUs."""

    memory: str = "aliyun.com/gpu-mem"
    count: str = "aliyun.com/gpu-count"


# Annotations of a pod. INDEX has the index of the pod's GPU, or several indices separated by commas.
INDEX = "ALIYUN_COM_GPU_MEM_IDX"
# The memory units of the GPU, and of the pod.
OF_GPU = "ALIYUN_COM_GPU_MEM_DEV"
OF_POD = "ALIYUN_COM_GPU_MEM_POD"
# The time when the extender chose the GPUs, in nanoseconds since 1970.
ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
# Whether the node has allocated the GPUs.
ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
# JSON of the form {index of the container: {index of the GPU: units}}. For 'kubectl inspect gpushare', this
# annotation has precedence over INDEX.
ALLOCATION = "scheduler.framework.gpushare.allocation"
# An annotation of cdigen with the namespace of the ledgers. The extender that bound the pod uses these
# ledgers.
LEDGER_NAMESPACE = "cdigen.dev/gpu-mem-ledger"
# An environment variable (not an annotation) with the memory units of the container.
OF_CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"

# An annotation of cdigen on a Node, with the size and health of each GPU (``nodes.node_annotation``).
GPUS = "cdigen.dev/gpu-mem"
# ConfigMaps in kube-system list the unhealthy GPUs of a node. The name of such a ConfigMap is a prefix and
# the node's name. The first releases of gpushare use the second prefix.
UNHEALTHY = ("unhealthy-gpu-", "unhealthy-")
UNHEALTHY_NAMESPACE = "kube-system"
UNHEALTHY_KEY = "gpus"

# The default namespace of ledgers, and the key in the ConfigMap of a ledger.
DEFAULT_LEDGER_NAMESPACE = "cdigen"
LEDGER_KEY = "reservations"
_LEDGER = "cdigen-gpu-mem-"
_MAX_NAME = 253
_DIGEST = 16


def ledger_name(node: str) -> str:
    """Return the name of the ConfigMap with NODE's ledger; a long name is cut and ends with a digest."""
    name = _LEDGER + node
    if len(name) <= _MAX_NAME:
        return name
    digest = hashlib.sha256(node.encode()).hexdigest()[:_DIGEST]
    return f"{name[: _MAX_NAME - _DIGEST - 1].rstrip('.-')}-{digest}"
