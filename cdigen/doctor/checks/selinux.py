"""Checks of SELinux: whether containers may open the device nodes and read the mounts of the specs.

The policy decides by the type in the label of a node. Some types have their own boolean. The boolean
``container_use_devices`` permits the nodes of every device, also of disks. It is the last choice.

The booleans are for nodes of the host that are mounted into a container. runc and crun mount nodes only if
the container has a user namespace, because mknod(2) is not permitted there. Otherwise they create nodes in
the tmpfs /dev, which is mounted with the label of the container (runc, rootfs_linux.go; crun, linux.c;
container-selinux issue 269). It is not proven that the policy permits a container to map such a node. A node
that the policy denies is therefore a warning, and an error only for rootless runtimes.
"""

from __future__ import annotations

import os

from cdigen.doctor.remedy_safety import is_of_user
from cdigen.doctor.result import Remedy, Topic, listed
from cdigen.host.root import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

TOPIC = Topic(name="security")
BOOLEAN, LABELS = "selinux-boolean", "selinux-labels"
_SELINUX = "/sys/fs/selinux"
_XATTR = "security.selinux"
# Source of the three tables: container.te of container-selinux at v2.250.0, with the first release of each
# rule. The labels of nodes are in devices.fc of selinux-policy.
_EVERY_DEVICE = "container_use_devices"  # 2.217
# Type of a node -> the boolean that permits only this type.
_BOOLEANS = {
    "dri_device_t": "container_use_dri_devices",  # 2.231, on by default
    "xserver_misc_device_t": "container_use_xserver_devices",  # 2.232, off by default
}
# The types that containers may always use.
_OPEN = frozenset({"container_file_t", "kvm_device_t", "null_device_t"})
# The types that containers may open (since 2.239), but not map into their memory.
_UNMAPPED = frozenset({"hsa_device_t"})
# The SELinux types that container_t may not read (container-selinux). Files of packages have other types.
_CLOSED = frozenset({
    "admin_home_t", "default_t", "file_t", "home_root_t", "init_var_run_t", "tmp_t", "unlabeled_t",
    "user_home_t", "user_home_dir_t", "user_tmp_t", "var_lib_t", "var_run_t", "var_t",
})  # fmt: skip


def _nodes(context: Context) -> Iterator[CheckResult]:
    """Report whether SELinux permits containers to use the device nodes of the specs."""
    if not enforces(context):
        state = "permissive" if context.host.exists(f"{_SELINUX}/enforce") else "disabled"
        yield TOPIC.passed(BOOLEAN, f"SELinux is {state}")
        return
    if not _labels_containers(context):
        names = ", ".join(runtime.name for runtime in context.runtimes)
        yield TOPIC.passed(BOOLEAN, f"{names}: containers have no SELinux label with this configuration")
        return
    if not any(_boolean(context, name) for name in (_EVERY_DEVICE, *_BOOLEANS.values())):
        text = f"SELinux has no boolean {_EVERY_DEVICE}: container-selinux is not installed"
        yield TOPIC.passed(BOOLEAN, text)
        return
    paths = dict.fromkeys(
        str(node.get("hostPath", node["path"]))
        for spec in context.specs
        if spec.is_used
        for node in spec.edits("deviceNodes")
    )
    types = {path: found for path in paths if (found := label(context, path))}
    if paths and not types:
        yield TOPIC.skipped(BOOLEAN, "the device nodes of the specs have no SELinux label")
        return
    closed = {path: found for path, found in types.items() if not _is_permitted(context, found)}
    if not closed:
        yield TOPIC.passed(BOOLEAN, "SELinux permits containers to use the device nodes of the specs")
        return
    labelled = [runtime.settings for runtime in context.runtimes if runtime.settings.has_labels]
    yield _denied(context, closed, is_rootless=any(settings.rootless for settings in labelled))


