"""The other services of cdigen, and the users of devices that they report: ``read_services``.

The daemon reads the status files of ``cdigen nri`` and ``cdigen kubelet``. A status file that cannot be read
is reported, and has no other effect.
"""

from __future__ import annotations

from cdigen.model.errors import CdigenError
from cdigen.model.times.ages import seconds
from cdigen.page.view import DeviceUser, DeviceUserSource, RefusedContainer, ServiceStatus
from cdigen.runtimes.daemon_service import SYSTEMD
from cdigen.service.status import read_status, reason_not_running
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from cdigen.page.view import ServiceState
    from cdigen.runtimes.daemon_service import DaemonService

NRI, KUBELET = "NRI plugin", "kubelet's device plugins"
_UNREADABLE = "status.json cannot be read"
# The effect on containers and pods if a service does not run.
_ENDED = {
    NRI: "containers start without the devices that they request, unless the runtime requires the plugin",
    KUBELET: "new pods get no devices; running pods keep their devices",
}
_STATES: dict[str, ServiceState] = {"registered": "good", "idle": "good"}


@frozen
class NriContainer:
    """A container into which the NRI plugin injected ``devices`` (CDI names); ``id`` is the runtime's id."""

    id: str
    devices: tuple[str, ...]
    user: DeviceUser


@frozen
class ServiceStatuses:
    """The status of the ``services`` that have run here, the users, and the state of each source.

    ``users`` are pairs of a CDI name and a user. Some of ``nri_containers`` may have ended.
    """

    services: tuple[ServiceStatus, ...] = ()
    users: tuple[tuple[str, DeviceUser], ...] = ()
    nri_containers: tuple[NriContainer, ...] = ()
    sources: tuple[DeviceUserSource, ...] = ()


def read_services(nri_dir: str, kubelet_dir: str, service: DaemonService = SYSTEMD) -> ServiceStatuses:
    """Return the content of the status files in the folders NRI_DIR and KUBELET_DIR; never raise.

    SERVICE has the commands of the host's service manager for the hints.
    """
    nri, nri_document = _read(NRI, nri_dir, _nri, service.plugin)
    kubelet, document = _read(KUBELET, kubelet_dir, _kubelet, service.kubelet)
    injected, nri_source = _injected(nri_document)
    is_served = kubelet is not None and kubelet.state in {"good", "waiting"}
    users: tuple[tuple[str, DeviceUser], ...] = ()
    source = DeviceUserSource(name="kubelet", state="absent", detail="cdigen kubelet does not run here")
    if document is not None and is_served:
        try:
            users = tuple(_allocated(document))
            source = DeviceUserSource(name="kubelet", state="responded")
        except (LookupError, TypeError, AttributeError, ValueError):
            source = DeviceUserSource(name="kubelet", state="no-response", detail=_UNREADABLE)
    return ServiceStatuses(
        services=tuple(service for service in (kubelet, nri) if service is not None),
        users=users,
        nri_containers=injected,
        sources=(source, nri_source),
    )


def _injected(document: Mapping[str, Any] | None) -> tuple[tuple[NriContainer, ...], DeviceUserSource]:
    """Return the containers in the NRI plugin's DOCUMENT, and the state of the source.

    DOCUMENT is None if the plugin does not run.
    """
    if document is None:
        return (), DeviceUserSource(name=NRI, state="absent", detail="cdigen nri does not run here")
    try:
        containers = tuple(_nri_container(row) for row in document["injected_containers"])
    except (LookupError, TypeError, AttributeError, ValueError):
        return (), DeviceUserSource(name=NRI, state="no-response", detail=_UNREADABLE)
    return containers, DeviceUserSource(name=NRI, state="responded")


def _nri_container(row: Mapping[str, Any]) -> NriContainer:
    since_s = None if row["at"] is None else seconds(row["at"])
    user = DeviceUser(name=_container(row), source=NRI, since_s=since_s)
    return NriContainer(id=str(row["id"]), devices=tuple(map(str, row["devices"])), user=user)


