"""Start, restart and examine the services of cdigen with systemd."""

from __future__ import annotations

import os

from cdigen.host import childprocess
from cdigen.host.root import reason
from cdigen.host.trust import untrusted
from cdigen.model.errors import CdigenError
from cdigen.runtimes.daemon_service import KUBELET_UNIT, PLUGIN_UNIT, UNIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.childprocess import ChildResult

_RELOAD = ("daemon-reload",)
_BOOTED = "/run/systemd/system"  # sd_booted(3)
_SYSTEMCTL = ("/usr/bin/systemctl", "/bin/systemctl")
# The units have a limit of 30 s to start and 10 s to stop.
_DEADLINE_S = 90.0


def has_systemd() -> bool:
    """Return whether systemd booted this machine; an installed systemctl is not sufficient."""
    return os.path.isdir(_BOOTED)


def start() -> None:
    """Start the service and enable it for every boot; raise CdigenError if it does not start."""
    _require_success(_RELOAD)
    _require_success(("enable", "--now", "--quiet", UNIT))


def restart() -> None:
    """Restart all running services of cdigen with the new files; raise CdigenError if the restart fails."""
    _require_success(_RELOAD)
    _require_success(("try-restart", UNIT, PLUGIN_UNIT, KUBELET_UNIT))


def state() -> str:
    """Return the state of the service from systemd: ``active``, ``inactive``, ``failed`` and others."""
    return _systemctl(("is-active", UNIT)).output.decode("utf-8", "replace").strip() or "unknown"


def _require_success(words: tuple[str, ...]) -> None:
    result = _systemctl(words)
    if result.by == "itself" and result.status == 0:
        return
    raise CdigenError(
        f"systemctl {' '.join(words)}: {result.last_stderr_line or f'exit status {result.status}'}",
        hint="the files are installed; 'journalctl -u cdigen -n 20' has the reason",
        kind="restart-failed",
    )


def _systemctl(words: tuple[str, ...]) -> ChildResult:
    program = next((path for path in _SYSTEMCTL if os.path.exists(path)), _SYSTEMCTL[0])
    hint = "the files are installed; run 'systemctl daemon-reload && systemctl enable --now cdigen'"
    if problem := untrusted(program):
        raise CdigenError(f"cdigen is not started: {problem}", hint=hint, kind="restart-failed")
    try:
        return childprocess.run((program, *words), deadline_s=_DEADLINE_S)
    except OSError as error:
        raise CdigenError(f"{program}: {reason(error)}", hint=hint, kind="restart-failed") from error
