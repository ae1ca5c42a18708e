"""``document``: as JSON, the content of the page that no other JSON document of the daemon contains."""

from __future__ import annotations

from cdigen.model.strict import as_json
from cdigen.model.times.timestamps import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.page.view import DeviceUser, DeviceView, PageView, ServiceStatus

SCHEMA = 1


def document(view: PageView) -> dict[str, Any]:
    """Return the users and stats of the devices in VIEW, the devices that runtimes find, and the services."""
    return {
        "schema": SCHEMA,
        "as_of": timestamp(view.at_s),
        "host": view.host,
        "cuda": view.cuda or None,
        "devices": [_device(one) for one in view.devices],
        "stats_problem": view.stats_problem,
        "nameless": view.is_nameless,
        "sources": [as_json(source) for source in view.sources],
        "runtimes": None if view.runtimes is None else [as_json(runtime) for runtime in view.runtimes],
        "services": [_service(service) for service in view.services],
    }


def _device(one: DeviceView) -> dict[str, Any]:
    device = one.device
    return {
        "device": device.name,
        "label": one.label,
        "vendor": device.vendor,
        "address": device.accelerator.address,
        "instance": device.instance,
        "health": device.health,
        "causes": [as_json(cause) for cause in device.own_causes],
        "stats": None if one.stats is None else as_json(one.stats),
        "users": [_user(user) for user in one.users],
    }


def _user(user: DeviceUser) -> dict[str, Any]:
    return {"name": user.name, "source": user.source, "since": _stamp(user.since_s)}


def _service(service: ServiceStatus) -> dict[str, Any]:
    return {
        "name": service.name,
        "state": service.state,
        "status": service.status,
        "since": _stamp(service.since_s),
        "reason": service.reason,
        "lines": list(service.lines),
        "refusals": [
            {"at": timestamp(refusal.at_s), "container": refusal.container, "reason": refusal.reason}
            for refusal in service.refusals
        ],
    }


def _stamp(at_s: float | None) -> str | None:
    return None if at_s is None else timestamp(at_s)
