"""Checks whether the requested container runtimes are installed, or other programs have their commands."""

from __future__ import annotations

import json

from cdigen.doctor.commands import run_cdigen
from cdigen.doctor.kubernetes_node.bundled import bundled_containerd
from cdigen.doctor.result import Remedy, Topic, listed
from cdigen.host.root import shown
from cdigen.runtimes.documents import lookup
from cdigen.runtimes.installed import emulated_docker
from cdigen.runtimes.users import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

DESKTOP = "docker-desktop"
# The folder of Docker Desktop's packages, and its context. Docker Desktop runs a virtual machine, and sets
# the current context of the user (docs.docker.com, "Install Docker Desktop on Linux").
_DESKTOP, _DESKTOP_CONTEXT = "/opt/docker-desktop", "desktop-linux"
_USE_ENGINE = "docker context use default"
_PACKAGES = {
    "podman": {"": "podman"},
    "docker": {"": "docker", "apt-get": "docker.io", "dnf": "moby-engine", "ostree-booted": "moby-engine"},
    "containerd": {"": "containerd"},
    "crio": {"": "cri-o"},
}
# The first file that exists identifies the command. On image-based systems (/run/ostree-booted), dnf may be
# present and cannot install packages.
_MANAGERS = (
    ("/run/ostree-booted", ("rpm-ostree", "install", "--assumeyes", "--apply-live")),
    ("/usr/bin/apt-get", ("apt-get", "install", "--yes")),
    ("/usr/bin/dnf", ("dnf", "install", "--assumeyes")),
    ("/usr/bin/zypper", ("zypper", "--non-interactive", "install")),
    ("/usr/bin/pacman", ("pacman", "--sync", "--noconfirm")),
)


def _desktop(context: Context) -> Iterator[CheckResult]:
    """Report containers of Docker Desktop, which run in a virtual machine without the devices of the host.

    Docker Desktop is the only Docker of the host, or the current context of a user leads to it.
    """
    names = context.request.runtimes
    if not context.host.exists(_DESKTOP) or (names and "docker" not in names):
        return
    topic = Topic(name="docker")
    text = f"containers of Docker Desktop ({_DESKTOP}) run in a virtual machine without the host's devices"
    if "docker" not in context.installed:
        detail = (
            f"{text}, and Docker Engine is not installed: install it, then run '{_USE_ENGINE}' as its user"
        )
        remedies = _install(context, "docker")
        yield topic.failed(DESKTOP, detail, remedies, is_error="docker" in names)
        return
    users = _desktop_users(context)
    if users:
        step = f"'{_USE_ENGINE}' as this user selects Docker Engine"
        detail = f"{text}: the current context of {listed(users)} is {_DESKTOP_CONTEXT}; {step}"
        yield topic.warning(DESKTOP, detail)
    else:
        yield topic.passed(DESKTOP, f"{text}; no current context of a user leads to it")


def _desktop_users(context: Context) -> list[str]:
    """Return the users, or the examined user, whose current context is that of Docker Desktop."""
    if context.request.user is not None:
        homes = {context.request.user.name: context.request.user.home}
    else:
        homes = {name: home for name, _, _, _, _, home, *_ in rows(context.host, "/etc/passwd", 6)}
    files = {name: f"{home}/.docker/config.json" for name, home in homes.items() if home.startswith("/")}
    return [
        shown(name)
        for name, file in files.items()
        if lookup(_object(context.text(file)), ("currentContext",)) == _DESKTOP_CONTEXT
    ]


def _object(text: str) -> dict[str, object]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _installed(context: Context) -> Iterator[CheckResult]:
    """Report requested runtimes that are not installed."""
    for name in context.request.runtimes:
        if name not in context.installed:
            if name == "docker" and context.host.exists(_DESKTOP):
                continue  # the check of Docker Desktop reports this
            bundled = bundled_containerd(context.host) if name == "containerd" else None
            if bundled:
                text = f"the containerd of {bundled.name} is not set up: {bundled.main} does not exist"
                start = Remedy(argv=("systemctl", "start", bundled.unit), why=f"start {bundled.name}")
                yield Topic(name=name).error(f"{name}-installed", text, (start,) if context.is_live else ())
                continue
            if name == "docker" and (script := emulated_docker(context.host)):
                yield _emulated(context, name, script)
                continue
            text = f"{name} is not installed in the usual places"
            yield Topic(name=name).error(f"{name}-installed", text, _install(context, name))
    if not context.installed and not context.request.runtimes:
        text = "no podman, Docker, containerd or CRI-O is installed"
        yield Topic(name="runtimes").passed("runtime-installed", text)


def _emulated(context: Context, name: str, script: str) -> CheckResult:
    """Return the failure that the requested Docker is podman with Docker's command line."""
    text = (
        f"{script} is podman's emulation of Docker: no Docker daemon is installed, and podman reads the specs"
    )
    why = "examine podman"
    examine = run_cdigen(context, "doctor", "--for", "podman", why=why, as_root=False)
    return Topic(name=name).error(f"{name}-installed", text, (examine,))


def _install(context: Context, name: str) -> tuple[Remedy, ...]:
    for program, command in _MANAGERS:
        if context.host.exists(program):
            package = _PACKAGES[name].get(program.rpartition("/")[2], _PACKAGES[name][""])
            return (Remedy(argv=(*command, package), why=f"install {name}"),)
    return ()


CHECKS = (_desktop, _installed)
