"""The health of a vendor's devices (``VendorHealth``), the type of the member HEALTH."""

from __future__ import annotations

from cdigen.model.health import HealthSample
from cdigen.value import frozen
from cdigen.vendors.context import constant

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.model.health import CauseRule, DeviceEvent, LogRecord, Recovery, Symptom
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.context import DiscoveryContext


@frozen
class VendorHealth:
    """The health functions of one vendor. They raise no exception, whatever the state of the host is.

    ``causes`` are the rules of the causes that the functions report. A load of one of ``modules`` is a
    recovery ``reload`` of all devices.

    ``check`` returns the health according to the kernel's files. The daemon calls it in every cycle. It is
    fast, and does not resume suspended devices. ``probe`` returns the health according to queries of the
    devices or of the vendor's library. It is slow. Child processes with deadlines make the queries, and it
    does not query suspended devices. The daemon calls it rarely, and after suspicious events, in a separate
    thread.

    ``parse_log`` returns the symptoms and recoveries in a record of the kernel log, and ``parse_uevents``
    those that a uevent reports. Both do not read the host. The results may contain devices that are not in
    the inventory yet. A record may be about another device, such as a PCIe port. Then the inventory shows
    which accelerators the fault of that device affects. The kernel does not repeat events when the daemon
    starts, and events can be lost. Therefore, if only an event reports a cause, the daemon must be able to
    clear the cause without another event.
    """

    causes: tuple[CauseRule, ...]
    modules: tuple[str, ...]
    check: Callable[[DiscoveryContext, Inventory], HealthSample]
    parse_log: Callable[[LogRecord, Inventory], tuple[Symptom | Recovery, ...]]
    parse_uevents: Callable[[DeviceEvent, Inventory], tuple[Symptom | Recovery, ...]]
    probe: Callable[[DiscoveryContext, Inventory], HealthSample] = constant(HealthSample(source="probe"))
