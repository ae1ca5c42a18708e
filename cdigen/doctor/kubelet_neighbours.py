"""The check of others that offer the devices of a node of Kubernetes: device plugins, DRA drivers."""

from __future__ import annotations

from cdigen.doctor.kubelet import TOPIC, for_nodes, see
from cdigen.doctor.kubelet_sockets import kind_of
from cdigen.doctor.result import listed
from cdigen.host.root import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.kubelet_node import Node
    from cdigen.doctor.result import CheckResult

NEIGHBOUR = "kubelet-neighbour"
_FOREIGN = "kubectl get daemonsets --all-namespaces"


def _neighbours(context: Context) -> Iterator[CheckResult]:
    """Report other plugins for the same resources, or for the same devices by another name."""
    node = context.node
    if node.kubelet is None:
        return
    if node.is_hidden:
        yield TOPIC.unchecked(NEIGHBOUR, f"only root may look into {shown(node.plugins)}")
        return
    ours = {row["resource"] for row in node.resources}
    # Whose name says nothing may be the one that has what ours is refused.
    is_taken = any(row.get("state") == "taken" for row in node.resources)
    same = [one for one in node.others if one.resource in ours or (is_taken and not one.resource)]
    if same:
        names = listed(f"{one.resource or 'perhaps'} ({one.name})" for one in same)
        text = (
            f"another device plugin serves {shown(names)} as well: the kubelet takes the one that registers "
            f"last. Remove one of them; the other's is among '{_FOREIGN}'"
        )
        yield TOPIC.error(NEIGHBOUR, see(text, 7))
    kinds = _kinds(node)
    twice = [one for one in node.rivals if one not in same and one.devices in kinds]
    if twice:
        text = (
            f"another program offers the same devices, {shown(listed(one.told for one in twice))}: nothing "
            f"keeps two pods from having one. Let one program offer each device; '{_FOREIGN}' lists them"
        )
        yield TOPIC.warning(NEIGHBOUR, see(text, 8))
    if not same and not twice:
        known = listed(shown(one.name) for one in node.others)
        text = (
            f"besides: {known}, which cdigen does not touch"
            if known
            else "no other device plugin has a socket"
        )
        yield TOPIC.good(NEIGHBOUR, text)


def _kinds(node: Node) -> set[str]:
    """Return the CDI kinds of our resources' devices: by the devices, since a resource can have any name."""
    lists = [row.get("devices") for row in node.resources]
    rows = [one for found in lists if isinstance(found, list) for one in found if isinstance(one, dict)]
    names = [name for row in rows if isinstance(row.get("names"), list) for name in row["names"]]
    kinds = {str(name).partition("=")[0] for name in names}
    return (kinds | {kind_of(row["resource"]) for row in node.resources}) - {""}


CHECKS = (for_nodes(_neighbours),)
