"""Environment variables by which containers request accelerators of vendors that cdigen does not discover.

Other programs write the specs of these accelerators. The first of the ``kinds`` is the kind that the vendor's
own programs write. A kind with the name of the Kubernetes resource follows, because users write specs with
this kind. The kind of DRA claims is the last.

Huawei's variable is described in Ascend/mind-cluster, component/ascend-docker-runtime (checkVisibleDevice,
parseAscendDevices). The kind of the claims is described in component/ascend-common/cdi. Huawei's DRA driver
writes a file for each claim, with the numbers of the NPUs as device names. GPUStack's runtime writes
huawei.com/npu. cdigen ignores ASCEND_RUNTIME_OPTIONS. Its value VIRTUAL is not needed, because the ids of
virtual NPUs are separate device names. Its value NODRV is not needed, because a spec contains the driver's
files.

AWS's variable is described in Neuron's documentation, in "Docker Neuron OCI Hook Setup" (``ALL``) and "Docker
environment setup for Neuron Runtime 1.x" (logical ids). Published programs write specs for DRA claims only.

Google's libtpu reads TPU_VISIBLE_CHIPS first, and then TPU_VISIBLE_DEVICES. TPUs up to v4 have the nodes
/dev/accelN. Later TPUs have VFIO groups. No published program writes specs.
"""

from __future__ import annotations

import re

from cdigen.vendors.base import VisibleDevices, named

# The device ids of Huawei's device plugin have the form Ascend910-3, in later releases npu-3.
_ASCEND = re.compile(r"(?:Ascend(?:910|310|310B|310P)|npu)-([0-9]{1,9})", re.ASCII)


def ascend_names(word: str) -> tuple[str, ...]:
    """Return the name that the NPU with the id WORD has in specs. The name is the number in the id."""
    found = _ASCEND.fullmatch(word)
    return (found[1] if found else word,)


VISIBLE_DEVICES = (
    VisibleDevices(
        variables=("ASCEND_VISIBLE_DEVICES",),
        kinds=("huawei.com/npu", "ascend.com/npu"),
        claimed=("ascend.com/npu",),
        allocated_kinds=r"ascend\.com/.+|(?:.+\.)?huawei\.com/.+",
        # In a container, the node of a virtual NPU (vdavinci100) also has such a path.
        nodes=r"/dev/davinci([0-9]+)",
        names=ascend_names,
        has_ranges=True,
    ),
    VisibleDevices(
        variables=("AWS_NEURON_VISIBLE_DEVICES",),
        kinds=("aws.amazon.com/neuron",),
        allocated_kinds=r"aws\.amazon\.com/neuron.*|(?:.+\.)?neuron\.aws\.com/.+",
        nodes=r"/dev/neuron([0-9]+)",
        names=named("neuron"),
    ),
    VisibleDevices(
        variables=("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"),
        kinds=("google.com/tpu",),
        allocated_kinds=r"google\.com/tpu.*|(?:.+\.)?tpu\.google\.com/.+",
        # The number of a VFIO group is not the number of the chip.
        nodes=r"/dev/accel([0-9]+)|/dev/vfio/[0-9]+",
        names=named("accel"),
    ),
)
