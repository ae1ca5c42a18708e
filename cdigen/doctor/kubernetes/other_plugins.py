"""The check of other programs that advertise the node's devices: device plugins and DRA drivers."""

from __future__ import annotations

from cdigen.doctor.kubernetes.kubelet import TOPIC, for_nodes, see
from cdigen.doctor.kubernetes_node.sockets import kind_of
from cdigen.doctor.result import listed
from cdigen.host.root import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.kubernetes_node.node import KubernetesNode
    from cdigen.doctor.result import CheckResult

CONFLICT = "kubelet-plugin-conflict"
_FOREIGN = "kubectl get daemonsets --all-namespaces"


def _conflicts(context: Context) -> Iterator[CheckResult]:
    """Report other plugins for cdigen's resources, or for cdigen's devices under another resource name."""
    node = context.node
    if node.kubelet is None:
        return
    if node.is_hidden:
        yield TOPIC.skipped(CONFLICT, f"only root may read {shown(node.plugins)}")
        return
    ours = {row["resource"] for row in node.resources}
    # If another plugin has claimed a resource of cdigen, a socket without a resource in its name may belong
    # to that plugin.
    is_claimed = any(row.get("state") == "claimed-by-other" for row in node.resources)
    same = [one for one in node.other_plugins if one.resource in ours or (is_claimed and not one.resource)]
    if same:
        names = listed(f"{one.resource or 'an unknown resource'} ({one.name})" for one in same)
        text = (
            f"another device plugin serves {shown(names)} as well: the kubelet uses the plugin that "
            f"registers last. Remove one of the two; '{_FOREIGN}' lists the other plugin"
        )
        yield TOPIC.error(CONFLICT, see(text, 7))
    kinds = _kinds(node)
    twice = [one for one in node.competing_plugins if one not in same and one.devices in kinds]
    if twice:
        text = (
            "another program also advertises the devices of cdigen kubelet: "
            f"{shown(listed(one.description for one in twice))}. Two pods may get the same device. Remove "
            f"one of the programs; '{_FOREIGN}' lists them"
        )
        yield TOPIC.warning(CONFLICT, see(text, 8))
    if not same and not twice:
        known = listed(shown(one.name) for one in node.other_plugins)
        text = (
            f"no other device plugin serves the devices of cdigen kubelet; other plugins: {known}"
            if known
            else "no other device plugin has a socket"
        )
        yield TOPIC.passed(CONFLICT, text)


def _kinds(node: KubernetesNode) -> set[str]:
    """Return the CDI kinds of the devices in cdigen's resources.

    The name of a resource need not contain the kind.
    """
    lists = [row.get("devices") for row in node.resources]
    rows = [one for found in lists if isinstance(found, list) for one in found if isinstance(one, dict)]
    names = [name for row in rows if isinstance(row.get("names"), list) for name in row["names"]]
    kinds = {str(name).partition("=")[0] for name in names}
    return (kinds | {kind_of(row["resource"]) for row in node.resources}) - {""}


CHECKS = (for_nodes(_conflicts),)
