"""Find out whose units the kubelet asks for, and let the promises follow: ``settle``, ``repair``.

Generators of requests to the API server, as the extender's binding: whoever runs one sends each ``Call`` and
gives back its ``Reply``; it may be ended between any two of them. The ledger is changed first, by
compare-and-swap, the annotations after it; where the two differ a pod counts on both, until ``repair``.
"""

from __future__ import annotations

import time
from urllib.parse import quote, urlencode

from cdigen.gpushare.claims import written
from cdigen.gpushare.ledger import Ledger, read_ledger, write_ledger
from cdigen.gpushare.names import ASSIGNED, ledger_name
from cdigen.kubeapi.calls import MERGE, Call, Reply, configmap_path, pod_path
from cdigen.kubeapi.lists import ListPage, PageSize
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeVar

    from cdigen.gpushare.claims import Placement
    from cdigen.kubelet.shares.books import Books, Option
    from cdigen.kubelet.shares.bound import Bound, Want

    T = TypeVar("T")
    Steps = Generator[Call, Reply, T]

# Each conflict is somebody else's success.
MAX_ATTEMPTS = 8
# Pods that are asked for, to find out whether what they were promised is still of use.
MAX_LOOKS = 16


@frozen
class Terms:
    """Of which node, and where its ledger is."""

    node: str
    namespace: str
    node_uid: str = ""


@frozen
class Settled:
    """The request is for ``want`` of ``bound``; ``moves``: how many pods' promises were changed."""

    bound: Bound
    want: Want
    moves: int = 0


class ShareRefused(Exception):
    """Nobody can be given what the kubelet asks; the text is for the pod's event."""


class ReplacedError(ShareRefused):
    """Who is asked knows of pods no more: another may."""


class _Again(Exception):
    """Somebody else was first, or nobody knows: everything has to be read anew."""


def active_pods(node: str) -> str:
    """Return the field selector of the pods that are bound to NODE and have not ended."""
    return f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"


def settle(
    books: Books, gpu: int, units: int, terms: Terms, ids: frozenset[str] = frozenset()
) -> Steps[Settled]:
    """Return for whom UNITS of GPU, IDS, are, and let promises say so. ``ShareRefused``: for nobody.

    Where the likeliest container was promised that GPU, no request is made.
    """
    options = books.options(gpu, units, ids)
    # What is known may be a moment old, which where pods must be on one GPU is too old.
    is_plain = not any(option.is_doubtful or option.bound.pod.ask.together for option in options)
    if options and options[0].gpu == gpu and is_plain:
        return _served(books, options[0], gpu, ids)
    reason = ""
    for _ in range(MAX_ATTEMPTS):
        try:
            return (yield from _settle_once(books, gpu, units, terms, ids))
        except _Again as last:
            reason = str(last)
    raise ShareRefused(f"others were always first, {MAX_ATTEMPTS} times; the last time: {reason}")


def repair(books: Books, terms: Terms) -> Steps[int]:
    """Let ledger and annotations say where containers are; return how many pods' were changed.

    ``ShareRefused``: something failed, or somebody else was first; it is left to the next time.
    """
    try:
        yield from _read(books, terms)
        if wrong := books.corrections():
            yield from _promise(books, wrong, terms)
        needing = [bound for bound in books.bounds.values() if books.needs_patch(bound)]
        for bound in needing:
            place = books.truth(bound)
            if place is not None:
                yield from _annotate(books, bound, place)
    except _Again as reason:
        raise ShareRefused(f"promises do not follow yet: {reason}") from None
    return len(needing)


def _settle_once(books: Books, gpu: int, units: int, terms: Terms, ids: frozenset[str]) -> Steps[Settled]:
    yield from _read(books, terms)
    options = books.options(gpu, units, ids)
    if not options:
        raise ShareRefused(f"no pending pod of {terms.node} asks for {units} units in a container")
    for option in options:
        plan = books.plan(option, gpu)
        if plan is None:
            if option.is_next and option.bound.pod.ask.together:
                break  # it is that one, which would be torn apart
            continue
        if plan.moves:
            yield from _promise(books, plan.moves, terms)
            for bound, placement in plan.moves:
                yield from _annotate(books, bound, placement)
        return _served(books, option, gpu, ids, moves=len(plan.moves))
    first = options[0]
    if books.is_elsewhere(first.bound):
        raise ShareRefused(mismatch(first.bound, terms))
    promised = "no GPU that is known" if first.gpu is None else f"GPU {first.gpu}"
    raise ShareRefused(
        f"the kubelet chose {units} units of GPU {gpu} for pod {first.bound.pod.key}, which was promised "
        f"{promised}, and those of GPU {gpu} are promised to others"
    )


def mismatch(bound: Bound, terms: Terms) -> str:
    """Return what there is to say of BOUND, whose promise is in a ledger of another namespace."""
    return (
        f"the extender that bound pod {bound.pod.key} keeps its ledgers in namespace {bound.ledger_in!r}, "
        f"and 'kubelet: {{shared_memory: {{namespace}}}}' is {terms.namespace!r}: promises are not changed; "
        "let both name the same"
    )


