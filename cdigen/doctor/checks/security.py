"""Checks of access rights: hooks, user namespaces, and subordinate IDs of a user."""

from __future__ import annotations

import os
import stat
from collections import Counter

from cdigen import page_url
from cdigen.doctor.commands import give_to_root, write_specs
from cdigen.doctor.processes import container_namespaces
from cdigen.doctor.remedy_safety import culprit_of, may_change_program, owners
from cdigen.doctor.result import Remedy, Topic
from cdigen.host.trust import untrusted
from cdigen.runtimes.releases import RuntimeBehaviour, behaves
from cdigen.runtimes.users import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

TOPIC = Topic(name="security")
USER = Topic(name="user")
HOOK, TRUST, ENVIRONMENT = "hook-present", "hook-trust", "hook-environment"
INTERPRETER = "hook-interpreter"
NAMESPACES, RANGES, HELPERS = "user-namespaces", "user-id-ranges", "user-id-helpers"
_NOT_NEEDED = "no podman or rootless Docker of this user: not needed"
_NEEDED_IDS = 65536
_FIRST_ID = 100000


def _hooks(context: Context) -> Iterator[CheckResult]:
    """Report hook programs of the specs that do not exist on the host."""
    hooks = _used_hooks(context)
    if not hooks:
        yield TOPIC.passed(HOOK, "the specs have no hooks")
        return
    paths = _paths(hooks)
    missing = [path for path in paths if not context.host.exists(path)]
    if missing:
        text = f"{', '.join(missing)}: missing hook of the specs: containers do not start"
        yield TOPIC.error(HOOK, text, write_specs(context) if context.products else ())
    else:
        yield TOPIC.passed(HOOK, f"the hooks of the specs exist: {', '.join(paths)}")


def _hook_trust(context: Context) -> Iterator[CheckResult]:
    """Report hooks that users other than root may change; hooks run as root."""
    hooks, failed = _used_hooks(context), False
    for path in _paths(hooks):
        if not context.host.exists(path):
            continue
        if problem := untrusted(path, base=context.host.outer, owners=_owners_of(context, path)):
            failed = True
            yield TOPIC.error(TRUST, f"hook that runs as root: {problem}", _secure(context, path))
    if hooks and not failed:
        yield TOPIC.passed(TRUST, "only root may change the hook")


def _hook_environment(context: Context) -> Iterator[CheckResult]:
    """Report whether a hook runs with the environment of the image."""
    hooks = _used_hooks(context)
    bare = [hook["path"] for hook in hooks if not hook.get("env")]
    runc = context.low_level.get("runc")
    if bare and (
        runc is None
        or runc.release is None
        or behaves("runc", runc.release, RuntimeBehaviour.HOOK_ENVIRONMENT)
    ):
        text = (
            f"{bare[0]}: hook without its own environment: runc before 1.3 runs the hook with the "
            "environment of the image (CVE-2025-23266)"
        )
        yield TOPIC.error(ENVIRONMENT, text, write_specs(context) if context.products else ())
    elif hooks:
        yield TOPIC.passed(ENVIRONMENT, "no hook runs with the environment of the image")


def _hook_interpreter(context: Context) -> Iterator[CheckResult]:
    """Report whether running containers can trace the interpreter of a hook."""
    readable = [hook["path"] for hook in _used_hooks(context) if _is_readable(context, hook["path"])]
    if not readable:
        yield TOPIC.passed(INTERPRETER, "containers cannot trace a hook")
        return
    if not context.is_live:
        yield TOPIC.needs_system(INTERPRETER)
        return
    found = container_namespaces()
    mounts = Counter((user, pid) for user, pid, _ in found)
    if any(count > 1 for count in mounts.values()):
        text = (
            f"containers that share a user namespace and a PID namespace can trace {readable[0]} while it "
            f"runs as a hook: use an interpreter that they cannot read ({page_url('how-to/start-up-hook')})"
        )
        yield TOPIC.warning(INTERPRETER, text)
    elif found:
        text = (
            "containers with user namespaces run here: a container with the user and PID namespaces of "
            f"another container can trace {readable[0]} while it runs as a hook "
            f"({page_url('explanation/start-up-hook')})"
        )
        yield TOPIC.passed(INTERPRETER, text)
    elif os.geteuid():
        yield TOPIC.skipped(INTERPRETER, "only root may read all namespaces")
    else:
        yield TOPIC.passed(INTERPRETER, "no container has its own user namespace")


def _is_readable(context: Context, path: str) -> bool:
    """Return whether every user may read the program PATH.

    The kernel then permits other users to trace the program.
    """
    try:
        return bool(context.host.stat(path).st_mode & stat.S_IROTH)
    except OSError:
        return False


def _used_hooks(context: Context) -> list[dict[str, Any]]:
    return [hook for spec in context.specs if spec.is_used for hook in spec.edits("hooks")]


