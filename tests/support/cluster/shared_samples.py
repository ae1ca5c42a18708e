"""What can be seen of shared GPUs again and again, by those who know: `looking`.

The runtime tells which nodes containers have, the kubelet which units, the API server what was promised.
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
from support.cluster.node import NODE
from support.cluster.sampling import container_info, running_ids, sampling
from support.cluster.shared_node import NAMESPACE, RENDER, RESOURCES, SIZES, Shared
from support.containers.cri_client import Cri, CriError
from support.hosts import amd_tree

from cdigen.gpushare.names import ALLOCATION, INDEX, LEDGER_KEY, LEDGERS, OF_CONTAINER, ledger_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LABEL = "io.kubernetes."
# A node's GPUs by the beginnings of their ids.
IDS = {gpu.bdf: index for index, gpu in enumerate(amd_tree.mi210(len(SIZES[NODE])))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Has:
    """What a running container has: GPUs by their nodes, and what its variables say."""

    uid: str
    pod: str
    container: str
    gpus: frozenset[int]
    told: Mapping[str, str]


@dataclass(kw_only=True)
class Looks:
    """What was seen: `wrong` is what must never be, and how often it was.

    `lasting` is what may be for a while, and for how many seconds it was.
    """

    shared: Shared
    wrong: dict[str, int] = field(default_factory=dict)
    lasting: dict[str, float] = field(default_factory=dict)
    count: Counter[str] = field(default_factory=Counter)
    most: Counter[int] = field(default_factory=Counter)
    containers: set[tuple[str, str]] = field(default_factory=set)
    # Why pods have failed, by their UIDs.
    failed: dict[str, str] = field(default_factory=dict)
    _known: dict[str, Has] = field(default_factory=dict)
    # How many units each container asks for, by its pod's UID and its name.
    _asked: dict[tuple[str, str], int] = field(default_factory=dict)
    # Pods as the API server had them last, by their UIDs.
    _rows: dict[str, Any] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)

    def longest(self, kind: str) -> float:
        """Return for how many seconds something of a KIND lasted."""
        return max((seconds for what, seconds in self.lasting.items() if what.startswith(kind)), default=0.0)

    def _never(self, what: str) -> None:
        self.wrong[what] = self.wrong.get(what, 0) + 1

    def _for_a_while(self, kind: str, found: set[str]) -> None:
        """Note FOUND, all of a KIND that is so now."""
        now_s = time.monotonic()
        for what in [each for each in self._since if each.startswith(kind) and each not in found]:
            del self._since[what]
        for what in found:
            lasts_s = now_s - self._since.setdefault(what, now_s)
            self.lasting[what] = max(self.lasting.get(what, 0.0), lasts_s)

    def look(self, cri: Cri) -> None:
        """Ask everybody once; who is away is not asked. What cannot be understood is wrong."""
        found: list[Has] = []
        try:
            with suppress(CriError):
                found = self.containers_now(cri)
            with suppress(OSError):
                self.look_at_units()
            with suppress(ApiError, OSError, HTTPException):
                self.look_at_promises(found)
            self.look_at_containers(found)
        except Exception as error:  # noqa: BLE001 - of a thread nobody would hear of it
            self._never(f"{type(error).__name__}: {error}")

    # The runtime.

    def containers_now(self, cri: Cri) -> list[Has]:
        """Return what runs, and has or asked for a GPU; CriError."""
        found = []
        for each in running_ids(cri):
            with suppress(CriError):  # it may have been removed meanwhile
                found.append(self._has(cri, each))
        return found

    def _has(self, cri: Cri, container: str) -> Has:
        if container not in self._known:
            info = container_info(cri, container)
            labels, spec = info["config"]["labels"], info["runtimeSpec"]
            paths = [node["path"] for node in spec["linux"].get("devices", ())]
            numbers = {int(path.partition("renderD")[2]) - RENDER for path in paths if "renderD" in path}
            told = dict(row.split("=", 1) for row in spec["process"]["env"])
            self._known[container] = Has(
                uid=labels[LABEL + "pod.uid"],
                pod=labels[LABEL + "pod.name"],
                container=labels[LABEL + "container.name"],
                gpus=frozenset(numbers),
                told=told,
            )
        return self._known[container]

    def look_at_containers(self, found: list[Has]) -> None:
        """Judge what containers have by themselves."""
        self.count["runtime"] += 1
        units: dict[tuple[int, str, str], int] = {}
        left: set[str] = set()
        for has in found:
            asked = self._asked.get((has.uid, has.container))
            if asked is None:
                continue  # the API server has not told of it yet
            who = f"{has.pod} {has.container}"
            if len(has.gpus) != bool(asked):
                self._never(f"{who} asked for {asked} and has GPUs {sorted(has.gpus)}")
                continue
            if not asked:
                continue
            self.containers.add((has.uid, has.container))
            (gpu,) = has.gpus
            if has.told.get(INDEX) != str(gpu) or has.told.get(OF_CONTAINER) != str(asked):
                self._never(f"{who} with {asked} of GPU {gpu} is told {has.told}")
            if self._is_over(has.uid):
                left.add(f"left: {who}: {self.about(has.uid, has.container)}")
            else:
                # The kubelet may make another in the place of one of which it does not know whether it runs.
                units[gpu, has.uid, has.container] = asked
        self._for_a_while("left: ", left)
        sums: Counter[int] = Counter()
        for (gpu, _, _), asked in units.items():
            sums[gpu] += asked
        for gpu, total in sums.items():
            self.most[gpu] = max(self.most[gpu], total)
            if total > SIZES[NODE][gpu]:
                holders = [self.about(uid, name) for at, uid, name in sorted(units) if at == gpu]
                self._never(f"containers have {total} of GPU {gpu}: {'; '.join(holders)}")

    def _is_over(self, uid: str) -> bool:
        """Return whether a pod is gone or was rejected by the kubelet, though its container runs still.

        A kubelet does so after its start with a pod that was being deleted: it asks for its units anew, has
        no plugin yet, tells that the pod has failed and gives its units away, and ends its containers a
        second later (kubernetes 1.20, pkg/kubelet: HandlePodAdditions, rejectPod; podIsTerminated).
        """
        row = self._rows.get(uid)
        return row is None or (row["status"]["phase"] == "Failed" and bool(row["status"].get("reason")))

    def about(self, uid: str, container: str) -> str:
        """Return what was last known of a container, for who reads of it."""
        row = self._rows.get(uid)
        if row is None:
            return f"{container} of {uid}, whose pod is gone"
        metadata, status = row["metadata"], row["status"]
        asked = self._asked.get((uid, container))
        states = {each["name"]: each["state"] for each in status.get("containerStatuses", ())}
        return (
            f"{metadata['name']} {container} asked for {asked}, is told {metadata.get('annotations')}, "
            f"deleted: {metadata.get('deletionTimestamp')}, {status['phase']} {status.get('reason')} "
            f"{status.get('message')} {states}"
        )

    # The kubelet.

    def look_at_units(self) -> None:
        """Judge which units containers have by the kubelet's checkpoint; OSError.

        The API of pod resources is not used: for each answer the kubelet releases the units of pods that are
        not active (kubernetes 1.20, UpdateAllocatedDevices), and it lists the active ones before it takes its
        lock. A pod that is admitted in between would lose its units, and this asks many times a second.
        """
        text = (self.shared.node.folder / "kubelet/device-plugins/kubelet_internal_checkpoint").read_text()
        self.count["kubelet"] += 1
        owners: dict[str, str] = {}
        for entry in json.loads(text)["Data"]["PodDeviceEntries"] or ():
            if entry["ResourceName"] != RESOURCES.memory:
                continue
            # By NUMA node.
            ids = [id_ for of_node in entry["DeviceIDs"].values() for id_ in of_node]
            gpus = {IDS[id_.partition("-_-")[0]] for id_ in ids}
            if len(gpus) > 1:
                self._never(
                    f"the kubelet gave {entry['ContainerName']} of {entry['PodUID']} units of GPUs {gpus}"
                )
            for id_ in ids:
                if owners.setdefault(id_, entry["PodUID"]) != entry["PodUID"]:
                    self._never(f"{id_} is {owners[id_]}'s and {entry['PodUID']}'s")

    # The API server.

    def look_at_promises(self, found: list[Has]) -> None:
        """Judge what annotations and ledgers say, also of what containers have; ApiError, OSError."""
        api = self.shared.node.api
        rows = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        ledgers = api.get(f"/api/v1/namespaces/{LEDGERS}/configmaps")["items"]
        self.count["API"] += 1
        by_uid = self._rows = {row["metadata"]["uid"]: row for row in rows}
        for uid, row in by_uid.items():
            for each in (*row["spec"]["containers"], *row["spec"].get("initContainers", ())):
                self._asked[uid, each["name"]] = units_of(each)
            if row["status"]["phase"] == "Failed":
                status = row["status"]
                self.failed[uid] = f"{status.get('reason')}: {status.get('message')}"
        self._for_a_while("annotation", set(self._untrue(found, by_uid)))
        sums: dict[str, Counter[int]] = defaultdict(Counter)
        for row in rows:
            on = row["spec"].get("nodeName")
            if on and row["status"]["phase"] not in {"Failed", "Succeeded"}:
                sums[on].update(given := annotated(row))
                if not given and any(map(units_of, row["spec"]["containers"])):
                    self._never(f"{row['metadata']['name']} is bound to {on} and has no GPU")
        # Where nothing is moved, what extenders promise is all that there is.
        for what in _above({node: by_gpu for node, by_gpu in sums.items() if node != NODE}):
            self._never(what)
        self._for_a_while("annotations of", set(_above(sums)))
        for node in SIZES:
            data = [one["data"] for one in ledgers if one["metadata"]["name"] == ledger_name(node)]
            promised: Counter[int] = Counter()
            for entry in json.loads(data[0][LEDGER_KEY]).values() if data else ():
                promised.update({int(gpu): units for gpu, units in entry["gpus"].items()})
            self._for_a_while(f"ledger of {node}", set(_above({node: promised}, f"ledger of {node}")))
        self._look_at_waiting(rows, sums)

    def _look_at_waiting(self, rows: list[Any], sums: Mapping[str, Counter[int]]) -> None:
        waiting = set(self._waiting(rows, sums))
        for kind in ("waits: ", "insufficient: "):
            self._for_a_while(kind, {each for each in waiting if each.startswith(kind)})

    def _untrue(self, found: list[Has], by_uid: Mapping[str, Any]) -> Iterator[str]:
        for has in found:
            row = by_uid.get(has.uid)
            if row is None or not has.gpus:
                continue
            said = said_of(row, has.container)
            if said not in has.gpus:
                yield f"annotation of {has.pod} {has.container}: {said}, it has {sorted(has.gpus)}"

    def _waiting(self, rows: list[Any], sums: Mapping[str, Counter[int]]) -> Iterator[str]:
        """Yield pods with one container that wait for a scheduler though a GPU has so much left.

        If the scheduler's own sum of the node's units is behind ("Insufficient"), it asks no extender.
        """
        units = self.shared.allocatable()
        for row in rows:
            containers = row["spec"]["containers"]
            if row["spec"].get("nodeName") or len(containers) > 1 or row["spec"].get("initContainers"):
                continue
            asked = units_of(containers[0])
            only = row["spec"].get("nodeSelector", {}).get("name")
            for node, sizes in SIZES.items():
                is_open = (only in {None, node}) and (node != NODE or units == sum(sizes))
                if is_open and any(size - sums[node][gpu] >= asked for gpu, size in enumerate(sizes)):
                    why = unscheduled(row)
                    kind = "insufficient" if "Insufficient" in why else "waits"
                    yield f"{kind}: {row['metadata']['name']} for {asked}: {why}"
                    break


def said_of(row: Mapping[str, Any], container: str) -> int | None:
    """Return the GPU that the annotations of a pod name for a container."""
    annotations = row["metadata"].get("annotations", {})
    names = [each["name"] for each in row["spec"]["containers"]]
    if container in names:
        given = json.loads(annotations.get(ALLOCATION, "{}")).get(str(names.index(container)), {})
        return int(next(iter(given))) if len(given) == 1 else None
    index: str = annotations.get(INDEX, "")
    return int(index) if index.isdecimal() else None


def unscheduled(row: Mapping[str, Any]) -> str:
    """Return why the scheduler has not placed a pod, empty if it has not tried yet."""
    conditions = row["status"].get("conditions", ())
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")


def units_of(container: Mapping[str, Any]) -> int:
    """Return how many units a container asks for."""
    return int(container["resources"].get("limits", {}).get(RESOURCES.memory, 0))


def annotated(row: Mapping[str, Any]) -> Counter[int]:
    """Return how many units of each GPU a pod has by its annotations, all that its containers ask for."""
    found: Counter[int] = Counter()
    annotations = row["metadata"].get("annotations", {})
    for by_gpu in json.loads(annotations.get(ALLOCATION, "{}")).values():
        found.update({int(gpu): units for gpu, units in by_gpu.items()})
    inits = row["spec"].get("initContainers", ())
    early = max(map(units_of, inits), default=0)
    if early and annotations.get(INDEX, "").isdecimal():
        # The units of an init container are used again by the others.
        index = int(annotations[INDEX])
        found[index] = max(found[index], early)
    return found


def _above(sums: Mapping[str, Counter[int]], what: str = "annotations of") -> Iterator[str]:
    for node, by_gpu in sums.items():
        for gpu, units in by_gpu.items():
            if gpu >= len(SIZES[node]) or units > SIZES[node][gpu]:
                yield f"{what} {node}: {units} of GPU {gpu}"


@contextmanager
def looking(shared: Shared) -> Iterator[Looks]:
    """Look all the time until the context ends, in a thread; who is away is not asked."""
    looks, cri = Looks(shared=shared), Cri(shared.node.folder / "c.sock")

    def end() -> None:
        cri.close()
        shared.node.api.close()

    with sampling(lambda: looks.look(cri), end):
        yield looks
