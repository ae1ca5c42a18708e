"""All labels of a node: ``node_labels``. Pure."""

from __future__ import annotations

from cdigen.kubelet.labels import nvidia, others
from cdigen.kubelet.labels.devices import labelled_devices
from cdigen.kubelet.labels.words import is_label
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.kubelet.labels.words import Label
    from cdigen.kubelet.resources.model import Resource
    from cdigen.model.inventory import Inventory


@frozen
class Offered:
    """What a node offers, and what else labels are made of.

    ``resources`` are what pods can ask for of the devices of ``inventories``; those in ``by_mps`` are shared
    by the Multi-Process Service, ``memory`` has units of memory. ``running`` are the versions of the drivers
    that run, by vendor, where they tell one; ``machine`` is the host's model.
    """

    resources: tuple[Resource, ...]
    inventories: Mapping[str, Inventory]
    by_mps: frozenset[str] = frozenset()
    memory: str = ""
    mig_strategy: str = "mixed"
    running: Mapping[str, str]
    machine: str = ""


def node_labels(of: Offered) -> tuple[Label, ...]:
    """Return the labels of a node by name, each a pair of name and value that Kubernetes takes.

    A device counts if it is in a resource, also while it is unhealthy: as in the node's capacity.
    """
    devices = labelled_devices(of.resources, of.inventories, of.by_mps, of.memory)
    by_vendor = {vendor: [each for each in devices if each.vendor == vendor] for vendor in of.inventories}
    found: list[Label] = []
    for vendor, those in by_vendor.items():
        inventory = of.inventories[vendor]
        has_driver = of.running.get(vendor, "") in {"", inventory.driver.version}
        if vendor == "nvidia":
            found += nvidia.labels(
                those,
                inventory,
                mig_strategy=of.mig_strategy,
                machine=of.machine,
                has_driver=has_driver,
            )
        elif vendor == "amd":
            found += others.amd(those, inventory.driver, has_driver=has_driver)
        elif vendor == "intel":
            found += others.intel(those)
    return tuple(sorted({name: value for name, value in found if is_label((name, value))}.items()))
