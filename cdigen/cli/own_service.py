"""Start, restart and examine cdigen's own service with systemd: ``start``, ``restart``, ``state``."""

from __future__ import annotations

import os

from cdigen.host import childprocess
from cdigen.host.root import reason
from cdigen.host.trust import untrusted
from cdigen.model.errors import CdigenError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.childprocess import ChildResult

UNIT = "cdigen.service"
PLUGIN_UNIT = "cdigen-nri.service"
KUBELET_UNIT = "cdigen-kubelet.service"
_RELOAD = ("daemon-reload",)
_BOOTED = "/run/systemd/system"  # sd_booted(3)
_SYSTEMCTL = ("/usr/bin/systemctl", "/bin/systemctl")
# The units give themselves 30 s to start and 10 s to stop.
_DEADLINE_S = 90.0


def has_systemd() -> bool:
    """Return whether this machine was booted by systemd, and not only has its programs."""
    return os.path.isdir(_BOOTED)


def start() -> None:
    """Start the service, now and at every boot; CdigenError where it does not."""
    _must(_RELOAD)
    _must(("enable", "--now", "--quiet", UNIT))


def restart() -> None:
    """Let what runs of it go on by the new files; CdigenError where it does not."""
    _must(_RELOAD)
    _must(("try-restart", UNIT, PLUGIN_UNIT, KUBELET_UNIT))


def state() -> str:
    """Return the service's state in systemd's own word: active, inactive, failed, ..."""
    return _systemctl(("is-active", UNIT)).output.decode("utf-8", "replace").strip() or "unknown"


def _must(words: tuple[str, ...]) -> None:
    ending = _systemctl(words)
    if ending.by == "itself" and ending.status == 0:
        return
    raise CdigenError(
        f"systemctl {' '.join(words)}: {ending.last_stderr_line or f'it ended with {ending.status}'}",
        hint="the files are there; 'journalctl -u cdigen -n 20' has the reason",
        kind="restart-failed",
    )


def _systemctl(words: tuple[str, ...]) -> ChildResult:
    program = next((place for place in _SYSTEMCTL if os.path.exists(place)), _SYSTEMCTL[0])
    hint = "the files are there; start it by hand: systemctl daemon-reload && systemctl enable --now cdigen"
    if problem := untrusted(program):
        raise CdigenError(f"cdigen is not started: {problem}", hint=hint, kind="restart-failed")
    try:
        return childprocess.run((program, *words), deadline_s=_DEADLINE_S)
    except OSError as error:
        raise CdigenError(f"{program}: {reason(error)}", hint=hint, kind="restart-failed") from error
