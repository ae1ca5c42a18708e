"""Observe the host in one cycle: ``observe`` runs the discovery of all vendors."""

from __future__ import annotations

from cdigen.host import mounts
from cdigen.model.errors import ConfigError, HostError
from cdigen.pipeline import discovery
from cdigen.pipeline.driver import links
from cdigen.value import frozen
from cdigen.vendors.classes import GPU

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.daemon.setup import DaemonSetup
    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Accelerator, Inventory


@frozen
class Observation:
    """The inventory of each vendor, or the failure of its discovery.

    ``reported`` are the vendors in the daemon's status. ``findings`` are findings that belong to no vendor.
    The findings of a vendor are in its inventory.
    """

    inventories: dict[str, Inventory]
    failures: dict[str, HostError]
    reported: tuple[str, ...]
    findings: tuple[Finding, ...] = ()

    def all_findings(self) -> tuple[Finding, ...]:
        """Return the findings of the inventories, then ``findings``."""
        of_hosts = (finding for inventory in self.inventories.values() for finding in inventory.findings)
        return (*of_hosts, *self.findings)

    def left_out(self, vendor: str, device_class: str) -> int:
        """Return the number of VENDOR's devices that the spec of the class DEVICE_CLASS leaves out.

        The partitions of a split GPU are counted, not the GPU. Devices that the configuration excludes are
        not counted.
        """
        inventory = self.inventories.get(vendor)
        if inventory is None or device_class in {group.device_class for group in inventory.groups}:
            return 0
        others = {each.device_class for each in inventory.accelerators} - {GPU}
        # A class that is not in ``others`` is the class of a profile, such as gpu-compute, and contains GPUs.
        own = device_class if device_class in others else GPU
        return sum(
            _left_out(each)
            for each in inventory.accelerators
            if each.device_class == own and not each.excluded
        )


def _left_out(accelerator: Accelerator) -> int:
    if not accelerator.partitioned or not accelerator.partitions:
        return int(accelerator.partitioned or not accelerator.usable)
    parts = [part for part in accelerator.partitions if not part.excluded]
    return sum(not (accelerator.usable and part.usable) for part in parts)


def observe(setup: DaemonSetup, host: Root) -> Observation:
    """Return the present vendors and devices of HOST."""
    findings = list(mounts.findings(host.outer, setup.writable))
    try:
        context = setup.context(host)
    except ConfigError as error:
        # The driver container does not exist yet.
        failure = HostError(error.message, hint=error.hint, kind=discovery.NOT_LOADED)
        return Observation(
            inventories={},
            failures=dict.fromkeys(setup.vendors, failure),
            reported=setup.vendors if setup.are_named else setup.vendors[:1],
            findings=tuple(findings),
        )
    inventories, failures = discovery.discover(setup.vendors, context)
    inventories = links.with_known_links(inventories, context)
    unsaved = discovery.save_partition_names(inventories, failures, context, setup.state_dir)
    findings.extend(() if unsaved is None else (unsaved,))
    reported = setup.vendors
    if not setup.are_named:
        relevant = discovery.relevant_failures(inventories, failures, host)
        reported = tuple(name for name in setup.vendors if name in inventories or name in relevant)
        # A vendor that is not reported is absent, so the daemon waits for no change of this vendor.
        failures = {
            name: relevant.get(name) or HostError(error.message, hint=error.hint, kind=discovery.NOT_LOADED)
            for name, error in failures.items()
        }
    return Observation(
        inventories=inventories, failures=failures, reported=reported, findings=tuple(findings)
    )
