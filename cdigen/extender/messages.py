"""What the scheduler sends and gets: JSON of k8s.io/kube-scheduler/extender/v1, and the older names.

Go reads a member by its name in any case, so a scheduler may send either; we read both, and answer with those
that it used. ``read_json``, ``read_filter`` and ``read_bind`` read; ``filtered``, ``scored`` and ``failed``
make answers.
"""

from __future__ import annotations

import json

from cdigen.extender.binding import Wanted
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

# Names of files in etcd are no longer (k8s.io/apimachinery, validation.IsDNS1123Subdomain).
_MAX_NAME = 253
_MAX_NODES = 100_000
# ExtenderBindingArgs are four names.
MAX_BIND = 1 << 14
# Values that are small as text are large in memory: '{"":' takes 232 bytes. A Node object of 10 kB has 510 of
# these characters, and a request 8 MiB.
_MAX_VALUES = 450_000
_VALUES = (b",", b"[", b"{")


@frozen
class Filter:
    """ExtenderArgs: the pod, and nodes by name; ``nodes`` are whole objects, where the scheduler sent those.

    ``is_old``: its names begin with lower case.
    """

    pod: Mapping[str, Any]
    names: tuple[str, ...]
    nodes: tuple[Mapping[str, Any], ...] | None = None
    is_old: bool = False


def read_json(body: bytes, most: int | None = None) -> object:
    """Return the document in BODY, of MOST bytes; ValueError, RecursionError: there is none, or too much."""
    if most is not None and len(body) > most:
        raise ValueError(f"it has {len(body)} bytes, more than {most}")
    if (values := sum(map(body.count, _VALUES))) > _MAX_VALUES:
        raise ValueError(f"it has {values} values, more than {_MAX_VALUES}")
    document: object = json.loads(body)
    return document


def read_filter(document: object) -> Filter:
    """Return what DOCUMENT asks to filter or prioritize; ValueError says what is wrong."""
    members, is_old = _members(document)
    pod = members.get("pod")
    if not isinstance(pod, dict):
        raise ValueError("'Pod' is no object")  # noqa: TRY004 - of a document, not of code
    names, nodes = members.get("nodenames"), members.get("nodes")
    if names is not None:
        if not isinstance(names, list) or len(names) > _MAX_NODES or not all(map(_is_name, names)):
            raise ValueError("'NodeNames' is no list of names")
        return Filter(pod=pod, names=tuple(names), is_old=is_old)
    rows = nodes.get("items") if isinstance(nodes, dict) else None
    if not isinstance(rows, list) or len(rows) > _MAX_NODES:
        raise ValueError("there are neither 'NodeNames' nor 'Nodes' with items")
    found = [_name_of(row) for row in rows]
    return Filter(pod=pod, names=tuple(found), nodes=tuple(rows), is_old=is_old)


def read_bind(document: object) -> tuple[Wanted, bool]:
    """Return what DOCUMENT, ExtenderBindingArgs, asks to bind, and whether its names are the older ones.

    ValueError says what is wrong.
    """
    members, is_old = _members(document)
    values = [members.get(name) for name in ("podnamespace", "podname", "poduid", "node")]
    if not all(map(_is_name, values)):
        raise ValueError("'PodName', 'PodNamespace', 'PodUID' and 'Node' are to be names")
    namespace, name, uid, node = map(str, values)
    return Wanted(namespace=namespace, name=name, uid=uid, node=node), is_old


def filtered(
    asked: Filter, good: Iterable[str], failed: Mapping[str, str], hopeless: Mapping[str, str]
) -> dict[str, Any]:
    """Return ExtenderFilterResult: GOOD nodes, why others are not; no eviction would help HOPELESS ones."""
    names = list(good)
    kept = set(names)
    nodes = None
    if asked.nodes is not None:
        rows = [row for name, row in zip(asked.names, asked.nodes, strict=True) if name in kept]
        nodes = {"metadata": {}, "items": rows}
    answer = {
        "Nodes": nodes,
        "NodeNames": None if nodes is not None else names,
        # Schedulers before 1.21 know this one alone; for those after it, the other has precedence.
        "FailedNodes": {**failed, **hopeless},
        "FailedAndUnresolvableNodes": dict(hopeless),
        "Error": "",
    }
    if not asked.is_old:
        return answer
    del answer["FailedAndUnresolvableNodes"]
    lower = {"FailedNodes": "failedNodes"}
    return {lower.get(name, name.lower()): value for name, value in answer.items()}


def scored(asked: Filter, scores: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return HostPriorityList."""
    host, score = ("host", "score") if asked.is_old else ("Host", "Score")
    return [{host: name, score: value} for name, value in scores.items()]


def failed(problem: str, *, is_old: bool = False) -> dict[str, str]:
    """Return an answer that has PROBLEM alone, "" for none: of bind, and of what cannot be answered."""
    return {"error" if is_old else "Error": problem}


def _members(document: object) -> tuple[dict[str, Any], bool]:
    """Return the members of DOCUMENT by lower-case name, and whether they were so."""
    if not isinstance(document, dict):
        raise ValueError("the request is no JSON object")  # noqa: TRY004 - of a document, not of code
    is_old = all(str(name)[:1].islower() for name in document)
    return {str(name).lower(): value for name, value in document.items()}, is_old


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MAX_NAME and value.isprintable()


def _name_of(row: object) -> str:
    metadata = row.get("metadata") if isinstance(row, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not _is_name(name):
        raise ValueError("an item of 'Nodes' has no name")
    return str(name)