def _paths(hooks: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(path for hook in hooks for path in _programs(hook)))


def _programs(hook: dict[str, Any]) -> list[str]:
    """Return the program of HOOK, and the path of cdigen's hook if this path is an argument."""
    return [hook["path"], *(word for word in hook.get("args") or () if word.endswith("/cdigen-hook"))]


def _owners_of(context: Context, path: str) -> frozenset[int]:
    """Return the user other than root who may change the hook PATH, because only their containers run it."""
    by = [
        owners(context, spec.path)
        for spec in context.specs
        if spec.is_used and any(path in _programs(hook) for hook in spec.edits("hooks"))
    ]
    return frozenset.intersection(*by)


def _secure(context: Context, path: str) -> tuple[Remedy, ...]:
    """Return the commands that let only root change PATH; empty if the commands are not safe for root."""
    culprit = culprit_of(context, path)
    return give_to_root(context.outer(culprit)) if may_change_program(context, culprit) else ()


def _has_rootless(context: Context) -> bool:
    """Return whether a runtime with rootless containers of the user is examined."""
    return any(runtime.settings.rootless for runtime in context.runtimes)


def _user_ranges(context: Context) -> Iterator[CheckResult]:
    """Report whether the user has subordinate IDs (subuid(5)) for rootless containers."""
    if context.user is None:
        return
    if not _has_rootless(context):
        yield USER.passed(RANGES, _NOT_NEEDED)
        return
    name, uid = context.user.name, context.user.uid
    files: list[str] = []
    words: list[str] = []
    for file, option in (("/etc/subuid", "--add-subuids"), ("/etc/subgid", "--add-subgids")):
        ranges = _ranges(context, file)
        if sum(count for owner, _, count in ranges if owner in {name, str(uid)}) < _NEEDED_IDS:
            first = max(_FIRST_ID, *(begin + count for _, begin, count in ranges), 0)
            files.append(file)
            words += [option, f"{first}-{first + _NEEDED_IDS - 1}"]
    if not files:
        yield USER.passed(RANGES, f"{name} has subordinate ids for containers")
        return
    text = (
        f"{' and '.join(files)}: fewer than {_NEEDED_IDS} ids for {name}: rootless containers have a single "
        "user"
    )
    grant = Remedy(argv=("usermod", *words, name), why=f"assign an unused range of ids to {name}")
    yield USER.error(RANGES, text, (grant,))


def _user_helpers(context: Context) -> Iterator[CheckResult]:
    """Report whether newuidmap and newgidmap are installed; both programs map the IDs of a user."""
    if context.user is None:
        return
    if not _has_rootless(context):
        yield USER.passed(HELPERS, _NOT_NEEDED)
        return
    helpers = [one for one in ("newuidmap", "newgidmap") if not context.host.exists(f"/usr/bin/{one}")]
    if not helpers:
        yield USER.passed(HELPERS, "newuidmap and newgidmap are installed")
        return
    install = Remedy(argv=("apt-get", "install", "--yes", "uidmap"), why="install them")
    remedies = (install,) if context.host.exists("/usr/bin/apt-get") else ()
    yield USER.error(HELPERS, f"not installed: {' and '.join(helpers)}", remedies)


def _ranges(context: Context, file: str) -> list[tuple[str, int, int]]:
    return [
        (owner, int(first), int(count))
        for owner, first, count, *more in rows(context.host, file, 3)
        if first.isdigit() and count.isdigit() and not more
    ]


def _user_namespaces(context: Context) -> Iterator[CheckResult]:
    """Report whether the kernel permits users to create user namespaces."""
    if context.user is None:
        return
    if not _has_rootless(context):
        yield USER.passed(NAMESPACES, _NOT_NEEDED)
        return
    most = context.text("/proc/sys/user/max_user_namespaces").strip()
    debian = context.text("/proc/sys/kernel/unprivileged_userns_clone").strip()
    why = "rootless containers need user namespaces"
    if most == "0":
        command = ("sysctl", "--write", "user.max_user_namespaces=15000")
        text = "the kernel does not permit user namespaces, which rootless containers need"
        yield USER.error(NAMESPACES, text, (Remedy(argv=command, why=why),))
    elif debian == "0":
        command = ("sysctl", "--write", "kernel.unprivileged_userns_clone=1")
        text = "the kernel does not permit users to create user namespaces, which rootless containers need"
        yield USER.error(NAMESPACES, text, (Remedy(argv=command, why=why),))
    elif not most:
        yield USER.skipped(NAMESPACES, "/proc/sys/user/max_user_namespaces cannot be read")
    else:
        yield USER.passed(NAMESPACES, "users may create user namespaces")


CHECKS = (
    _hooks, _hook_trust, _hook_environment, _hook_interpreter,
    _user_namespaces, _user_ranges, _user_helpers,
)  # fmt: skip
