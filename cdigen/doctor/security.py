"""Checks of rights: the start-up hook, SELinux, user namespaces, a user's ranges of ids."""

from __future__ import annotations

import os
import stat
from collections import Counter

from cdigen.doctor.authority import culprit_of, is_users, may_change_program, owners
from cdigen.doctor.commands import give_to_root, write_specs
from cdigen.doctor.processes import container_namespaces
from cdigen.doctor.result import Remedy, Topic, listed
from cdigen.host.root import shown
from cdigen.host.trust import untrusted
from cdigen.runtimes.releases import RuntimeBehaviour, behaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

TOPIC = Topic(name="security")
USER = Topic(name="user")
HOOK, TRUST, ENVIRONMENT = "hook-present", "hook-trust", "hook-environment"
INTERPRETER = "hook-interpreter"
BOOLEAN, LABELS = "selinux-boolean", "selinux-labels"
NAMESPACES, RANGES, HELPERS = "user-namespaces", "user-id-ranges", "user-id-helpers"
_SELINUX = "/sys/fs/selinux"
_XATTR = "security.selinux"
# Types that container_t may not read (container-selinux); what packages install has others.
_CLOSED = frozenset({
    "admin_home_t", "default_t", "file_t", "home_root_t", "init_var_run_t", "tmp_t", "unlabeled_t",
    "user_home_t", "user_home_dir_t", "user_tmp_t", "var_lib_t", "var_run_t", "var_t",
})  # fmt: skip
_WANTED_IDS = 65536
_FIRST_ID = 100000


def _hooks(context: Context) -> Iterator[CheckResult]:
    """Report whether the programs that the specs run at a container's start are there."""
    hooks = _used_hooks(context)
    if not hooks:
        yield TOPIC.good(HOOK, "the specs run nothing when a container starts")
        return
    paths = _paths(hooks)
    missing = [path for path in paths if not context.host.exists(path)]
    if missing:
        text = f"{', '.join(missing)}, which the specs run when a container starts, is not there"
        yield TOPIC.error(HOOK, text, write_specs(context) if context.products else ())
    else:
        yield TOPIC.good(HOOK, f"{', '.join(paths)}: there, and run when a container starts")


def _hook_trust(context: Context) -> Iterator[CheckResult]:
    """Report whether others than root may change what runs as root at a container's start."""
    hooks, failed = _used_hooks(context), False
    for path in _paths(hooks):
        if not context.host.exists(path):
            continue
        if problem := untrusted(path, base=context.host.outer, owners=_owners_of(context, path)):
            failed = True
            yield TOPIC.error(TRUST, f"the hook runs as root, and {problem}", _secure(context, path))
    if hooks and not failed:
        yield TOPIC.good(TRUST, "nobody but root may change the hook")


def _hook_environment(context: Context) -> Iterator[CheckResult]:
    """Report whether a hook gets the image's environment."""
    hooks = _used_hooks(context)
    bare = [hook["path"] for hook in hooks if not hook.get("env")]
    runc = context.low_level.get("runc")
    if bare and (
        runc is None
        or runc.release is None
        or behaves("runc", runc.release, RuntimeBehaviour.HOOK_ENVIRONMENT)
    ):
        text = (
            f"{bare[0]} is run without an environment of its own: runc before 1.3 gives it the image's "
            "(CVE-2025-23266)"
        )
        yield TOPIC.error(ENVIRONMENT, text, write_specs(context) if context.products else ())
    elif hooks:
        yield TOPIC.good(ENVIRONMENT, "no hook gets the image's environment")