def _read(
    name: str, folder: str, describe: Callable[[Mapping[str, Any]], ServiceStatus], start: str
) -> tuple[ServiceStatus | None, Mapping[str, Any] | None]:
    """Return the status of the service NAME from the file in FOLDER, and the document if the service runs."""
    if not folder:
        return None, None
    try:
        document = read_status(folder, {"reason": str, "journal": list})
        if document is None:
            return None, None
        found = describe(document)
        problem = reason_not_running(folder, document)
    except (CdigenError, LookupError, TypeError, AttributeError, ValueError) as error:
        hint = "'cdigen doctor' checks the process"
        return ServiceStatus(name=name, state="bad", status=_UNREADABLE, reason=str(error), hint=hint), None
    if problem:
        why = f"{problem}: {_ENDED[name]}"
        hint = f"start it with {start}"
        ended = ServiceStatus(
            name=name, state="bad", status="not running", reason=why, hint=hint, refusals=found.refusals
        )
        return ended, None
    return found, document


def _nri(document: Mapping[str, Any]) -> ServiceStatus:
    runtime, counts = document["runtime"], document["counts"]
    lines = [f"with {runtime['name']} {runtime['version']}"] if runtime else []
    injected, refused_ = counts.get("inject", 0), counts.get("refuse", 0)
    lines.append(f"since the plugin started: {injected} injected containers, {refused_} refused containers")
    if document["uninjected_count"]:
        lines.append(f"{document['uninjected_count']} running containers requested devices and have none")
    refused = [row for row in document["journal"] if row["outcome"] == "refuse"]
    refusals = [_refusal(row, _container(row), row["reason"]) for row in refused]
    return _status(NRI, document, lines, refusals)


def _kubelet(document: Mapping[str, Any]) -> ServiceStatus:
    lines = [_resource(row) for row in document["resources"]]
    lines += [f"the last known state is used: {reason}" for reason in document["stale"]]
    refused = [row for row in document["journal"] if row["state"] == "refused"]
    # A request of the kubelet does not name a pod.
    refusals = [
        _refusal(row, f"a container that requested {row['resource']}", row["reason"]) for row in refused
    ]
    return _status(KUBELET, document, lines or ["no resource"], refusals)


def _status(
    name: str, document: Mapping[str, Any], lines: list[str], refusals: list[RefusedContainer]
) -> ServiceStatus:
    return ServiceStatus(
        name=name,
        state=_STATES.get(document["state"], "waiting"),
        status=document["state"],
        since_s=seconds(document["since"]),
        reason=document["reason"],
        lines=tuple(lines),
        refusals=tuple(refusals),
    )


def _resource(row: Mapping[str, Any]) -> str:
    used = "" if row["allocated"] is None else f", {row['allocated']} in use"
    unhealthy = f", {row['health']['unhealthy']} unhealthy" if row["health"]["unhealthy"] else ""
    state = "" if row["state"] == "registered" else f" ({row['state']})"
    return f"{row['resource']}: {row['count']}{used}{unhealthy}{state}"


def _refusal(row: Mapping[str, Any], container: str, reason: str) -> RefusedContainer:
    return RefusedContainer(at_s=seconds(row["at"]) or 0.0, container=container, reason=str(reason))


def _container(row: Mapping[str, Any]) -> str:
    return f"pod {row['namespace']}/{row['pod']}, container {row['container']}"


def _allocated(document: Mapping[str, Any]) -> Iterator[tuple[str, DeviceUser]]:
    """Yield each allocated CDI name with its container."""
    # The journal has the kubelet's device ids. The resources have the CDI names of these ids.
    names = {
        (row["resource"], unit["device"]): unit["names"]
        for row in document["resources"]
        for unit in row["devices"]
    }
    for row in document["journal"]:
        if row["state"] == "held":
            user = DeviceUser(name=_container(row), source="kubelet", since_s=seconds(row["at"]))
            for unit in row["devices"]:
                for name in names.get((row["resource"], unit), ()):
                    yield str(name), user
