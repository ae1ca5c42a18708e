"""Observe the host in one cycle: ``observe`` asks every vendor what is there."""

from __future__ import annotations

from cdigen.host import mounts
from cdigen.model.errors import ConfigError, HostError
from cdigen.pipeline import device_nodes, discovery, links
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.daemon.setup import DaemonSetup
    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory


@frozen
class Observation:
    """What was found: the inventory of a vendor, or its failure.

    ``reported`` are the vendors that the status names; ``findings`` are those of observing, not of the
    inventories.
    """

    inventories: dict[str, Inventory]
    failures: dict[str, HostError]
    reported: tuple[str, ...]
    findings: tuple[Finding, ...] = ()

    def all_findings(self) -> tuple[Finding, ...]:
        """Return the findings of the inventories, then those of the observing."""
        of_hosts = (finding for inventory in self.inventories.values() for finding in inventory.findings)
        return (*of_hosts, *self.findings)

    def left_out(self, vendor: str) -> int:
        """Return how many devices of VENDOR cannot be offered."""
        inventory = self.inventories.get(vendor)
        return sum(not gpu.usable for gpu in inventory.accelerators) if inventory is not None else 0


def observe(setup: DaemonSetup, host: Root) -> Observation:
    """Return what is on HOST now, after making missing device nodes where SETUP says so."""
    findings = list(mounts.findings(host.outer, setup.writable))
    try:
        context = setup.context(host)
        if setup.create_nodes:
            findings.extend(device_nodes.make_nodes(setup.vendors, context))
            context = setup.context(host)
    except ConfigError as error:
        # A driver container that does not exist yet.
        failure = HostError(error.message, hint=error.hint, kind="driver-not-found")
        return Observation(
            inventories={},
            failures=dict.fromkeys(setup.vendors, failure),
            reported=setup.vendors if setup.are_named else setup.vendors[:1],
            findings=tuple(findings),
        )
    inventories, failures = discovery.discover(setup.vendors, context)
    inventories = links.with_known(inventories, context)
    unsaved = discovery.save_partition_names(inventories, failures, context, setup.state_dir)
    findings.extend(() if unsaved is None else (unsaved,))
    reported = setup.vendors
    if not setup.are_named:
        relevant = discovery.relevant_failures(inventories, failures, host)
        reported = tuple(name for name in setup.vendors if name in inventories or name in relevant)
        # A vendor that is not reported is absent: there is no change of it to wait for.
        failures = {
            name: relevant.get(name) or HostError(error.message, hint=error.hint, kind=discovery.NOT_LOADED)
            for name, error in failures.items()
        }
    return Observation(
        inventories=inventories, failures=failures, reported=reported, findings=tuple(findings)
    )
