"""Check that the fabric manager runs on a host with NVSwitches (``findings``).

Without NVSwitches, the fabric manager has no task and ends with an error, which is no problem of the host.
Source: NVIDIA's Fabric Manager User Guide; the PID file is in the unit of the package nvidia-fabricmanager.
"""

from __future__ import annotations

from cdigen.host.sysfs import PCI_DEVICES, pci_devices
from cdigen.model.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.vendors.context import DiscoveryContext

RULE, UNIT = "fabric-manager-missing", "nvidia-fabricmanager.service"
# NVSwitches of the first three generations are PCI bridges of the sub-class "other". Those of the fourth
# generation are not on the PCI bus of the host.
_VENDOR, _CLASS = 0x10DE, 0x0680
# The fabric manager writes its PID file and its socket here. A driver container has a folder of its own.
_FOLDER = "/run/nvidia-fabricmanager"
_PROGRAMS = ("/usr/bin/nv-fabricmanager", f"/usr/lib/systemd/system/{UNIT}", f"/lib/systemd/system/{UNIT}")


def findings(context: DiscoveryContext) -> tuple[Finding, ...]:
    """Return a finding if the host has NVSwitches, and no fabric manager runs on it."""
    switches = pci_devices(context.host, vendor=_VENDOR, classes=(_CLASS,))
    if not switches or any(root.names(_FOLDER) for root in (context.host, context.driver)):
        return ()
    count = f"{len(switches)} NVSwitch{'' if len(switches) == 1 else 'es'}"
    is_installed = any(context.host.exists(path) for path in _PROGRAMS)
    return (
        Finding(
            severity="warning",
            rule=RULE,
            path=PCI_DEVICES,
            message=f"{count} ({switches[0][0]}), but nvidia-fabricmanager is not running: CUDA programs "
            "fail with 'system not yet initialized' (error 802)",
            hint="" if is_installed else "install nvidia-fabricmanager with the version of the driver",
        ),
    )
