"""The requests and results of the scheduler in JSON, from k8s.io/kube-scheduler/extender/v1.

A request has one of two forms: the present member names (``NodeNames``), or older names (``nodenames``). Go
ignores the case of member names, so a scheduler may send either form. cdigen reads both forms. The result has
the form of the request. ``read_json``, ``read_args`` and ``read_bind`` read requests. ``filter_result``,
``priority_list`` and ``error_result`` make results.
"""

from __future__ import annotations

import json

from cdigen.extender.binding import BindRequest
from cdigen.kubeapi.calls import object_name
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

# The longest name of an object (k8s.io/apimachinery, validation.IsDNS1123Subdomain).
_MAX_NAME = 253
_MAX_NODES = 100_000
# The limit in bytes for ExtenderBindingArgs, which are four names.
MAX_BIND = 1 << 14
# The limit for the number of _VALUES characters in a request. In parsed form, a short text can need much
# memory. For example, '{"":' needs 232 bytes. A Node object of 10 kB has 510 of these characters. A request
# has at most 8 MiB.
_MAX_VALUES = 450_000
_VALUES = (b",", b"[", b"{")


@frozen
class ExtenderArgs:
    """The pod and the names of nodes in a request.

    ``nodes`` are the Node objects if the scheduler sent whole objects, or None. If ``is_old`` is set, the
    member names of the request begin with a lower-case letter.
    """

    pod: Mapping[str, Any]
    names: tuple[str, ...]
    nodes: tuple[Mapping[str, Any], ...] | None = None
    is_old: bool = False


def read_json(body: bytes, most: int | None = None) -> object:
    """Return the parsed JSON in BODY.

    MOST is the size limit of BODY in bytes. Raise ValueError or RecursionError if BODY is invalid.
    """
    if most is not None and len(body) > most:
        raise ValueError(f"{len(body)} bytes, more than {most}")
    if (values := sum(map(body.count, _VALUES))) > _MAX_VALUES:
        raise ValueError(f"{values} values, more than {_MAX_VALUES}")
    document: object = json.loads(body)
    return document


def read_args(document: object) -> ExtenderArgs:
    """Return the contents of DOCUMENT, a filter or prioritize request; raise ValueError if it is invalid."""
    members, is_old = _members(document)
    pod = members.get("pod")
    if not isinstance(pod, dict):
        raise ValueError("'Pod' is not an object")  # noqa: TRY004 - an invalid document is a ValueError
    names, nodes = members.get("nodenames"), members.get("nodes")
    if names is not None:
        if not isinstance(names, list) or len(names) > _MAX_NODES or not all(map(_is_name, names)):
            raise ValueError("'NodeNames' is not a list of names")
        return ExtenderArgs(pod=pod, names=tuple(names), is_old=is_old)
    rows = nodes.get("items") if isinstance(nodes, dict) else None
    if not isinstance(rows, list) or len(rows) > _MAX_NODES:
        raise ValueError("'NodeNames' is missing, and 'Nodes' has no valid items")
    found = [_name_of(row) for row in rows]
    return ExtenderArgs(pod=pod, names=tuple(found), nodes=tuple(rows), is_old=is_old)


def read_bind(document: object) -> tuple[BindRequest, bool]:
    """Return the bind request in DOCUMENT (ExtenderBindingArgs), and whether its member names are old.

    Raise ValueError if DOCUMENT is invalid.
    """
    members, is_old = _members(document)
    values = [members.get(name) for name in ("podnamespace", "podname", "poduid", "node")]
    if not all(map(_is_name, values)):
        raise ValueError("'PodName', 'PodNamespace', 'PodUID' and 'Node' must be names")
    namespace, name, uid, node = map(str, values)
    return BindRequest(namespace=namespace, name=name, uid=uid, node=node), is_old


def filter_result(
    args: ExtenderArgs, feasible: Iterable[str], failed: Mapping[str, str], unresolvable: Mapping[str, str]
) -> dict[str, Any]:
    """Return the ExtenderFilterResult with the FEASIBLE nodes of ARGS, and with the problems of other nodes.

    For FAILED nodes, the eviction of other pods may help. For UNRESOLVABLE nodes, the eviction of pods does
    not help.
    """
    names = list(feasible)
    kept = set(names)
    nodes = None
    if args.nodes is not None:
        rows = [row for name, row in zip(args.names, args.nodes, strict=True) if name in kept]
        nodes = {"metadata": {}, "items": rows}
    answer = {
        "Nodes": nodes,
        "NodeNames": None if nodes is not None else names,
        # Schedulers before 1.21 read only FailedNodes. In later schedulers, FailedAndUnresolvableNodes has
        # precedence.
        "FailedNodes": {**failed, **unresolvable},
        "FailedAndUnresolvableNodes": dict(unresolvable),
        "Error": "",
    }
    if not args.is_old:
        return answer
    del answer["FailedAndUnresolvableNodes"]
    lower = {"FailedNodes": "failedNodes"}
    return {lower.get(name, name.lower()): value for name, value in answer.items()}


def priority_list(args: ExtenderArgs, scores: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the HostPriorityList with SCORES by node."""
    host, score = ("host", "score") if args.is_old else ("Host", "Score")
    return [{host: name, score: value} for name, value in scores.items()]


def error_result(problem: str, *, is_old: bool = False) -> dict[str, str]:
    """Return the result of a bind or of a failed request; PROBLEM is "" if the pod is bound."""
    return {"error" if is_old else "Error": problem}


def _members(document: object) -> tuple[dict[str, Any], bool]:
    """Return the members of DOCUMENT by lower-case name, and whether all names begin in lower case."""
    if not isinstance(document, dict):
        raise ValueError("the request is not a JSON object")  # noqa: TRY004 - an invalid document is a ValueError
    is_old = all(str(name)[:1].islower() for name in document)
    return {str(name).lower(): value for name, value in document.items()}, is_old


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MAX_NAME and value.isprintable()


def _name_of(row: object) -> str:
    name = object_name(row)
    if not _is_name(name):
        raise ValueError("an item of 'Nodes' has no name")
    return name