def _denied(context: Context, closed: dict[str, str], *, is_rootless: bool) -> CheckResult:
    """Return the failure for the paths in CLOSED, which maps each path to its type.

    If IS_ROOTLESS is true, a rootless runtime is examined, and all its containers have a user namespace.
    """
    who = "containers" if is_rootless else "rootless containers, and others with a user namespace,"
    needed = dict.fromkeys(_narrowest(context, found) for found in closed.values())
    names = (_EVERY_DEVICE,) if _EVERY_DEVICE in needed else tuple(needed)
    paths = listed(f"{shown(path)} ({found})" for path, found in closed.items())
    off = f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} off"
    command = ("setsebool", "-P", *(f"{name}=1" for name in names))
    why = "permit containers to use " + ("every device" if _EVERY_DEVICE in names else "these device nodes")
    remedies = (Remedy(argv=command, why=why),)
    if _UNMAPPED.issuperset(closed.values()):
        text = f"SELinux permits {who} at most to open {paths}, and denies to map it into memory: {off}"
        return TOPIC.warning(BOOLEAN, text, remedies)
    optional = {
        node.host_path for node in context.nodes if node.capabilities and "compute" not in node.capabilities
    }
    text = f"SELinux denies {who} access to {paths}: {off}"
    return TOPIC.failed(BOOLEAN, text, remedies, is_error=is_rootless and not optional.issuperset(closed))


def _is_permitted(context: Context, found: str) -> bool:
    """Return whether the policy permits containers to open and map nodes of the type FOUND."""
    booleans = (_EVERY_DEVICE, *filter(None, (_BOOLEANS.get(found),)))
    return found in _OPEN or any(_boolean(context, name) == "1" for name in booleans)


def _narrowest(context: Context, found: str) -> str:
    """Return the narrowest boolean of this host's policy that permits nodes of the type FOUND."""
    own = _BOOLEANS.get(found, "")
    return own if own and _boolean(context, own) else _EVERY_DEVICE


def _boolean(context: Context, name: str) -> str:
    """Return the value of the boolean NAME, ``0`` or ``1``; empty if the policy lacks the boolean."""
    return context.text(f"{_SELINUX}/booleans/{name}")[:1]


def _mounts(context: Context) -> Iterator[CheckResult]:
    """Report mounts of the specs that SELinux does not permit containers to read."""
    if not enforces(context) or not _labels_containers(context):
        return
    sources = {
        str(mount["hostPath"]): spec.path
        for spec in context.specs
        if spec.is_used
        for mount in spec.edits("mounts")
    }
    labels = {path: label(context, path) for path in sources}
    closed = {path: label for path, label in labels.items() if label in _CLOSED}
    if not closed:
        yield TOPIC.passed(LABELS, "containers may read all mounts of the specs")
        return
    paths = listed((f"{shown(path)} ({label})" for path, label in closed.items()), most=3)
    # Root does not change the label of a path in a user's spec.
    is_safe = not any(is_of_user(context, sources[path]) for path in closed)
    remedies = _relabel(context, closed) if is_safe else ()
    yield TOPIC.error(LABELS, f"SELinux denies containers access to {paths}", remedies)


def _labels_containers(context: Context) -> bool:
    """Return whether a runtime labels containers for SELinux."""
    return any(runtime.settings.has_labels for runtime in context.runtimes)


def enforces(context: Context) -> bool:
    """Return whether SELinux is enforcing."""
    return context.text(f"{_SELINUX}/enforce").strip() == "1"


def _relabel(context: Context, closed: Iterable[str]) -> tuple[Remedy, ...]:
    """Return the commands that set new labels on the paths in CLOSED, so that containers may read them."""
    views = f"{context.configuration.state_dir}/views"
    remedies: list[Remedy] = []
    if any(path.startswith(f"{views}/") for path in closed):
        rule = ("semanage", "fcontext", "--add", "--type", "container_ro_file_t", f"{views}(/.*)?")
        remedies.append(Remedy(argv=rule, why="permit containers to read the views"))
        remedies.append(Remedy(argv=("restorecon", "-R", views), why="set the labels of the views"))
    others = [context.outer(path) for path in closed if not path.startswith(f"{views}/")]
    if others:
        remedies.append(Remedy(argv=("restorecon", "-R", *others), why="set the labels of the policy"))
    return tuple(remedies)


def label(context: Context, path: str) -> str:
    """Return the type in the SELinux label of PATH; empty if PATH has no label."""
    try:
        real = context.host.outer_path(context.host.resolve(path))
        fields = os.getxattr(real, _XATTR).rstrip(b"\0").decode().split(":")
    except (OSError, UnicodeDecodeError):
        return ""
    return fields[2] if len(fields) > 2 else ""


CHECKS = (_nodes, _mounts)
