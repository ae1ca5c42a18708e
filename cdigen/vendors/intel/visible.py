"""How containers ask for Intel's Gaudis: HABANA_VISIBLE_DEVICES.

Semantics: HabanaAI/habana-container-runtime, cmd/habana-container-runtime (filterDevicesByENV): ``all``, or
the numbers of the nodes /dev/accel/accelN; any other word names none. Its device plugin sets the variable so,
too, and images of Gaudi's have ``all``. What chooses among the devices that a process has asks for none:
HABANA_VISIBLE_MODULES, HL_VISIBLE_DEVICES. Nor is there a variable that asks for Intel's GPUs or NPUs:
ZE_AFFINITY_MASK and ONEAPI_DEVICE_SELECTOR choose likewise.
"""

from __future__ import annotations

from cdigen.vendors.base import VisibleDevices


def names(word: str) -> tuple[str, ...]:
    """Return how specs call the Gaudi with the number WORD: by it, or as Intel's "classic" naming does."""
    return (word, f"accel{word}")


VISIBLE_DEVICES = (
    VisibleDevices(
        variables=("HABANA_VISIBLE_DEVICES",),
        # cdigen, Intel's generator and its DRA driver write the first; the other is Kubernetes' resource.
        kinds=("intel.com/gaudi", "habana.ai/gaudi"),
        given_as=r"(?:.+\.)?(?:intel\.com/gaudi|habana\.ai/).*",
        # Older drivers make /dev/hlN.
        nodes=r"/dev/accel/accel([0-9]+)|/dev/hl([0-9]+)",
        names=names,
    ),
)
