"""The processes beside the daemon, by their status files: ``read_peers``, and what they say of holders.

Their documents are those of ``cdigen nri`` and ``cdigen kubelet``, which the daemon knows as files alone. One
that cannot be read says so, and costs nothing else.
"""

from __future__ import annotations

from cdigen.daemon.page.view import Holder, HolderSource, Peer, Refusal
from cdigen.frontend.status import read_status, reason_not_running
from cdigen.model.ages import seconds
from cdigen.model.errors import CdigenError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from cdigen.daemon.page.view import PeerState

_SCHEMA = 1
NRI, KUBELET = "NRI plugin", "kubelet's device plugins"
_UNREADABLE = "its status cannot be read"
# What each does not do where it has ended.
_ENDED = {
    NRI: "containers start without the devices that they ask for, unless the runtime requires it",
    KUBELET: "new pods get no devices, those that have some keep them",
}
_STATES: dict[str, PeerState] = {"registered": "good", "idle": "good"}


@frozen
class Booked:
    """A container to which the NRI plugin gave ``devices`` (CDI names); ``id`` is the runtime's."""

    id: str
    devices: tuple[str, ...]
    holder: Holder


@frozen
class Peers:
    """The ``peers`` that have run here, who has which device by their word, and whether that was asked.

    ``holders`` are pairs of a CDI name and a holder; ``booked`` may have ended.
    """

    peers: tuple[Peer, ...] = ()
    holders: tuple[tuple[str, Holder], ...] = ()
    booked: tuple[Booked, ...] = ()
    sources: tuple[HolderSource, ...] = ()


def read_peers(nri_dir: str, kubelet_dir: str) -> Peers:
    """Return what the status files in the folders NRI_DIR and KUBELET_DIR say; never raises."""
    nri, nri_document = _read(NRI, nri_dir, _nri)
    kubelet, document = _read(KUBELET, kubelet_dir, _kubelet)
    booked, nri_source = _book(nri_document)
    is_served = kubelet is not None and kubelet.state in {"good", "waiting"}
    holders: tuple[tuple[str, Holder], ...] = ()
    source = HolderSource(name="kubelet", state="absent", detail="cdigen kubelet does not run here")
    if document is not None and is_served:
        try:
            holders = tuple(_held(document))
            source = HolderSource(name="kubelet", state="asked")
        except (LookupError, TypeError, AttributeError, ValueError):
            source = HolderSource(name="kubelet", state="silent", detail=_UNREADABLE)
    return Peers(
        peers=tuple(peer for peer in (kubelet, nri) if peer is not None),
        holders=holders,
        booked=booked,
        sources=(source, nri_source),
    )


def _book(document: Mapping[str, Any] | None) -> tuple[tuple[Booked, ...], HolderSource]:
    """Return whom the NRI plugin gave devices, by its DOCUMENT, None where it does not run."""
    if document is None:
        return (), HolderSource(name=NRI, state="absent", detail="cdigen nri does not run here")
    try:
        return tuple(_booked(row) for row in document["holders"]), HolderSource(name=NRI, state="asked")
    except (LookupError, TypeError, AttributeError, ValueError):
        return (), HolderSource(name=NRI, state="silent", detail=_UNREADABLE)


def _booked(row: Mapping[str, Any]) -> Booked:
    since_s = None if row["at"] is None else seconds(row["at"])
    holder = Holder(name=_container(row), said_by=NRI, since_s=since_s)
    return Booked(id=str(row["id"]), devices=tuple(map(str, row["devices"])), holder=holder)


def _read(
    name: str, folder: str, told: Callable[[Mapping[str, Any]], Peer]
) -> tuple[Peer | None, Mapping[str, Any] | None]:
    """Return how the process NAME stands by the status in FOLDER, and that status if it runs."""
    if not folder:
        return None, None
    try:
        document = read_status(folder, schema=_SCHEMA, parts={"reason": str, "journal": list})
        if document is None:
            return None, None
        peer = told(document)
        problem = reason_not_running(folder, document)
    except (CdigenError, LookupError, TypeError, AttributeError, ValueError) as error:
        return Peer(name=name, state="bad", word=_UNREADABLE, reason=str(error)), None
    if problem:
        why = f"{problem}: {_ENDED[name]}"
        return Peer(name=name, state="bad", word="not running", reason=why, refusals=peer.refusals), None
    return peer, document


def _nri(document: Mapping[str, Any]) -> Peer:
    runtime, counts = document["runtime"], document["counts"]
    lines = [f"with {runtime['name']} {runtime['version']}"] if runtime else []
    given, refused_ = counts.get("inject", 0), counts.get("refuse", 0)
    lines.append(f"{given} containers given devices, {refused_} refused since it started")
    if document["missed_count"]:
        lines.append(f"{document['missed_count']} running containers asked and have not got devices")
    refused = [row for row in document["journal"] if row["outcome"] == "refuse"]
    refusals = [_refusal(row, _container(row), row["reason"]) for row in refused]
    return _peer(NRI, document, lines, refusals)


def _kubelet(document: Mapping[str, Any]) -> Peer:
    lines = [_resource(row) for row in document["resources"]]
    lines += [f"the last known state counts: {reason}" for reason in document["stale"]]
    refused = [row for row in document["journal"] if row["state"] == "refused"]
    # A request of the kubelet names no pod.
    refusals = [
        _refusal(row, f"a container that asked for {row['resource']}", row["reason"]) for row in refused
    ]
    return _peer(KUBELET, document, lines or ["nothing to offer"], refusals)


def _peer(name: str, document: Mapping[str, Any], lines: list[str], refusals: list[Refusal]) -> Peer:
    return Peer(
        name=name,
        state=_STATES.get(document["state"], "waiting"),
        word=document["state"],
        since_s=seconds(document["since"]),
        reason=document["reason"],
        lines=tuple(lines),
        refusals=tuple(refusals),
    )


def _resource(row: Mapping[str, Any]) -> str:
    used = "" if row["allocated"] is None else f", {row['allocated']} in use"
    sick = f", {row['health']['unhealthy']} unhealthy" if row["health"]["unhealthy"] else ""
    state = "" if row["state"] == "registered" else f" ({row['state']})"
    return f"{row['resource']}: {row['count']}{used}{sick}{state}"


def _refusal(row: Mapping[str, Any], who: str, reason: str) -> Refusal:
    return Refusal(at_s=seconds(row["at"]) or 0.0, who=who, reason=str(reason))


def _container(row: Mapping[str, Any]) -> str:
    return f"pod {row['namespace']}/{row['pod']}, container {row['container']}"


def _held(document: Mapping[str, Any]) -> Iterator[tuple[str, Holder]]:
    """Yield which container has which CDI name; the kubelet tells ids, of which the status has the names."""
    names = {
        (row["resource"], unit["device"]): unit["names"]
        for row in document["resources"]
        for unit in row["devices"]
    }
    for row in document["journal"]:
        if row["state"] == "held":
            holder = Holder(name=_container(row), said_by="kubelet", since_s=seconds(row["at"]))
            for unit in row["devices"]:
                for name in names.get((row["resource"], unit), ()):
                    yield str(name), holder
