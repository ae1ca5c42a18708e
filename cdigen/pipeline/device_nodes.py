"""Make missing device nodes that a driver needs, if ``create_nodes`` allows it."""

from __future__ import annotations

from cdigen.host.root import reason
from cdigen.model.errors import HostError, StoreError
from cdigen.model.findings import Finding
from cdigen.store.devnodes import make_node
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.findings import Severity
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.base import DiscoveryContext


def make_nodes(names: tuple[str, ...], context: DiscoveryContext) -> tuple[Finding, ...]:
    """Make the device nodes that the vendors NAMES miss; returns a finding for each, made or not."""
    findings = []
    for name in names:
        try:
            missing = registry.load(name).missing_nodes(context)
        except HostError:
            continue  # discovery will report the same
        except Exception:  # noqa: BLE001, S112 - likewise, and it costs no other vendor's nodes
            continue
        for node in missing:
            try:
                made = make_node(context.dev.outer_path(context.dev.resolve_new(node.path)), node)
            except (OSError, StoreError) as error:
                problem = reason(error) if isinstance(error, OSError) else error.message
                findings.append(_about_node("warning", "node-not-made", node, f"cannot be made: {problem}"))
                continue
            if made:
                numbers = f"{node.major}:{node.minor}"
                findings.append(
                    _about_node("info", "node-made", node, f"was made with the numbers {numbers}")
                )
        if missing:
            # Their folders were missing, and exist now, made here or meanwhile by udev.
            for root in (context.host, context.driver, context.dev):
                root.forget_missing()
    return tuple(findings)


def _about_node(severity: Severity, rule: str, node: HostNode, what: str) -> Finding:
    path = node.host_path
    return Finding(severity=severity, rule=rule, path=path, message=f"the device node {path} {what}")
