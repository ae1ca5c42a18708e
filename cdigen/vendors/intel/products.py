"""Intel's products by PCI device number, and the firmware that Intel's drivers need.

The PCI device numbers are from the kernel's include/drm/intel/pciids.h (GPUs), drivers/accel/ivpu/ivpu_drv.h
(NPUs) and drivers/accel/habanalabs/common/habanalabs_drv.c (Gaudi). The product names are from Intel's list
"Hardware" at dgpu-docs.intel.com.
"""

from __future__ import annotations

from cdigen.value import frozen

_FLEX, _ARC, _ARC_PRO, _MAX = "Data Center GPU Flex", "Arc", "Arc Pro", "Data Center GPU Max"
MODELS = {
    "0x0b69": f"{_MAX} 1550",
    "0x0bd0": f"{_MAX} 1550",
    "0x0bd5": f"{_MAX} 1550",
    "0x0bd6": f"{_MAX} 1450",
    "0x0bd9": f"{_MAX} 1100",
    "0x0bda": f"{_MAX} 1100",
    "0x0bdb": f"{_MAX} 1100",
    "0x4905": "Iris Xe MAX",
    "0x56a0": f"{_ARC} A770",
    "0x56a1": f"{_ARC} A750",
    "0x56a2": f"{_ARC} A580",
    "0x56a5": f"{_ARC} A380",
    "0x56a6": f"{_ARC} A310",
    "0x56b0": f"{_ARC_PRO} A30M",
    "0x56b1": f"{_ARC_PRO} A40/A50",
    "0x56b2": f"{_ARC_PRO} A60M",
    "0x56b3": f"{_ARC_PRO} A60",
    "0x56c0": f"{_FLEX} 170",
    "0x56c1": f"{_FLEX} 140",
    "0xe20b": f"{_ARC} B580",
    "0xe20c": f"{_ARC} B570",
    "0xe211": f"{_ARC_PRO} B60",
    "0xe212": f"{_ARC_PRO} B50",
    "0xe222": f"{_ARC_PRO} B65",
    "0xe223": f"{_ARC_PRO} B70",
    "0x1000": "Gaudi",
    "0x1001": "Gaudi",
    "0x1010": "Gaudi",
    "0x1011": "Gaudi",
    "0x1020": "Gaudi2",
    "0x1030": "Gaudi3",
    "0x1060": "Gaudi3",
    "0x1061": "Gaudi3",
    "0x1062": "Gaudi3",
    "0x1063": "Gaudi3",
    "0x7d1d": "NPU (Meteor Lake)",
    "0xad1d": "NPU (Arrow Lake)",
    "0x643e": "NPU (Lunar Lake)",
    "0xb03e": "NPU (Panther Lake)",
    "0xfd3e": "NPU (Wildcat Lake)",
    "0xd71d": "NPU (Nova Lake)",
}


@frozen
class FirmwareRequirement:
    """A firmware that a driver loads.

    The files of the firmware are in ``folders``, and have ``part`` in their names. ``without`` is the
    consequence of missing firmware. ``needs`` is true if the driver cannot bind to a device without the
    firmware. If such a driver has a device, the driver has found the firmware. The firmware may be in the
    initramfs, which cdigen cannot read.
    """

    driver: str
    folders: tuple[str, ...]
    part: str
    name: str
    without: str
    needs: bool = False


# With GPUs older than DG2, i915 works without firmware. xe needs firmware for all GPUs
# (Documentation/gpu/i915.rst, "Microcontrollers"; Documentation/gpu/xe/xe_firmware.rst). For GPUs that i915
# also supports, xe's firmware is in i915's folder.
FIRMWARE = (
    FirmwareRequirement(
        driver="i915",
        folders=("i915",),
        part="_guc_",
        name="GuC",
        without="Arc, Flex and newer GPUs do not work, and older ones have no HuC",
    ),
    FirmwareRequirement(
        driver="i915",
        folders=("i915",),
        part="_huc",
        name="HuC",
        without="the video encoders lack their low-power modes",
    ),
    FirmwareRequirement(
        driver="xe",
        folders=("xe", "i915"),
        part="_guc_",
        name="GuC",
        without="xe binds to no GPU",
        needs=True,
    ),
    FirmwareRequirement(
        driver="xe",
        folders=("xe", "i915"),
        part="_huc",
        name="HuC",
        without="the GPU does not encode or decode some video formats",
    ),
    FirmwareRequirement(
        driver="intel_vpu",
        folders=("intel/vpu",),
        part="vpu",
        name="NPU",
        without="the driver binds to no NPU",
        needs=True,
    ),
)
