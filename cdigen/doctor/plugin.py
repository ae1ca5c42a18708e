"""Checks of cdigen's NRI plugin: that it runs, and what it cannot keep from happening."""

from __future__ import annotations

from cdigen.doctor.others import DAEMON, is_enabled
from cdigen.doctor.result import Remedy
from cdigen.host.root import shown
from cdigen.model.errors import CdigenError
from cdigen.runtimes.daemon_service import PLUGIN_UNIT, service_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

PLUGIN, FAIL_OPEN = "nri-plugin", "nri-fail-open"
_WITHOUT = "containers start without the devices that they ask for"


def _plugin(context: Context) -> Iterator[CheckResult]:
    """Report whether the NRI plugin runs, and what becomes of containers while it does not."""
    try:
        status = context.request.plugin()
    except CdigenError as error:
        yield DAEMON.unchecked(PLUGIN, shown(error.message))
        return
    enabled = is_enabled(context, PLUGIN_UNIT)
    is_ended = status is not None and status["state"] == "ended"
    if not context.is_live and (is_ended or (status is None and enabled)):
        yield DAEMON.unchecked(PLUGIN, "the host is a folder")
    elif status is not None and status["state"] not in {"registered", "ended"}:
        why = shown(str(status["reason"]) or str(status["state"]))
        yield DAEMON.warning(PLUGIN, f"the NRI plugin is not registered: {why}; {_WITHOUT}")
    elif status is not None and status["state"] == "registered":
        yield DAEMON.good(PLUGIN, f"the NRI plugin is registered with {_runtime(status)}")
        yield DAEMON.good(FAIL_OPEN, _holes(status))
    elif enabled:
        text = f"the NRI plugin is enabled and not running: {_WITHOUT}"
        start = Remedy(argv=("systemctl", "restart", PLUGIN_UNIT), why="start cdigen's NRI plugin again")
        yield DAEMON.error(PLUGIN, text, (start,))
    elif status is not None:
        text = f"the NRI plugin is not running ({shown(str(status['reason']))}): {_WITHOUT}"
        yield DAEMON.warning(PLUGIN, f"{text}, until its runtime, or whoever has started it, does so again")
    else:
        text = "cdigen's NRI plugin is not set up: no container gets devices for a variable or annotation"
        yield DAEMON.good(PLUGIN, f"{text} (start it with {service_of(context.host).plugin})")


def _runtime(status: Mapping[str, Any]) -> str:
    runtime = status["runtime"]
    return shown(f"{runtime.get('name')} {runtime.get('version')}")


def _holes(status: Mapping[str, Any]) -> str:
    """Return what the plugin cannot close from its side (docs/nri.md, "Fail closed")."""
    if not status["runtime"].get("validates"):
        return (
            f"while the plugin is away, or hangs, {_WITHOUT}: {_runtime(status)} has no validator of NRI "
            "plugins (containerd 2.2 and CRI-O 1.34 have)"
        )
    name = "crio" if status["runtime"].get("name") == "cri-o" else "containerd"
    return (
        f"while the plugin is away, {_WITHOUT}, unless the runtime requires it ('cdigen configure {name} "
        "--nri-required'); after it was killed, the next container in a pod that is there is refused once, "
        "whatever it asks for"
    )


CHECKS = (_plugin,)
