"""NPUs of intel_vpu: each is one accelerator node (drivers/accel/ivpu of the kernel makes no other).

The index counts them by their PCI addresses; there has been one in a processor so far.
"""

from __future__ import annotations

from cdigen.vendors.intel.accel import find_minor, read_accelerator
from cdigen.vendors.intel.gpu import is_unbound
from cdigen.vendors.intel.tables import NPU

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.model.inventory import Accelerator
    from cdigen.vendors.intel.pci import PciFunction
    from cdigen.vendors.intel.scan import NodeScan


def read_npus(scan: NodeScan, functions: Iterable[PciFunction]) -> tuple[Accelerator, ...]:
    """Read the NPUs that their driver has; each trouble is a finding."""
    served = [each for each in functions if each.device_class == NPU and not is_unbound(each)]
    return tuple(
        read_accelerator(scan, function, index, find_minor(scan.host, function), lambda _: ())
        for index, function in enumerate(served)
    )
