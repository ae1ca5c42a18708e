"""``node_labels`` returns all labels of a node. No I/O."""

from __future__ import annotations

from cdigen.kubelet.labels.devices import labelled_devices
from cdigen.value import frozen
from cdigen.vendors import registry
from cdigen.vendors.labels import LabelSource, is_label

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.kubelet.resources.model import Resource
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.labels import Label


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


def node_labels(node: NodeResources) -> tuple[tuple[Label, ...], tuple[Finding, ...]]:
    """Return the labels of a node, sorted by name, and findings on vendors whose code failed.

    The labels are pairs of name and value that Kubernetes accepts. A device is included if it is in a
    resource. An unhealthy device is included, because the node's capacity also includes the device.
    """
    devices = labelled_devices(node.resources, node.inventories)
    found: list[Label] = []
    failures: list[Finding] = []
    for vendor, inventory in node.inventories.items():
        labels = registry.labels(vendor)
        source = LabelSource(
            devices=tuple(each for each in devices if each.vendor == vendor),
            inventory=inventory,
            has_driver=node.running.get(vendor, "") in {"", inventory.driver.version},
            mig_strategy=node.mig_strategy,
            machine=node.machine,
        )
        with registry.reporting(vendor, failures):
            found += labels(source) if labels is not None else ()
    kept = {name: value for name, value in found if is_label((name, value))}
    return tuple(sorted(kept.items())), tuple(failures)
