"""Who may do what: the start-up hook, SELinux, user namespaces, a user's ranges of ids."""

from __future__ import annotations

import os

from cdigen.doctor.authority import may_change_program, owners
from cdigen.doctor.result import Topic
from cdigen.doctor.specs import read_specs
from cdigen.doctor.words import quoted
from cdigen.host.root import shown
from cdigen.host.trust import untrusted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult
    from cdigen.doctor.specs import ExaminedSpec

TOPIC = Topic(name="security")
USER = Topic(name="user")
HOOK, TRUST, ENVIRONMENT = "hook-present", "hook-trust", "hook-environment"
BOOLEAN, LABELS = "selinux-boolean", "selinux-labels"
NAMESPACES, RANGES, HELPERS = "user-namespaces", "user-id-ranges", "user-id-helpers"
_FEW = 3
_SELINUX = "/sys/fs/selinux"
_XATTR = "security.selinux"
# Types that container_t may not read (container-selinux); what packages install has others.
_CLOSED = frozenset({
    "admin_home_t", "default_t", "file_t", "home_root_t", "init_var_run_t", "tmp_t", "unlabeled_t",
    "user_home_t", "user_home_dir_t", "user_tmp_t", "var_lib_t", "var_run_t", "var_t",
})  # fmt: skip
_WANTED_IDS = 65536
_FIRST_ID = 100000


def check(context: Context) -> Iterator[CheckResult]:
    """Say what keeps containers from what the specs give them."""
    found = read_specs(context)
    yield from _hooks(context, found)
    yield from _selinux(context, found)
    yield from _user(context)


def _hooks(context: Context, found: tuple[ExaminedSpec, ...]) -> Iterator[CheckResult]:
    hooks = [hook for spec in found if spec.is_used for hook in _of(spec.document, "hooks")]
    paths = dict.fromkeys(path for hook in hooks for path in _programs(hook))
    if not hooks:
        yield TOPIC.good(HOOK, "the specs run nothing when a container starts")
        return
    missing = [path for path in paths if not context.host.exists(path)]
    if missing:
        text = f"{', '.join(missing)}, which the specs run when a container starts, is not there"
        yield TOPIC.error(HOOK, text, context.write_command() if context.products else "")
    else:
        yield TOPIC.good(HOOK, f"{', '.join(paths)}: there, and run when a container starts")
    failed = False
    for path in paths:
        who = _owners_of(context, found, path)
        if path not in missing and (problem := untrusted(path, base=context.host.outer, owners=who)):
            failed = True
            text = f"the hook runs as root, and {problem}"
            yield TOPIC.error(TRUST, text, _secure(context, path))
    if not failed:
        yield TOPIC.good(TRUST, "nobody but root may change the hook")
    bare = [hook["path"] for hook in hooks if not hook.get("env")]
    runc = context.low_level.get("runc")
    if bare and (runc is None or runc.release is None or runc.release < (1, 3, 0)):
        text = (
            f"{bare[0]} is run without an environment of its own: runc before 1.3 gives it the image's "
            "(CVE-2025-23266)"
        )
        yield TOPIC.error(ENVIRONMENT, text, context.write_command() if context.products else "")
    else:
        yield TOPIC.good(ENVIRONMENT, "no hook gets the image's environment")


def _programs(hook: dict[str, Any]) -> list[str]:
    """Return the program of HOOK, and cdigen's own that it runs."""
    return [hook["path"], *(word for word in hook.get("args") or () if word.endswith("/cdigen-hook"))]


def _owners_of(context: Context, found: tuple[ExaminedSpec, ...], path: str) -> frozenset[int]:
    """Return who besides root may change the hook PATH: who alone runs it."""
    by = [
        owners(context, spec.path)
        for spec in found
        if spec.is_used and any(path in _programs(hook) for hook in _of(spec.document, "hooks"))
    ]
    return frozenset.intersection(*by)


def _secure(context: Context, path: str) -> str:
    """Return the command that makes root the only one who may change PATH, if root may be told."""
    culprit = _culprit(context, path)
    place = context.outer(culprit)
    return f"chown root:root {place} && chmod go-w {place}" if may_change_program(context, culprit) else ""


def _culprit(context: Context, path: str) -> str:
    """Return the file or folder on the way to PATH that others may change."""
    real = context.host.resolve(path)
    parts = real.split("/")
    ways = ["/".join(parts[: number + 1]) for number in range(1, len(parts))]
    return next((way for way in ways if untrusted(way, base=context.host.outer)), real)


