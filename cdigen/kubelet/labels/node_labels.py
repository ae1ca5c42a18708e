"""``node_labels`` returns all labels of a node. No I/O."""

from __future__ import annotations

from cdigen.kubelet.labels import amd_intel, nvidia
from cdigen.kubelet.labels.devices import labelled_devices
from cdigen.kubelet.labels.label_values import is_label
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.kubelet.labels.label_values import Label
    from cdigen.kubelet.resources.model import Resource
    from cdigen.model.inventory import Inventory


@frozen
class NodeResources:
    """The advertised resources of a node, and the other sources of the node's labels.

    ``resources`` have the devices of ``inventories``. ``running`` has the version of each loaded driver by
    vendor, for drivers with a version. ``machine`` is the host's model.
    """

    resources: tuple[Resource, ...]
    inventories: Mapping[str, Inventory]
    mig_strategy: str = "mixed"
    running: Mapping[str, str]
    machine: str = ""


def node_labels(node: NodeResources) -> tuple[Label, ...]:
    """Return the labels of a node, sorted by name, as pairs of name and value that Kubernetes accepts.

    A device is included if it is in a resource. An unhealthy device is included, because the node's capacity
    also includes the device.
    """
    devices = labelled_devices(node.resources, node.inventories)
    by_vendor = {vendor: [each for each in devices if each.vendor == vendor] for vendor in node.inventories}
    found: list[Label] = []
    for vendor, own in by_vendor.items():
        inventory = node.inventories[vendor]
        has_driver = node.running.get(vendor, "") in {"", inventory.driver.version}
        if vendor == "nvidia":
            found += nvidia.labels(
                own,
                inventory,
                mig_strategy=node.mig_strategy,
                machine=node.machine,
                has_driver=has_driver,
            )
        elif vendor == "amd":
            found += amd_intel.amd(own, inventory.driver, has_driver=has_driver)
        elif vendor == "intel":
            found += amd_intel.intel(own)
    return tuple(sorted({name: value for name, value in found if is_label((name, value))}.items()))
