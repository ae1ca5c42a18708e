"""The health of NVIDIA's GPUs (``HEALTH``), from NVML, the PCI bus, and the Xids in the kernel's log.

``probe`` reads GPUs whose driver state is kept (``is_kept``). docs/reference/health-causes.md describes when
each cause is cleared.
"""

from __future__ import annotations

from cdigen.vendors.health import VendorHealth
from cdigen.vendors.kernel.pci import health as pci_health
from cdigen.vendors.nvidia.health import log, xids
from cdigen.vendors.nvidia.health.probe import PROBE_CAUSES, probe

HEALTH = VendorHealth(
    causes=(*xids.RULES, *PROBE_CAUSES, *pci_health.PCI_CAUSES),
    modules=("nvidia",),
    check=pci_health.check,
    parse_log=log.parse_log,
    parse_uevents=pci_health.parse_uevents,
    probe=probe,
)