def _of(document: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    for holder in (document, *document["devices"]):
        yield from holder.get("containerEdits", {}).get(key, ())


def _selinux(context: Context, found: tuple[ExaminedSpec, ...]) -> Iterator[CheckResult]:
    if context.text(f"{_SELINUX}/enforce").strip() != "1":
        state = "permissive" if context.host.exists(f"{_SELINUX}/enforce") else "not there"
        yield TOPIC.good(BOOLEAN, f"SELinux is {state}")
        return
    value = context.text(f"{_SELINUX}/booleans/container_use_devices").split()
    if value and value[0] == "0":
        text = "SELinux keeps containers from device nodes: container_use_devices is off"
        yield TOPIC.error(BOOLEAN, text, "setsebool -P container_use_devices 1")
    elif value:
        yield TOPIC.good(BOOLEAN, "SELinux lets containers use device nodes")
    else:
        yield TOPIC.good(
            BOOLEAN, "SELinux knows no container_use_devices: container-selinux is not installed"
        )
    sources = dict.fromkeys(
        str(mount["hostPath"]) for spec in found if spec.is_used for mount in _of(spec.document, "mounts")
    )
    closed: dict[str, str] = {}
    for path in sources:
        kind = _label(context, path)
        if kind in _CLOSED:
            closed[path] = kind
    if not closed:
        yield TOPIC.good(LABELS, "containers may read what the specs mount")
        return
    listed = ", ".join(f"{shown(path)} ({kind})" for path, kind in list(closed.items())[:_FEW])
    more = f" and {len(closed) - _FEW} more" if len(closed) > _FEW else ""
    views = f"{context.configuration.state_dir}/views"
    commands = []
    if any(path.startswith(f"{views}/") for path in closed):
        commands.append(
            f"semanage fcontext --add --type container_ro_file_t {quoted(f'{views}(/.*)?')} && "
            f"restorecon -R {quoted(views)}"
        )
    others = [context.outer(path) for path in closed if not path.startswith(f"{views}/")]
    if others:
        commands.append(f"restorecon -R {' '.join(others)}")
    yield TOPIC.error(LABELS, f"SELinux keeps containers from {listed}{more}", " && ".join(commands))


def _label(context: Context, path: str) -> str:
    try:
        real = context.host.outer_path(context.host.resolve(path))
        fields = os.getxattr(real, _XATTR).rstrip(b"\0").decode().split(":")
    except (OSError, UnicodeDecodeError):
        return ""
    return fields[2] if len(fields) > 2 else ""


def _user(context: Context) -> Iterator[CheckResult]:
    if context.user is None:
        return
    yield from _namespaces(context)
    name, uid = context.user.name, context.user.uid
    lacking = []
    for file, option in (("/etc/subuid", "--add-subuids"), ("/etc/subgid", "--add-subgids")):
        rows = _ranges(context.text(file, limit=1 << 20))
        if sum(count for who, _, count in rows if who in {name, str(uid)}) < _WANTED_IDS:
            first = max((begin + count for _, begin, count in rows), default=_FIRST_ID)
            lacking.append((file, option, max(first, _FIRST_ID)))
    if lacking:
        files = " and ".join(file for file, _, _ in lacking)
        words = " ".join(f"{option} {first}-{first + _WANTED_IDS - 1}" for _, option, first in lacking)
        text = f"{files} give {name} fewer than {_WANTED_IDS} ids, so rootless containers have no other users"
        yield USER.error(RANGES, text, f"usermod {words} {quoted(name)}")
    else:
        yield USER.good(RANGES, f"{name} has ids for containers")
    helpers = [one for one in ("newuidmap", "newgidmap") if not context.host.exists(f"/usr/bin/{one}")]
    if helpers:
        package = "apt-get install --yes uidmap" if context.host.exists("/usr/bin/apt-get") else ""
        yield USER.error(HELPERS, f"{' and '.join(helpers)} is not installed", package)
    else:
        yield USER.good(HELPERS, "newuidmap and newgidmap are installed")


def _ranges(text: str) -> list[tuple[str, int, int]]:
    found = []
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) == 3 and fields[1].isdigit() and fields[2].isdigit():
            found.append((fields[0], int(fields[1]), int(fields[2])))
    return found


def _namespaces(context: Context) -> Iterator[CheckResult]:
    most = context.text("/proc/sys/user/max_user_namespaces").strip()
    debian = context.text("/proc/sys/kernel/unprivileged_userns_clone").strip()
    if most == "0":
        text = "the kernel allows no user namespaces, which rootless containers need"
        yield USER.error(NAMESPACES, text, "sysctl --write user.max_user_namespaces=15000")
    elif debian == "0":
        text = "the kernel allows users no user namespaces, which rootless containers need"
        yield USER.error(NAMESPACES, text, "sysctl --write kernel.unprivileged_userns_clone=1")
    elif not most:
        yield USER.unchecked(NAMESPACES, "/proc/sys/user/max_user_namespaces cannot be read")
    else:
        yield USER.good(NAMESPACES, "users may make user namespaces")
