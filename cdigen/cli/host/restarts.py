"""Restart a runtime, and check Docker's configuration with dockerd, for ``cdigen configure``."""

from __future__ import annotations

import posixpath

from cdigen.host import childprocess
from cdigen.host.root import reason
from cdigen.host.trust import untrusted
from cdigen.model.errors import CdigenError
from cdigen.runtimes.releases import RuntimeBehaviour, behaves
from cdigen.runtimes.units import has_unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.host.root import Root
    from cdigen.runtimes.installed import InstalledRuntime

# The names of the services in distributions. podman has no daemon. It reads its configuration for each
# container.
SERVICES = {"docker": ("docker",), "containerd": ("containerd",), "crio": ("crio", "cri-o")}
_SYSTEMD = "/run/systemd/system"  # sd_booted(3)
_SYSTEMCTL = ("/usr/bin/systemctl", "/bin/systemctl")
_OPENRC = ("/sbin/rc-service", "/usr/sbin/rc-service", "/usr/bin/rc-service")
# systemd gives a service 90 s to stop and 90 s to start.
_RESTART_S = 200.0
_VALIDATE_S = 20.0


def command_for(runtime: str, host: Root) -> tuple[str, ...]:
    """Return the command that restarts RUNTIME on HOST; empty if the runtime has no daemon or no service."""
    services = SERVICES.get(runtime, ())
    if host.exists(_SYSTEMD):
        units = (name for name in services if has_unit(host, f"{name}.service"))
        return next((("systemctl", "restart", name) for name in units), ())
    if services and any(host.exists(path) for path in _OPENRC):
        return ("rc-service", services[0], "restart")
    return ()


def restart(runtime: str, host: Root) -> str:
    """Restart RUNTIME and return the command; return an empty text if RUNTIME has no daemon.

    Raises CdigenError if the restart fails.
    """
    if runtime not in SERVICES:
        return ""
    if not (command := command_for(runtime, host)):
        raise CdigenError(
            f"{runtime} is not restarted: neither systemd nor OpenRC has its service",
            hint="the configuration is changed; restart the runtime manually",
            kind="restart-failed",
        )
    name, *rest = command
    paths = _SYSTEMCTL if name == "systemctl" else _OPENRC
    program = next((path for path in paths if host.exists(path)), paths[0])
    shown_command = " ".join((name, *rest))
    hint = f"the configuration is changed; run '{shown_command}'"
    if problem := untrusted(program):
        raise CdigenError(f"{runtime} is not restarted: {problem}", hint=hint, kind="restart-failed")
    try:
        result = childprocess.run((program, *rest), deadline_s=_RESTART_S)
    except OSError as error:
        raise CdigenError(f"{shown_command}: {reason(error)}", hint=hint, kind="restart-failed") from error
    if result.by != "itself" or result.status != 0:
        problem = result.last_stderr_line or f"exit status {result.status}"
        raise CdigenError(f"{shown_command}: {problem}", hint=hint, kind="restart-failed")
    return shown_command


def dockerd_check(runtime: str, host: Root, binary: InstalledRuntime | None) -> Callable[[str], str] | None:
    """Return a function that checks a configuration file of RUNTIME with dockerd.

    BINARY is the runtime's binary on HOST. The result is None if dockerd cannot run or must not run.
    """
    if runtime != "docker" or not host.is_this_machine or binary is None:
        return None
    if posixpath.basename(binary.binary) != "dockerd" or untrusted(binary.binary):
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
