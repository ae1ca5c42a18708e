"""Call a runtime's own programs when it is configured: restart it, have dockerd validate its file."""

from __future__ import annotations

import posixpath

from cdigen.host import childprocess
from cdigen.host.root import reason
from cdigen.host.trust import untrusted
from cdigen.model.errors import CdigenError
from cdigen.runtimes.releases import RuntimeBehaviour, behaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.host.root import Root
    from cdigen.runtimes.installed import InstalledRuntime

# podman has no daemon: it reads its configuration at each start of a container.
SERVICES = {"docker": "docker", "containerd": "containerd", "crio": "crio"}
_SYSTEMD = "/run/systemd/system"  # sd_booted(3)
_SYSTEMCTL = ("/usr/bin/systemctl", "/bin/systemctl")
_OPENRC = ("/sbin/rc-service", "/usr/sbin/rc-service", "/usr/bin/rc-service")
# systemd gives a service 90 s to stop and 90 s to start.
_RESTART_S = 200.0
_VALIDATE_S = 20.0


def command_for(runtime: str, host: Root) -> tuple[str, ...]:
    """Return the command that restarts RUNTIME on HOST, nothing where it has no daemon."""
    return _command(runtime, host) if runtime in SERVICES else ()


def restart(runtime: str, host: Root) -> str:
    """Restart RUNTIME; returns the command that did, nothing without a daemon. CdigenError: it failed."""
    if runtime not in SERVICES:
        return ""
    name, *rest = _command(runtime, host)
    places = _SYSTEMCTL if name == "systemctl" else _OPENRC
    program = next((place for place in places if host.exists(place)), places[0])
    shown_command = " ".join((name, *rest))
    hint = f"the configuration is changed; run '{shown_command}' by hand"
    if problem := untrusted(program):
        raise CdigenError(f"{runtime} is not restarted: {problem}", hint=hint, kind="restart-failed")
    try:
        ending = childprocess.run((program, *rest), deadline_s=_RESTART_S)
    except OSError as error:
        raise CdigenError(f"{shown_command}: {reason(error)}", hint=hint, kind="restart-failed") from error
    if ending.by != "itself" or ending.status != 0:
        why = ending.last_stderr_line or f"it ended with {ending.status}"
        raise CdigenError(f"{shown_command}: {why}", hint=hint, kind="restart-failed")
    return shown_command


def dockerd_check(binary: InstalledRuntime) -> Callable[[str], str] | None:
    """Return what asks the dockerd of this machine about a configuration file; None where it may not be."""
    if posixpath.basename(binary.binary) != "dockerd" or untrusted(binary.binary):
        return None
    if binary.release is None or not behaves("docker", binary.release, RuntimeBehaviour.VALIDATES_CONFIG):
        return None

    def check(path: str) -> str:
        command = (binary.binary, "--validate", "--config-file", path)
        try:
            ending = childprocess.run(command, deadline_s=_VALIDATE_S)
        except OSError:
            return ""  # it cannot be asked, and that is not a verdict
        refused = ending.by == "itself" and ending.status == 1
        return f"dockerd says: {ending.last_stderr_line}" if refused else ""

    return check


def _command(runtime: str, host: Root) -> tuple[str, ...]:
    has_openrc = any(host.exists(place) for place in _OPENRC)
    if not host.exists(_SYSTEMD) and has_openrc:
        return ("rc-service", SERVICES[runtime], "restart")
    return ("systemctl", "restart", SERVICES[runtime])