def _hook_interpreter(context: Context) -> Iterator[CheckResult]:
    """Report whether containers run that could trace the interpreter of a hook."""
    open_to = [hook["path"] for hook in _used_hooks(context) if _is_readable(context, hook["path"])]
    if not open_to:
        yield TOPIC.good(INTERPRETER, "containers cannot trace a hook")
        return
    if not context.is_live:
        yield TOPIC.unchecked(INTERPRETER, "the host is a folder, in which no container runs")
        return
    found = container_namespaces()
    mounts = Counter((each.user, each.pid) for each in found)
    if any(count > 1 for count in mounts.values()):
        text = (
            f"containers that share a user namespace and a process namespace can trace {open_to[0]} while it "
            'runs as a hook: use an interpreter that they cannot read (docs/hook.md, "Who can trace it")'
        )
        yield TOPIC.warning(INTERPRETER, text)
    elif found:
        text = (
            f"containers with user namespaces run here: one that shares another's user and process namespace "
            f'can trace {open_to[0]} while it runs as a hook (docs/hook.md, "Who can trace it")'
        )
        yield TOPIC.good(INTERPRETER, text)
    elif os.geteuid():
        yield TOPIC.unchecked(INTERPRETER, "root alone may read all namespaces")
    else:
        yield TOPIC.good(INTERPRETER, "no container has a user namespace of its own")


def _is_readable(context: Context, path: str) -> bool:
    """Return whether every user may read the program PATH: the kernel then lets others trace it."""
    try:
        return bool(context.host.stat(path).st_mode & stat.S_IROTH)
    except OSError:
        return False


def _used_hooks(context: Context) -> list[dict[str, Any]]:
    return [hook for spec in context.specs if spec.is_used for hook in spec.edits("hooks")]


def _paths(hooks: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(path for hook in hooks for path in _programs(hook)))


def _programs(hook: dict[str, Any]) -> list[str]:
    """Return the program of HOOK, and cdigen's own that it runs."""
    return [hook["path"], *(word for word in hook.get("args") or () if word.endswith("/cdigen-hook"))]


def _owners_of(context: Context, path: str) -> frozenset[int]:
    """Return who besides root may change the hook PATH: a user whose containers alone run it."""
    by = [
        owners(context, spec.path)
        for spec in context.specs
        if spec.is_used and any(path in _programs(hook) for hook in spec.edits("hooks"))
    ]
    return frozenset.intersection(*by)


def _secure(context: Context, path: str) -> tuple[Remedy, ...]:
    """Return the commands that make root the only one who may change PATH, if root may be told."""
    culprit = culprit_of(context, path)
    return give_to_root(context.outer(culprit)) if may_change_program(context, culprit) else ()


def _selinux_boolean(context: Context) -> Iterator[CheckResult]:
    """Report whether SELinux lets containers use device nodes."""
    if not enforces(context):
        state = "permissive" if context.host.exists(f"{_SELINUX}/enforce") else "not there"
        yield TOPIC.good(BOOLEAN, f"SELinux is {state}")
        return
    value = context.text(f"{_SELINUX}/booleans/container_use_devices").split()
    if value and value[0] == "0":
        text = "SELinux keeps containers from device nodes: container_use_devices is off"
        command = ("setsebool", "-P", "container_use_devices", "1")
        yield TOPIC.error(BOOLEAN, text, (Remedy(argv=command, why="let containers use devices"),))
    elif value:
        yield TOPIC.good(BOOLEAN, "SELinux lets containers use device nodes")
    else:
        text = "SELinux knows no container_use_devices: container-selinux is not installed"
        yield TOPIC.good(BOOLEAN, text)


def _selinux_labels(context: Context) -> Iterator[CheckResult]:
    """Report whether SELinux lets containers read what the specs mount."""
    if not enforces(context):
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
        yield TOPIC.good(LABELS, "containers may read what the specs mount")
        return
    paths = listed((f"{shown(path)} ({label})" for path, label in closed.items()), most=3)
    # What a user's own spec names, root does not label.
    is_roots = not any(is_users(context, sources[path]) for path in closed)
    remedies = _relabel(context, closed) if is_roots else ()
    yield TOPIC.error(LABELS, f"SELinux keeps containers from {paths}", remedies)


def enforces(context: Context) -> bool:
    """Return whether SELinux is enforcing."""
    return context.text(f"{_SELINUX}/enforce").strip() == "1"


