"""Checks of cdigen's NRI plugin: whether the plugin runs, and which containers it cannot reject."""

from __future__ import annotations

from cdigen.doctor.checks.configuration import CONFIGURATION
from cdigen.doctor.checks.other_tools import DAEMON
from cdigen.doctor.result import Remedy
from cdigen.host.root import shown
from cdigen.model.errors import CdigenError
from cdigen.runtimes.daemon_service import PLUGIN_UNIT, service_of
from cdigen.runtimes.units import is_enabled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

PLUGIN, FAIL_OPEN = "nri-plugin", "nri-fail-open"
_WITHOUT = "containers start without the devices that they request"


def _plugin(context: Context) -> Iterator[CheckResult]:
    """Report whether the NRI plugin runs, and the effect on containers if it does not run."""
    if not context.request.concerns("containerd", "crio"):
        return
    try:
        status = context.request.plugin()
    except CdigenError as error:
        yield DAEMON.skipped(PLUGIN, shown(error.message))
        return
    enabled = is_enabled(context.host, PLUGIN_UNIT)
    is_ended = status is not None and status["state"] == "ended"
    if not context.is_live and (is_ended or (status is None and enabled)):
        yield DAEMON.needs_system(PLUGIN)
    elif status is not None and status["state"] not in {"registered", "ended"}:
        reason = shown(str(status["reason"]) or str(status["state"]))
        yield DAEMON.warning(PLUGIN, f"the NRI plugin is not registered: {reason}; {_WITHOUT}")
    elif status is not None and status["state"] == "registered":
        yield DAEMON.passed(PLUGIN, f"the NRI plugin is registered with {_runtime(status)}")
        yield DAEMON.passed(FAIL_OPEN, _limits(status))
    elif enabled:
        text = f"the NRI plugin is enabled but not running: {_WITHOUT}"
        start = Remedy(argv=("systemctl", "restart", PLUGIN_UNIT), why="start cdigen's NRI plugin")
        yield DAEMON.error(PLUGIN, text, (start,), (CONFIGURATION,))
    elif status is not None:
        text = f"the NRI plugin is not running ({shown(str(status['reason']))}): {_WITHOUT}"
        yield DAEMON.warning(PLUGIN, f"{text}, until a runtime or a service starts the plugin")
    else:
        text = "cdigen's NRI plugin is not set up: variables and annotations request no devices"
        yield DAEMON.passed(PLUGIN, f"{text} (to start it: {service_of(context.host).plugin})")


def _runtime(status: Mapping[str, Any]) -> str:
    runtime = status["runtime"]
    return shown(f"{runtime.get('name')} {runtime.get('version')}")


def _limits(status: Mapping[str, Any]) -> str:
    """Return the cases in which containers start without devices (docs/reference/nri.md)."""
    if not status["runtime"].get("validates"):
        return (
            f"while the plugin is not running or hangs, {_WITHOUT}: {_runtime(status)} has no validator of "
            "NRI plugins (containerd 2.2 and CRI-O 1.34 have one)"
        )
    name = "crio" if status["runtime"].get("name") == "cri-o" else "containerd"
    return (
        f"while the plugin is not running, {_WITHOUT}, unless the runtime requires the plugin ('cdigen "
        f"configure {name} --nri-required'). After a kill of the plugin, the runtime rejects the next "
        "container of an existing pod once, even a container without a request"
    )


CHECKS = (_plugin,)
