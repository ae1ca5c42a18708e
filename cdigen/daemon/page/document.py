"""What the page shows and no other document has, for programs: ``document``."""

from __future__ import annotations

from cdigen.model.strict import as_json
from cdigen.model.timestamps import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.daemon.page.view import DeviceView, Holder, PageView, Peer

SCHEMA = 1


def document(view: PageView) -> dict[str, Any]:
    """Return who has the devices of VIEW and what these do, what runtimes find, how the peers stand."""
    return {
        "schema": SCHEMA,
        "as_of": timestamp(view.at_s),
        "host": view.host,
        "cuda": view.cuda or None,
        "devices": [_device(one) for one in view.devices],
        "figures_problem": view.figures_problem,
        "nameless": view.is_nameless,
        "sources": [as_json(source) for source in view.sources],
        "runtimes": None if view.runtimes is None else [as_json(runtime) for runtime in view.runtimes],
        "peers": [_peer(peer) for peer in view.peers],
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
        "figures": None if one.figures is None else as_json(one.figures),
        "holders": [_holder(holder) for holder in one.holders],
    }


def _holder(holder: Holder) -> dict[str, Any]:
    return {"name": holder.name, "said_by": holder.said_by, "since": _stamp(holder.since_s)}


def _peer(peer: Peer) -> dict[str, Any]:
    return {
        "name": peer.name,
        "state": peer.state,
        "word": peer.word,
        "since": _stamp(peer.since_s),
        "reason": peer.reason,
        "lines": list(peer.lines),
        "refusals": [
            {"at": timestamp(refusal.at_s), "who": refusal.who, "reason": refusal.reason}
            for refusal in peer.refusals
        ],
    }


def _stamp(at_s: float | None) -> str | None:
    return None if at_s is None else timestamp(at_s)
