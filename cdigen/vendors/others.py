"""How containers ask for accelerators of makers whose devices cdigen does not discover, by their variables.

Their specs are written by others. The kinds are those that the maker's own programs write, then the name of
the resource in Kubernetes, which whoever writes a spec by hand takes for its kind; one of claims comes last.

Huawei: Ascend/mind-cluster, component/ascend-docker-runtime (checkVisibleDevice, parseAscendDevices) and
component/ascend-common/cdi (the kind: its DRA driver writes a file for each claim, with the NPUs' numbers as
names); huawei.com/npu is what GPUStack's runtime writes.
ASCEND_RUNTIME_OPTIONS is not read: the ids of virtual NPUs (VIRTUAL) are names of their own, and the driver's
files come with a spec (NODRV).

AWS: Neuron's documentation, "Docker Neuron OCI Hook Setup" (``ALL``) and "Docker environment setup for Neuron
Runtime 1.x" (logical ids). No program that is published writes specs, but for claims.

Google: libtpu itself reads both variables, TPU_VISIBLE_CHIPS first. The nodes of TPUs up to v4 are
/dev/accelN, those of later ones VFIO groups. No program that is published writes specs.
"""

from __future__ import annotations

import re

from cdigen.vendors.base import VisibleDevices

# The device plugin's ids: Ascend910-3, and npu-3 of later releases.
_ASCEND = re.compile(r"(?:Ascend(?:910|310|310B|310P)|npu)-([0-9]{1,9})", re.ASCII)


def ascend_names(word: str) -> tuple[str, ...]:
    """Return how specs call the NPU that WORD names: by its number."""
    found = _ASCEND.fullmatch(word)
    return (found[1] if found else word,)


def neuron_names(word: str) -> tuple[str, ...]:
    """Return how specs may call the Neuron device with the number WORD: by it, or by its node."""
    return (word, f"neuron{word}")


def tpu_names(word: str) -> tuple[str, ...]:
    """Return how specs may call the TPU with the number WORD: by it, or by its node."""
    return (word, f"accel{word}")


VISIBLE_DEVICES = (
    VisibleDevices(
        variables=("ASCEND_VISIBLE_DEVICES",),
        kinds=("huawei.com/npu", "ascend.com/npu"),
        claimed=("ascend.com/npu",),
        given_as=r"ascend\.com/.+|(?:.+\.)?huawei\.com/.+",
        # In a container a virtual NPU (vdavinci100) has such a node as well.
        nodes=r"/dev/davinci([0-9]+)",
        names=ascend_names,
        has_ranges=True,
    ),
    VisibleDevices(
        variables=("AWS_NEURON_VISIBLE_DEVICES",),
        kinds=("aws.amazon.com/neuron",),
        given_as=r"aws\.amazon\.com/neuron.*|(?:.+\.)?neuron\.aws\.com/.+",
        nodes=r"/dev/neuron([0-9]+)",
        names=neuron_names,
    ),
    VisibleDevices(
        variables=("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"),
        kinds=("google.com/tpu",),
        given_as=r"google\.com/tpu.*|(?:.+\.)?tpu\.google\.com/.+",
        # The number of a VFIO group says nothing of the chip's.
        nodes=r"/dev/accel([0-9]+)|/dev/vfio/[0-9]+",
        names=tpu_names,
    ),
)
