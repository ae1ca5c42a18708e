"""The environment variable by which containers request Intel's Gaudis (HABANA_VISIBLE_DEVICES).

The variable has the same meaning as in HabanaAI/habana-container-runtime, cmd/habana-container-runtime
(filterDevicesByENV). The value is ``all``, or the numbers of the nodes /dev/accel/accelN. Other words match
no device. Habana's device plugin sets the variable in the same way. Gaudi images set ``all``.

The variables HABANA_VISIBLE_MODULES and HL_VISIBLE_DEVICES do not request devices. They only select some of
the devices that a process already has. There is no variable to request Intel's GPUs or NPUs. ZE_AFFINITY_MASK
and ONEAPI_DEVICE_SELECTOR also only select devices.
"""

from __future__ import annotations

from cdigen.vendors.base import VisibleDevices, named

VISIBLE_DEVICES = (
    VisibleDevices(
        variables=("HABANA_VISIBLE_DEVICES",),
        # cdigen, Intel's generator and Intel's DRA driver write the first kind. The second kind is the name
        # of the Kubernetes resource.
        kinds=("intel.com/gaudi", "habana.ai/gaudi"),
        allocated_kinds=r"(?:.+\.)?(?:intel\.com/gaudi|habana\.ai/).*",
        # Older drivers create /dev/hlN.
        nodes=r"/dev/accel/accel([0-9]+)|/dev/hl([0-9]+)",
        # The second name is the "classic" name of Intel's generator.
        names=named("accel"),
    ),
)
