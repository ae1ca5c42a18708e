"""What was promised on a node: the ``Ledger``, one ConfigMap for each node.

A pod's claim is in it from before the pod is annotated until the pod is over, and it is changed by
compare-and-swap alone (resourceVersion): so whoever promises something has seen all that was promised before
(docs/decisions/0017-a-ledger-for-each-node.md).
"""

from __future__ import annotations

import json

from cdigen.gpushare import names
from cdigen.gpushare.claims import Claim, Placement
from cdigen.gpushare.quantity import MOST
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# An object in etcd has 1.5 MiB at most; an entry is some 150 bytes.
_MAX_TEXT = 1 << 20
_MAX_INDEX = 9999


@frozen
class Entry:
    """The claim of the pod ``uid`` (``key``: namespace/name), written by the attempt ``token``.

    ``containers`` and ``gpu`` are the placement of that attempt; ``on`` also counts what one before it chose
    and might still use.
    """

    uid: str
    key: str
    on: tuple[tuple[int, int], ...]
    containers: tuple[tuple[int, int], ...] = ()
    gpu: int = -1
    token: str = ""

    @property
    def claim(self) -> Claim:
        """What the pod holds."""
        return Claim(on=self.on)

    @property
    def placement(self) -> Placement:
        """Where the pod's containers are."""
        return Placement(containers=self.containers, gpu=self.gpu)


@frozen
class Ledger:
    """The entries of a node, by UID; ``version`` is the object's, "" where there is none yet."""

    version: str = ""
    entries: tuple[Entry, ...] = ()

    def entry(self, uid: str) -> Entry | None:
        """Return the entry of the pod UID."""
        return next((entry for entry in self.entries if entry.uid == uid), None)

    def without(self, uids: Iterable[str]) -> Ledger:
        """Return this ledger without the entries of UIDS."""
        gone = frozenset(uids)
        return Ledger(version=self.version, entries=tuple(e for e in self.entries if e.uid not in gone))

    def having(self, *entries: Entry) -> Ledger:
        """Return this ledger with ENTRIES, each in place of what its pod had."""
        rest = self.without(entry.uid for entry in entries)
        return Ledger(version=self.version, entries=(*rest.entries, *entries))


def read_ledger(found: Mapping[str, object]) -> Ledger:
    """Return the ledger in the ConfigMap FOUND.

    Entries that somebody has torn are left out: then the pods' own annotations count, as they do beside it.
    """
    metadata, data = (found.get(key) for key in ("metadata", "data"))
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
    """Return LEDGER as the ConfigMap NAME of NAMESPACE, which ends with NODE where its UID is known."""
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


def _entry(uid: str, row: object) -> Entry | None:
    if not isinstance(row, dict):
        return None
    on, containers = _numbers(row.get("gpus"), MOST), _numbers(row.get("containers"), _MAX_INDEX)
    if not on or containers is None:
        return None
    token, key, gpu = row.get("by"), row.get("pod"), row.get("gpu")
    if not (isinstance(key, str) and all(key.partition("/"))):
        return None  # nobody could ask whether that pod is over
    is_one = isinstance(gpu, int) and gpu in dict(on)
    return Entry(
        uid=uid,
        key=key,
        on=on,
        containers=containers,
        gpu=int(str(gpu)) if is_one else -1,
        token=str(token or ""),
    )


def _numbers(value: object, most: int) -> tuple[tuple[int, int], ...] | None:
    """Return {"index": number} as sorted pairs; None: it is something else."""
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
