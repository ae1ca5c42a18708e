"""Create a vendor's device nodes that the kernel does not create, and the links to the nodes in /dev/char.

cdigen also replaces nodes whose numbers are wrong. The numbers can be wrong after the kernel module was
loaded again.
"""

from __future__ import annotations

from contextlib import suppress

from cdigen.host.root import reason, shown
from cdigen.host.trust import untrusted_below, untrusted_tree
from cdigen.model.errors import StoreError
from cdigen.model.findings import Finding
from cdigen.store.devnodes import link_node, make_node, sweep_nodes
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.host.root import Root
    from cdigen.model.findings import Severity
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.base import BootNodes
    from cdigen.vendors.context import DiscoveryContext

# systemd reads the numbers of the devices of a cgroup from this folder (runc issue 3708).
_LINKS = "/dev/char"
# The maximum number of files to check. The capabilities of 32 GPUs have some thousands of files.
_MAX_SOURCES = 100_000


def untrusted_sources(boot: BootNodes, context: DiscoveryContext, *paths: str) -> str:
    """Return the reason why root must not create nodes from the files of CONTEXT, or "".

    The reason is that a user other than root can change the sources in /proc, the folders of the nodes and
    links, or the host's PATHS.
    """
    host = context.host
    own = (untrusted_tree(host, (*boot.sources, _LINKS, *paths)), untrusted_tree(context.dev, boot.folders))
    below = (untrusted_below(host, path, most=_MAX_SOURCES) for path in boot.sources if host.exists(path))
    return next(filter(None, (*own, *below)), "")


def create_nodes(boot: BootNodes, context: DiscoveryContext) -> tuple[Finding, ...]:
    """Create missing nodes, replace wrong nodes, and create the links of all nodes.

    Returns a finding for each node and link that was created, and for each failure. Raises the HostError of
    ``boot.read``.
    """
    found = boot.read(context)
    findings: dict[str, Finding | None] = {}
    if found.refusal:
        message = f"no device node is created: {found.refusal}"
        return (Finding(severity="info", rule="node-creation-refused", path="/dev", message=message),)
    for root, folder in (*((context.dev, folder) for folder in boot.folders), (context.host, _LINKS)):
        with suppress(OSError, StoreError):  # reported later, if a node or link is created in this folder
            sweep_nodes(_outer_folder(root, folder))
    # The driver reports the MIG instances of a GPU only if the node of the GPU exists. Therefore, the next
    # iteration creates the nodes of the MIG instances.
    while new := [node for node in (*found.missing, *found.wrong) if node.path not in findings]:
        findings |= {node.path: _created(context, node) for node in new}
        # The folders of the new nodes can exist now, created by cdigen or udev. The Root objects must not use
        # stored results about missing folders.
        for root in (context.host, context.driver, context.dev):
            root.forget_missing()
        found = boot.read(context)
    links = (_linked(context, node) for node in found.present)
    return tuple(finding for finding in (*findings.values(), *links) if finding is not None)


def with_missing_nodes(
    findings: tuple[Finding, ...], boot: BootNodes, context: DiscoveryContext, *, severity: Severity
) -> tuple[Finding, ...]:
    """Return FINDINGS, with SEVERITY and the node's path in each finding that explains a missing node.

    A node can be missing because a module is excluded, or because cdigen must not create nodes. Raises the
    HostError of ``boot.read``.
    """
    required = {module.name for module in boot.modules if module.is_required}
    causes = [
        finding
        for finding in findings
        if finding.rule == "node-creation-refused"
        or (finding.rule == "kernel-module-excluded" and finding.path in required)
    ]
    lacking = boot.read(context).lacking if causes else ()
    if not lacking:
        return findings
    return tuple(
        replace(finding, severity=severity, message=f"{lacking[0]} does not exist: {finding.message}")
        if finding in causes
        else finding
        for finding in findings
    )


def _created(context: DiscoveryContext, node: HostNode) -> Finding | None:
    def create() -> str:
        return make_node(_outer_path(context.dev, node.path), node)

    what = f"the device node {node.host_path}"
    text = f"{what} ({node.major}:{node.minor})"
    return _attempt(create, ("node-created", "node-not-created"), node.host_path, text)


def _linked(context: DiscoveryContext, node: HostNode) -> Finding | None:
    link = f"{_LINKS}/{node.major}:{node.minor}"
    is_in_dev = node.host_path.startswith("/dev/")
    target = f"../{node.host_path.removeprefix('/dev/')}" if is_in_dev else node.host_path

    def create() -> str:
        return link_node(_outer_path(context.host, link), target, node)

    rules = ("node-link-created", "node-link-not-created")
    return _attempt(create, rules, link, f"the link {link} to {node.host_path}")


def _outer_path(root: Root, path: str) -> str:
    """Return the path on this machine of the file PATH in /dev of ROOT. The file need not exist.

    A link at PATH is not followed. Raises the StoreError of ``_outer_folder``.
    """
    folder, _, name = path.rpartition("/")
    return f"{_outer_folder(root, folder)}/{name}"


def _outer_folder(root: Root, path: str) -> str:
    """Return the path on this machine of PATH. PATH is /dev of ROOT or a folder in /dev.

    StoreError: a link leads out of /dev.
    """
    top, real = root.resolve_new("/dev"), root.resolve_new(path)
    if real != top and not real.startswith(f"{top}/"):
        raise StoreError(f"{shown(root.host_path(path))} leads to {shown(real)}, which is not in /dev")
    return root.outer_path(real)


def _attempt(create: Callable[[], str], rules: tuple[str, str], path: str, what: str) -> Finding | None:
    """Call CREATE, and return a finding about the change or the failure.

    RULES are the rule for a change of WHAT and the rule for a failure.
    """
    created, failed = rules
    try:
        done = create()
        return _finding("info", created, path, f"{what} was {done}") if done else None
    except (OSError, StoreError) as error:
        problem, hint = (reason(error), "") if isinstance(error, OSError) else (error.message, error.hint)
        return _finding("error", failed, path, f"{what} cannot be created: {problem}", hint)


def _finding(severity: Severity, rule: str, path: str, message: str, hint: str = "") -> Finding:
    return Finding(severity=severity, rule=rule, path=path, message=message, hint=hint)