def _served(books: Books, option: Option, gpu: int, ids: frozenset[str], *, moves: int = 0) -> Settled:
    bound = books.bounds.get(option.bound.pod.uid, option.bound)
    books.serve(bound, option.want, gpu, time.monotonic(), ids)
    return Settled(bound=bound, want=option.want, moves=moves)


def _read(books: Books, terms: Terms) -> Steps[None]:
    """Read the node's pods and its ledger as they are now."""
    yield from _read_pods(books, terms.node)
    reply = yield Call(method="GET", path=_ledger_path(terms))
    if not reply.is_done and reply.status != 404:
        raise ShareRefused(f"the API server does not show what was promised on {terms.node}: {reply.text}")
    ledger = read_ledger(reply.body) if reply.is_done else Ledger()
    looks, over = MAX_LOOKS, []
    for entry in ledger.entries:
        namespace, _, name = entry.key.partition("/")
        if entry.uid in books.bounds or not looks:
            continue
        looks -= 1
        if _is_over((yield Call(method="GET", path=pod_path(namespace, name))), entry.uid, terms.node):
            over.append(entry.uid)
    books.ledger = ledger.without(over)


def _read_pods(books: Books, node: str) -> Steps[None]:
    """Read the pods of NODE, page by page."""
    known = frozenset(books.bounds)  # the watch may add newer ones meanwhile
    uids, size, more = set(), PageSize(), ""
    while True:
        query = {"fieldSelector": active_pods(node), "limit": str(size.limit)}
        query |= {"continue": more} if more else {}
        path = f"/api/v1/pods?{urlencode(query, quote_via=quote)}"
        reply = yield Call(method="GET", path=path, is_raw=True)
        if not reply.is_done:
            raise ShareRefused(f"the API server does not show the pods of {node}: {reply.text}")
        page = ListPage(reply.content)
        for found in page.items():
            books.put(found)
            metadata = found.get("metadata") if isinstance(found, dict) else None
            if isinstance(metadata, dict):
                uids.add(str(metadata.get("uid")))
            del found, metadata  # before the next one is parsed
        size.received(page)
        more = page.next_page
        if not more:
            books.keep(uids, known)
            return


def _is_over(reply: Reply, uid: str, node: str) -> bool:
    """Return whether what the pod UID was promised on NODE is of no use, now and for ever."""
    if reply.status == 404:
        return True
    if not reply.is_done:
        return False
    metadata, spec, status = (reply.body.get(key) for key in ("metadata", "spec", "status"))
    if not isinstance(metadata, dict) or not metadata.get("uid"):
        return False
    elsewhere = spec.get("nodeName") if isinstance(spec, dict) else None
    phase = status.get("phase") if isinstance(status, dict) else None
    return metadata["uid"] != uid or phase in {"Succeeded", "Failed"} or elsewhere not in {None, "", node}


def _promise(books: Books, moves: tuple[tuple[Bound, Placement], ...], terms: Terms) -> Steps[None]:
    """Write MOVES into the ledger, all of them at once."""
    ledger = books.ledger.having(*(books.entry(bound, placement) for bound, placement in moves))
    name = ledger_name(terms.node)
    body = write_ledger(
        ledger, name=name, namespace=terms.namespace, node=terms.node, node_uid=terms.node_uid
    )
    if ledger.version:
        reply = yield Call(method="PUT", path=_ledger_path(terms), body=body)
    else:
        reply = yield Call(method="POST", path=configmap_path(terms.namespace), body=body)
    if reply.status == 409 or reply.is_unknown:
        raise _Again(reply.text)
    if not reply.is_done:
        raise ShareRefused(f"the API server keeps no ledger of {terms.node}: {reply.text}")
    books.ledger = read_ledger(reply.body)


def _annotate(books: Books, bound: Bound, placement: Placement) -> Steps[None]:
    """Let the annotations of BOUND say PLACEMENT, if it is still as it was read."""
    pod = bound.pod
    annotations = written(pod.ask, placement, books.sizes, bound.assumed_ns or time.time_ns())
    if books.is_served(bound):
        annotations[ASSIGNED] = "true"
    metadata = {"uid": pod.uid, "resourceVersion": pod.version, "annotations": annotations}
    # The subresource changes no specification: the account needs no right to change pods.
    path = f"{pod_path(pod.namespace, pod.name)}/status"
    reply = yield Call(method="PATCH", path=path, body={"metadata": metadata}, content_type=MERGE)
    if reply.status in {404, 409, 422} or reply.is_unknown:
        raise _Again(reply.text)
    if not reply.is_done:
        raise ShareRefused(f"the API server does not let us annotate {pod.key}: {reply.text}")
    books.put(reply.body)


def _ledger_path(terms: Terms) -> str:
    return configmap_path(terms.namespace, ledger_name(terms.node))
