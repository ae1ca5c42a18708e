"""Repeated samples of shared GPUs from all sources: `sampling_gpu_memory`.

The runtime reports the device nodes of containers. The kubelet's checkpoint has the units of containers. The
API server has the reservations.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from support.cluster.api import ApiError
from support.cluster.gpu_memory_node import NAMESPACE, RENDER, RESOURCES, SIZES, GpuMemoryCluster
from support.cluster.node import NODE
from support.cluster.pods import ended_before_start
from support.cluster.sampling import container_info, running_ids, sampling
from support.containers.cri_client import Cri, CriError
from support.hosts import amd_tree

from cdigen.gpushare.names import (
    ALLOCATION,
    DEFAULT_LEDGER_NAMESPACE,
    INDEX,
    LEDGER_KEY,
    OF_CONTAINER,
    ledger_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LABEL = "io.kubernetes."
# The index of each GPU of the node, by the prefix of the IDs of its units.
IDS = {gpu.bdf: index for index, gpu in enumerate(amd_tree.mi210(len(SIZES[NODE])))}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerGpus:
    """A running container: its GPUs (according to its device nodes), and its environment variables."""

    uid: str
    pod: str
    container: str
    gpus: frozenset[int]
    variables: Mapping[str, str]


@dataclass(kw_only=True)
class GpuMemorySamples:
    """The results: `wrong` has errors that must never occur, with the count of each error.

    `lasting` has states that may last for a limited time, with their longest duration in seconds.
    """

    shared: GpuMemoryCluster
    wrong: dict[str, int] = field(default_factory=dict)
    lasting: dict[str, float] = field(default_factory=dict)
    count: Counter[str] = field(default_factory=Counter)
    most: Counter[int] = field(default_factory=Counter)
    containers: set[tuple[str, str]] = field(default_factory=set)
    # The reasons of failed pods, by UID.
    failed: dict[str, str] = field(default_factory=dict)
    _known: dict[str, ContainerGpus] = field(default_factory=dict)
    # The requested units of each container, by the pod's UID and the container's name.
    _requested: dict[tuple[str, str], int] = field(default_factory=dict)
    # The last Pod objects, by UID.
    _rows: dict[str, Any] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)

    def longest(self, kind: str) -> float:
        """Return the longest duration of a state of KIND, in seconds."""
        return max(
            (seconds for state, seconds in self.lasting.items() if state.startswith(kind)), default=0.0
        )

    def _record_error(self, error: str) -> None:
        self.wrong[error] = self.wrong.get(error, 0) + 1

    def _record_lasting(self, kind: str, found: set[str]) -> None:
        """Record FOUND, all present states of KIND."""
        now_s = time.monotonic()
        for state in [each for each in self._since if each.startswith(kind) and each not in found]:
            del self._since[state]
        for state in found:
            lasts_s = now_s - self._since.setdefault(state, now_s)
            self.lasting[state] = max(self.lasting.get(state, 0.0), lasts_s)

    def sample(self, cri: Cri) -> None:
        """Read each source once; an unreachable source is skipped. An unexpected error is recorded."""
        found: list[ContainerGpus] = []
        try:
            with suppress(CriError):
                found = self.containers_now(cri)
            with suppress(OSError):
                self.check_kubelet_units()
            with suppress(ApiError, OSError, HTTPException):
                self.check_reservations(found)
            self.check_containers(found)
        except Exception as error:  # noqa: BLE001 - the error of a thread would be lost
            self._record_error(f"{type(error).__name__}: {error}")

    # The runtime.

    def containers_now(self, cri: Cri) -> list[ContainerGpus]:
        """Return all running containers; raises CriError."""
        found = []
        for each in running_ids(cri):
            with suppress(CriError):  # the container may be removed already
                found.append(self._has(cri, each))
        return found

    def _has(self, cri: Cri, container: str) -> ContainerGpus:
        if container not in self._known:
            info = container_info(cri, container)
            labels, spec = info["config"]["labels"], info["runtimeSpec"]
            paths = [node["path"] for node in spec["linux"].get("devices", ())]
            numbers = {int(path.partition("renderD")[2]) - RENDER for path in paths if "renderD" in path}
            variables = dict(row.split("=", 1) for row in spec["process"]["env"])
            self._known[container] = ContainerGpus(
                uid=labels[LABEL + "pod.uid"],
                pod=labels[LABEL + "pod.name"],
                container=labels[LABEL + "container.name"],
                gpus=frozenset(numbers),
                variables=variables,
            )
        return self._known[container]

    def check_containers(self, found: list[ContainerGpus]) -> None:
        """Check the GPUs of the containers FOUND against the containers' requests and the GPUs' sizes."""
        self.count["runtime"] += 1
        units: dict[tuple[int, str, str], int] = {}
        left: set[tuple[str, str]] = set()
        for has in found:
            requested = self._requested.get((has.uid, has.container))
            if requested is None:
                continue  # the API server has not returned its pod yet
            name = f"{has.pod} {has.container}"
            is_wrong = len(has.gpus) != bool(requested)
            if is_wrong and (has.gpus or not self._is_deleted(has.uid)):
                self._record_error(f"{name} requests {requested} and has GPUs {sorted(has.gpus)}")
            if is_wrong or not requested:
                continue
            self.containers.add((has.uid, has.container))
            (gpu,) = has.gpus
            if has.variables.get(INDEX) != str(gpu) or has.variables.get(OF_CONTAINER) != str(requested):
                self._record_error(f"{name} with {requested} of GPU {gpu} has the variables {has.variables}")
            if self._is_gone(has.uid):
                left.add((has.uid, f"left: {name}: {self.about(has.uid, has.container)}"))
            else:
                # The key has the name, not the ID: the kubelet may replace a container of unknown state.
                units[gpu, has.uid, has.container] = requested
        # The status of a pending pod is old while the API server does not respond to the kubelet.
        self._record_lasting("left: ", {state for uid, state in left if not self._is_pending(uid)})
        sums: Counter[int] = Counter()
        for (gpu, _, _), requested in units.items():
            sums[gpu] += requested
        for gpu, total in sums.items():
            self.most[gpu] = max(self.most[gpu], total)
            if total > SIZES[NODE][gpu]:
                pods = [self.about(uid, name) for at, uid, name in sorted(units) if at == gpu]
                self._record_error(f"containers have {total} of GPU {gpu}: {'; '.join(pods)}")

    def _is_pending(self, uid: str) -> bool:
        row = self._rows.get(uid)
        return row is not None and row["status"]["phase"] == "Pending"

    def _is_deleted(self, uid: str) -> bool:
        """Return whether a pod is deleted, perhaps before its container started.

        If a pod is deleted while its sandbox is created, the kubelet frees the units of the pod, and starts
        its container without units (kubernetes 1.20, pkg/kubelet: podIsTerminated; devicemanager/manager.go,
        GetDeviceRunContainerOptions).
        """
        row = self._rows.get(uid)
        return row is None or "deletionTimestamp" in row["metadata"]

    def _is_gone(self, uid: str) -> bool:
        """Return whether a pod is gone, rejected or ended for the kubelet while its container still runs.

        A restarted kubelet rejects a terminating pod, because no plugin is registered when it checks the pod
        again. It reports the pod as failed, frees the pod's units, and stops the pod's containers a second
        later (kubernetes 1.20, pkg/kubelet: HandlePodAdditions, rejectPod; podIsTerminated).
        """
        row = self._rows.get(uid)
        if row is None:
            return True
        status = row["status"]
        is_rejected = status["phase"] == "Failed" and bool(status.get("reason"))
        return is_rejected or ended_before_start(status)

    def about(self, uid: str, container: str) -> str:
        """Return a description of the last state of a container."""
        row = self._rows.get(uid)
        if row is None:
            return f"{container} of {uid}, whose pod is gone"
        metadata, status = row["metadata"], row["status"]
        requested = self._requested.get((uid, container))
        states = {each["name"]: each["state"] for each in status.get("containerStatuses", ())}
        return (
            f"{metadata['name']} {container} requests {requested}, {metadata.get('annotations')}, "
            f"deleted: {metadata.get('deletionTimestamp')}, {status['phase']} {status.get('reason')} "
            f"{status.get('message')} {states}"
        )

    # The kubelet.

    def check_kubelet_units(self) -> None:
        """Check the units of containers in the kubelet's checkpoint; raises OSError.

        The function does not use the pod resources API. For each request to that API, the kubelet lists the
        active pods, takes its lock, and releases the units of all other pods (kubernetes 1.20,
        UpdateAllocatedDevices). A pod that is admitted between list and lock would lose its units, and this
        function runs many times per second.

        If a pod is deleted while its containers start, the kubelet frees its units and allocates
        units for the next container again, in parallel to the admission of another pod. While the
        plugin chooses units for one of them, the kubelet has not recorded those of the other, so
        both get the same ones if the GPU has no others (kubernetes 1.20, devicemanager/manager.go:
        GetDeviceRunContainerOptions, devicesToAllocate). The units of the deleted pod are free
        again 0.2 s later. Its container does not start.
        """
        text = (self.shared.node.folder / "kubelet/device-plugins/kubelet_internal_checkpoint").read_text()
        self.count["kubelet"] += 1
        pods: dict[str, str] = {}
        for entry in json.loads(text)["Data"]["PodDeviceEntries"] or ():
            if entry["ResourceName"] != RESOURCES.memory:
                continue
            # DeviceIDs maps each NUMA node to device IDs.
            ids = [id_ for of_node in entry["DeviceIDs"].values() for id_ in of_node]
            gpus = {IDS[id_.partition("-_-")[0]] for id_ in ids}
            if len(gpus) > 1:
                self._record_error(f"{entry['ContainerName']} of {entry['PodUID']} has units of GPUs {gpus}")
            for id_ in ids:
                both = pods.setdefault(id_, entry["PodUID"]), entry["PodUID"]
                if both[0] != both[1] and not any(map(self._is_deleted, both)):
                    self._record_error(f"{id_} is allocated to {both[0]} and to {both[1]}")

    # The API server.

    def check_reservations(self, found: list[ContainerGpus]) -> None:
        """Check annotations (also against the containers FOUND) and ledgers; raises ApiError, OSError."""
        api = self.shared.node.api
        rows = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        ledgers = api.get(f"/api/v1/namespaces/{DEFAULT_LEDGER_NAMESPACE}/configmaps")["items"]
        self.count["API"] += 1
        by_uid = self._rows = {row["metadata"]["uid"]: row for row in rows}
        for uid, row in by_uid.items():
            for each in (*row["spec"]["containers"], *row["spec"].get("initContainers", ())):
                self._requested[uid, each["name"]] = units_of(each)
            if row["status"]["phase"] == "Failed":
                status = row["status"]
                self.failed[uid] = f"{status.get('reason')}: {status.get('message')}"
        self._record_lasting("annotation", set(self._wrong_annotations(found, by_uid)))
        sums: dict[str, Counter[int]] = defaultdict(Counter)
        for row in rows:
            on = row["spec"].get("nodeName")
            if on and row["status"]["phase"] not in {"Failed", "Succeeded"}:
                sums[on].update(units := annotated_units(row))
                if not units and any(map(units_of, row["spec"]["containers"])):
                    self._record_error(f"{row['metadata']['name']} is bound to {on} and has no GPU")
        # On nodes without a kubelet, nothing moves pods between GPUs.
        for error in _above({node: by_gpu for node, by_gpu in sums.items() if node != NODE}):
            self._record_error(error)
        self._record_lasting("annotations of", set(_above(sums)))
        for node in SIZES:
            data = [one["data"] for one in ledgers if one["metadata"]["name"] == ledger_name(node)]
            reserved: Counter[int] = Counter()
            for entry in json.loads(data[0][LEDGER_KEY]).values() if data else ():
                reserved.update({int(gpu): units for gpu, units in entry["gpus"].items()})
            self._record_lasting(f"ledger of {node}", set(_above({node: reserved}, f"ledger of {node}")))
        self._check_waiting_pods(rows, sums)

    def _check_waiting_pods(self, rows: list[Any], sums: Mapping[str, Counter[int]]) -> None:
        waiting = set(self._waiting(rows, sums))
        for kind in ("waits: ", "insufficient: "):
            self._record_lasting(kind, {each for each in waiting if each.startswith(kind)})

    def _wrong_annotations(self, found: list[ContainerGpus], by_uid: Mapping[str, Any]) -> Iterator[str]:
        for has in found:
            row = by_uid.get(has.uid)
            if row is None or not has.gpus:
                continue
            gpu = annotated_gpu(row, has.container)
            if gpu not in has.gpus:
                yield f"annotation of {has.pod} {has.container}: {gpu}, it has {sorted(has.gpus)}"

    def _waiting(self, rows: list[Any], sums: Mapping[str, Counter[int]]) -> Iterator[str]:
        """Yield each pod with one container that has no node although a GPU has enough free units.

        The scheduler calls no extender while its own sum of the node's free units is outdated and too low.
        Its message then contains "Insufficient".
        """
        units = self.shared.allocatable()
        for row in rows:
            containers = row["spec"]["containers"]
            if row["spec"].get("nodeName") or len(containers) > 1 or row["spec"].get("initContainers"):
                continue
            requested = units_of(containers[0])
            only = row["spec"].get("nodeSelector", {}).get("name")
            for node, sizes in SIZES.items():
                is_open = (only in {None, node}) and (node != NODE or units == sum(sizes))
                if is_open and any(size - sums[node][gpu] >= requested for gpu, size in enumerate(sizes)):
                    why = unscheduled(row)
                    kind = "insufficient" if "Insufficient" in why else "waits"
                    yield f"{kind}: {row['metadata']['name']} for {requested}: {why}"
                    break


def annotated_gpu(row: Mapping[str, Any], container: str) -> int | None:
    """Return the GPU of CONTAINER in the annotations of the pod ROW, None if there is none."""
    annotations = row["metadata"].get("annotations", {})
    names = [each["name"] for each in row["spec"]["containers"]]
    if container in names:
        by_gpu = json.loads(annotations.get(ALLOCATION, "{}")).get(str(names.index(container)), {})
        return int(next(iter(by_gpu))) if len(by_gpu) == 1 else None
    index: str = annotations.get(INDEX, "")
    return int(index) if index.isdecimal() else None


def unscheduled(row: Mapping[str, Any]) -> str:
    """Return the scheduler's reason not to bind a pod, "" before the scheduler's first attempt."""
    conditions = row["status"].get("conditions", ())
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")


def units_of(container: Mapping[str, Any]) -> int:
    """Return the units that a container requests."""
    return int(container["resources"].get("limits", {}).get(RESOURCES.memory, 0))


def annotated_units(row: Mapping[str, Any]) -> Counter[int]:
    """Return the units that a pod has on each GPU, from the pod's annotations."""
    found: Counter[int] = Counter()
    annotations = row["metadata"].get("annotations", {})
    for by_gpu in json.loads(annotations.get(ALLOCATION, "{}")).values():
        found.update({int(gpu): units for gpu, units in by_gpu.items()})
    inits = row["spec"].get("initContainers", ())
    init_units = max(map(units_of, inits), default=0)
    if init_units and annotations.get(INDEX, "").isdecimal():
        # Later containers reuse the units of an init container.
        index = int(annotations[INDEX])
        found[index] = max(found[index], init_units)
    return found


def _above(sums: Mapping[str, Counter[int]], source: str = "annotations of") -> Iterator[str]:
    for node, by_gpu in sums.items():
        for gpu, units in by_gpu.items():
            if gpu >= len(SIZES[node]) or units > SIZES[node][gpu]:
                yield f"{source} {node}: {units} of GPU {gpu}"


@contextmanager
def sampling_gpu_memory(shared: GpuMemoryCluster) -> Iterator[GpuMemorySamples]:
    """Take samples in a thread until the context ends; unreachable sources are skipped."""
    samples, cri = GpuMemorySamples(shared=shared), Cri(shared.node.folder / "c.sock")

    def end() -> None:
        cri.close()
        shared.node.api.close()

    with sampling(lambda: samples.sample(cri), end):
        yield samples
