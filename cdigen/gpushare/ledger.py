"""``Ledger``: the reservations on a node, in one ConfigMap for each node.

A reservation is in the ledger before the pod is annotated, and until the pod has ended. Writers change the
ledger only by compare-and-swap (resourceVersion). So each writer has read all earlier reservations
(docs/decisions/0017-a-ledger-for-each-node.md).
"""

from __future__ import annotations

import json

from cdigen.gpushare import names
from cdigen.gpushare.quantity import MAX_QUANTITY
from cdigen.gpushare.reservations import ContainerPlacement, Reservation
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The limit of etcd for an object is 1.5 MiB. An entry has about 150 bytes.
_MAX_TEXT = 1 << 20
_MAX_INDEX = 9999


@frozen
class LedgerEntry:
    """The reservation of the pod ``uid``, which the bind attempt ``token`` has written.

    ``key`` is the namespace/name of the pod. ``containers`` and ``gpu`` are the placement of this attempt.
    ``on`` has the reserved units by GPU, including the GPUs that an earlier attempt chose. The earlier
    attempt may still bind the pod with these GPUs.
    """

    uid: str
    key: str
    on: tuple[tuple[int, int], ...]
    containers: tuple[tuple[int, int], ...] = ()
    gpu: int = -1
    token: str = ""

    @property
    def reservation(self) -> Reservation:
        """The units that the pod reserves, by GPU."""
        return Reservation(on=self.on)

    @property
    def placement(self) -> ContainerPlacement:
        """The GPUs of the pod's containers."""
        return ContainerPlacement(containers=self.containers, gpu=self.gpu)


@frozen
class Ledger:
    """The entries of a node; ``version`` is the resourceVersion, or "" if the ConfigMap does not exist."""

    version: str = ""
    entries: tuple[LedgerEntry, ...] = ()

    def entry(self, uid: str) -> LedgerEntry | None:
        """Return the entry of the pod UID, or None if there is no such entry."""
        return next((entry for entry in self.entries if entry.uid == uid), None)

    def without(self, uids: Iterable[str]) -> Ledger:
        """Return this ledger without the entries of the pods UIDS."""
        removed = frozenset(uids)
        return Ledger(version=self.version, entries=tuple(e for e in self.entries if e.uid not in removed))

    def with_entries(self, *entries: LedgerEntry) -> Ledger:
        """Return this ledger with ENTRIES, which replace earlier entries of the same pods."""
        rest = self.without(entry.uid for entry in entries)
        return Ledger(version=self.version, entries=(*rest.entries, *entries))


def read_ledger(configmap: Mapping[str, object]) -> Ledger:
    """Return the ledger in CONFIGMAP.

    Invalid entries are left out, so the reservations of these pods come only from annotations.
    """
    metadata, data = (configmap.get(key) for key in ("metadata", "data"))
    version = str(metadata.get("resourceVersion") or "") if isinstance(metadata, dict) else ""
    text = data.get(names.LEDGER_KEY) if isinstance(data, dict) else None
    try:
        rows = json.loads(text) if isinstance(text, str) and len(text) <= _MAX_TEXT else {}
    except (ValueError, RecursionError):
        rows = {}
    entries = [_entry(uid, row) for uid, row in rows.items()] if isinstance(rows, dict) else []
    return Ledger(version=version, entries=tuple(entry for entry in entries if entry is not None))


def write_ledger(
    ledger: Ledger, *, name: str, namespace: str, node: str, node_uid: str = ""
) -> dict[str, object]:
    """Return LEDGER as the ConfigMap NAME in NAMESPACE; if NODE_UID is set, NODE owns the ConfigMap."""
    rows = {
        entry.uid: {
            "pod": entry.key,
            "gpus": {str(gpu): units for gpu, units in entry.on},
            "containers": {str(container): gpu for container, gpu in entry.containers},
            "gpu": entry.gpu,
            "by": entry.token,
        }
        for entry in ledger.entries
    }
    metadata: dict[str, object] = {
        "name": name,
        "namespace": namespace,
        "labels": {"app.kubernetes.io/managed-by": "cdigen"},
    }
    if node_uid:
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
        metadata["ownerReferences"] = [owner]
    if ledger.version:
        metadata["resourceVersion"] = ledger.version
    data = {names.LEDGER_KEY: json.dumps(rows, separators=(",", ":"))}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _entry(uid: str, row: object) -> LedgerEntry | None:
    if not isinstance(row, dict):
        return None
    on, containers = _numbers(row.get("gpus"), MAX_QUANTITY), _numbers(row.get("containers"), _MAX_INDEX)
    if not on or containers is None:
        return None
    token, key, gpu = row.get("by"), row.get("pod"), row.get("gpu")
    if not (isinstance(key, str) and all(key.partition("/"))):
        return None  # without a name, cdigen cannot check whether the pod has ended
    has_gpu = isinstance(gpu, int) and gpu in dict(on)
    return LedgerEntry(
        uid=uid,
        key=key,
        on=on,
        containers=containers,
        gpu=int(str(gpu)) if has_gpu else -1,
        token=str(token or ""),
    )


def _numbers(value: object, most: int) -> tuple[tuple[int, int], ...] | None:
    """Return the object VALUE ({"index": number}) as sorted pairs, or None if VALUE has another form."""
    if not isinstance(value, dict):
        return None
    pairs = []
    for key, number in value.items():
        if not (key.isascii() and key.isdecimal() and len(key) <= len(str(_MAX_INDEX))):
            return None
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= most:
            return None
        pairs.append((int(key), number))
    return tuple(sorted(pairs))
