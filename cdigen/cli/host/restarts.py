"""Start, restart and examine services: a runtime for ``cdigen configure``, cdigen for ``install-service``.

``dockerd_check`` checks Docker's configuration with dockerd.
"""

from __future__ import annotations

import os

from cdigen.host import childprocess
from cdigen.host.root import reason
from cdigen.host.trust import untrusted
from cdigen.model.errors import CdigenError
from cdigen.runtimes.daemon_service import KUBELET_UNIT, PLUGIN_UNIT, UNIT
from cdigen.runtimes.installed import is_of_snap
from cdigen.runtimes.releases import RuntimeBehaviour, behaves
from cdigen.runtimes.units import has_unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.host.childprocess import ChildResult
    from cdigen.host.root import Root
    from cdigen.runtimes.installed import InstalledRuntime

# The names of the services in distributions. podman has no daemon. It reads its configuration for each
# container.
SERVICES = {
    "docker": ("docker", "snap.docker.dockerd"),
    "containerd": ("containerd",),
    "crio": ("crio", "cri-o"),
}
_SYSTEMD = "/run/systemd/system"  # sd_booted(3)
_SYSTEMCTL = ("/usr/bin/systemctl", "/bin/systemctl")
_OPENRC = ("/sbin/rc-service", "/usr/sbin/rc-service", "/usr/bin/rc-service")
# systemd gives a service 90 s to stop and 90 s to start.
_RESTART_S = 200.0
_VALIDATE_S = 20.0
_RELOAD = ("daemon-reload",)
# The units have a limit of 30 s to start and 10 s to stop.
_OWN_S = 90.0


def command_for(runtime: str, host: Root, unit: str = "", *, is_rootless: bool = False) -> tuple[str, ...]:
    """Return the command that restarts RUNTIME on HOST; empty if the runtime has no daemon or no service.

    UNIT is the unit of RUNTIME, if it is not the usual unit. If IS_ROOTLESS is true, the command is for the
    user who runs the rootless RUNTIME.
    """
    services = (unit.removesuffix(".service"),) if unit else SERVICES.get(runtime, ())
    if is_rootless:
        return ("systemctl", "--user", "restart", services[0])
    if host.exists(_SYSTEMD):
        units = (name for name in services if has_unit(host, f"{name}.service"))
        return next((("systemctl", "restart", name) for name in units), ())
    if services and any(host.exists(path) for path in _OPENRC):
        return ("rc-service", services[0], "restart")
    return ()


def restart(runtime: str, host: Root, unit: str = "") -> str:
    """Restart RUNTIME and return the command; return an empty text if RUNTIME has no daemon.

    UNIT is the unit of RUNTIME, if it is not the usual unit. Raises CdigenError if the restart fails.
    """
    if runtime not in SERVICES:
        return ""
    if not (command := command_for(runtime, host, unit)):
        raise CdigenError(
            f"{runtime} is not restarted: neither systemd nor OpenRC has its service",
            hint="the configuration is changed; restart the runtime manually",
            kind="restart-failed",
        )
    shown_command = " ".join(command)
    hint = f"the configuration is changed; run '{shown_command}'"
    effect = f"{runtime} is not restarted"
    result = _run(command, effect, hint, named=shown_command, deadline_s=_RESTART_S)
    _require_success(result, shown_command, hint)
    return shown_command


def has_systemd() -> bool:
    """Return whether systemd booted this machine; an installed systemctl is not sufficient."""
    return os.path.isdir(_SYSTEMD)


def start_own() -> None:
    """Start cdigen.service and enable it for every boot; raise CdigenError if it does not start."""
    _change_own(_RELOAD)
    _change_own(("enable", "--now", "--quiet", UNIT))


def restart_own() -> None:
    """Restart all running services of cdigen with the new files; raise CdigenError if the restart fails."""
    _change_own(_RELOAD)
    _change_own(("try-restart", UNIT, PLUGIN_UNIT, KUBELET_UNIT))


def own_state() -> str:
    """Return the state of cdigen.service from systemd: ``active``, ``inactive``, ``failed`` and others."""
    return _systemctl(("is-active", UNIT)).output.decode("utf-8", "replace").strip() or "unknown"


def _change_own(words: tuple[str, ...]) -> None:
    hint = "the files are installed; 'journalctl -u cdigen -n 20' has the reason"
    _require_success(_systemctl(words), f"systemctl {' '.join(words)}", hint)


def _systemctl(words: tuple[str, ...]) -> ChildResult:
    hint = "the files are installed; run 'systemctl daemon-reload && systemctl enable --now cdigen'"
    return _run(("systemctl", *words), "cdigen is not started", hint, deadline_s=_OWN_S)


def _run(
    command: tuple[str, ...], effect: str, hint: str, *, named: str = "", deadline_s: float
) -> ChildResult:
    """Return the result of COMMAND of a service manager; raise CdigenError if COMMAND cannot be run.

    EFFECT is the consequence if other users can change the program. NAMED is the command in the error of a
    failed start, by default the path of the program.
    """
    paths = _SYSTEMCTL if command[0] == "systemctl" else _OPENRC
    program = next((path for path in paths if os.path.exists(path)), paths[0])
    if problem := untrusted(program):
        raise CdigenError(f"{effect}: {problem}", hint=hint, kind="restart-failed")
    try:
        return childprocess.run((program, *command[1:]), deadline_s=deadline_s)
    except OSError as error:
        raise CdigenError(f"{named or program}: {reason(error)}", hint=hint, kind="restart-failed") from error


def _require_success(result: ChildResult, command: str, hint: str) -> None:
    if result.by != "itself" or result.status != 0:
        problem = result.last_stderr_line or f"exit status {result.status}"
        raise CdigenError(f"{command}: {problem}", hint=hint, kind="restart-failed")


def dockerd_check(runtime: str, host: Root, binary: InstalledRuntime | None) -> Callable[[str], str] | None:
    """Return a function that checks a configuration file of RUNTIME with dockerd.

    BINARY is the runtime's binary on HOST. The result is None if dockerd cannot run or must not run. The
    dockerd of a snap needs the environment of the snap.
    """
    if runtime != "docker" or not host.is_this_machine or binary is None:
        return None
    if os.path.basename(binary.binary) != "dockerd" or is_of_snap(binary.binary):
        return None
    if untrusted(binary.binary):
        return None
    if binary.release is None or not behaves("docker", binary.release, RuntimeBehaviour.VALIDATES_CONFIG):
        return None

    def check(path: str) -> str:
        command = (binary.binary, "--validate", "--config-file", path)
        try:
            result = childprocess.run(command, deadline_s=_VALIDATE_S)
        except OSError:
            return ""  # dockerd cannot run, so the file is not checked
        is_rejected = result.by == "itself" and result.status == 1
        return f"dockerd reports: {result.last_stderr_line}" if is_rejected else ""

    return check