def _relabel(context: Context, closed: Iterable[str]) -> tuple[Remedy, ...]:
    """Return the commands that give the paths CLOSED labels that containers may read."""
    views = f"{context.configuration.state_dir}/views"
    remedies: list[Remedy] = []
    if any(path.startswith(f"{views}/") for path in closed):
        rule = ("semanage", "fcontext", "--add", "--type", "container_ro_file_t", f"{views}(/.*)?")
        remedies.append(Remedy(argv=rule, why="views may be read by containers"))
        remedies.append(Remedy(argv=("restorecon", "-R", views), why="label the views"))
    others = [context.outer(path) for path in closed if not path.startswith(f"{views}/")]
    if others:
        remedies.append(Remedy(argv=("restorecon", "-R", *others), why="label them as the policy says"))
    return tuple(remedies)


def label(context: Context, path: str) -> str:
    """Return the type in the SELinux label of PATH, empty where it has none."""
    try:
        real = context.host.outer_path(context.host.resolve(path))
        fields = os.getxattr(real, _XATTR).rstrip(b"\0").decode().split(":")
    except (OSError, UnicodeDecodeError):
        return ""
    return fields[2] if len(fields) > 2 else ""


def _user_ranges(context: Context) -> Iterator[CheckResult]:
    """Report whether the user has subordinate ids (subuid(5)) for rootless containers."""
    if context.user is None:
        return
    name, uid = context.user.name, context.user.uid
    files: list[str] = []
    words: list[str] = []
    for file, option in (("/etc/subuid", "--add-subuids"), ("/etc/subgid", "--add-subgids")):
        rows = _ranges(context.text(file, limit=1 << 20))
        if sum(count for who, _, count in rows if who in {name, str(uid)}) < _WANTED_IDS:
            first = max(_FIRST_ID, *(begin + count for _, begin, count in rows), 0)
            files.append(file)
            words += [option, f"{first}-{first + _WANTED_IDS - 1}"]
    if not files:
        yield USER.good(RANGES, f"{name} has ids for containers")
        return
    text = (
        f"{' and '.join(files)} give {name} fewer than {_WANTED_IDS} ids, so rootless containers have no "
        "other users"
    )
    grant = Remedy(argv=("usermod", *words, name), why=f"give {name} a range of ids that is free")
    yield USER.error(RANGES, text, (grant,))


def _user_helpers(context: Context) -> Iterator[CheckResult]:
    """Report whether the programs are installed that map a user's ids."""
    if context.user is None:
        return
    helpers = [one for one in ("newuidmap", "newgidmap") if not context.host.exists(f"/usr/bin/{one}")]
    if not helpers:
        yield USER.good(HELPERS, "newuidmap and newgidmap are installed")
        return
    install = Remedy(argv=("apt-get", "install", "--yes", "uidmap"), why="install them")
    remedies = (install,) if context.host.exists("/usr/bin/apt-get") else ()
    yield USER.error(HELPERS, f"{' and '.join(helpers)} is not installed", remedies)


def _ranges(text: str) -> list[tuple[str, int, int]]:
    found = []
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) == 3 and fields[1].isdigit() and fields[2].isdigit():
            found.append((fields[0], int(fields[1]), int(fields[2])))
    return found


def _user_namespaces(context: Context) -> Iterator[CheckResult]:
    """Report whether the kernel lets users make user namespaces."""
    if context.user is None:
        return
    most = context.text("/proc/sys/user/max_user_namespaces").strip()
    debian = context.text("/proc/sys/kernel/unprivileged_userns_clone").strip()
    why = "rootless containers need user namespaces"
    if most == "0":
        command = ("sysctl", "--write", "user.max_user_namespaces=15000")
        text = "the kernel allows no user namespaces, which rootless containers need"
        yield USER.error(NAMESPACES, text, (Remedy(argv=command, why=why),))
    elif debian == "0":
        command = ("sysctl", "--write", "kernel.unprivileged_userns_clone=1")
        text = "the kernel allows users no user namespaces, which rootless containers need"
        yield USER.error(NAMESPACES, text, (Remedy(argv=command, why=why),))
    elif not most:
        yield USER.unchecked(NAMESPACES, "/proc/sys/user/max_user_namespaces cannot be read")
    else:
        yield USER.good(NAMESPACES, "users may make user namespaces")


CHECKS = (
    _hooks, _hook_trust, _hook_environment, _hook_interpreter, _selinux_boolean, _selinux_labels,
    _user_namespaces, _user_ranges, _user_helpers,
)  # fmt: skip
