"""Query the links between GPUs and the memory sizes of GPUs, and store the results of these slow queries.

``with_known_links`` adds the stored results to inventories. ``refresh_links`` runs due queries first.
"""

from __future__ import annotations

import time
from importlib import import_module

from cdigen.model.errors import StoreError
from cdigen.model.findings import finding_of
from cdigen.model.known_links import KnownLinks, find_known, gpu_identities, merge_answers, with_links
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import DiscoveryContext

# Vendor -> the module with ``read_links``, ``load`` and LEAST, the least number of GPUs for a query.
_MODULES = {"nvidia": "cdigen.vendors.nvidia.links", "amd": "cdigen.vendors.amd.links"}
# A result is incomplete if a driver is still starting, or a link is down or fails. Then cdigen queries again
# after RETRY_S. cdigen doubles the time after each incomplete result, up to MOST_RETRY_S, because links
# without a bridge stay down.
RETRY_S, MOST_RETRY_S = 600, 86_400


def with_known_links(inventories: Mapping[str, Inventory], context: DiscoveryContext) -> dict[str, Inventory]:
    """Return INVENTORIES with the stored links and memory sizes of their GPUs."""
    found = dict(inventories)
    for vendor, code in _linkable(inventories):
        known = find_known(found[vendor], code.load(context), context.known_links())
        if known is not None:
            found[vendor] = with_links(found[vendor], known)
    return found


@frozen
class RefreshedInventories:
    """The inventories with their links, and findings on failures to store the links."""

    inventories: dict[str, Inventory]
    findings: tuple[Finding, ...] = ()


def refresh_links(
    inventories: Mapping[str, Inventory], where: Callable[[], DiscoveryContext], state_dir: str = ""
) -> RefreshedInventories:
    """Return INVENTORIES with links and memory sizes, after queries for missing results.

    The function stores new results in STATE_DIR. The argument WHERE is a function that returns the context of
    the host. On hosts without GPUs, it is not called.

    A query waits for the library of the vendor, up to a deadline. cdigen does not repeat a query in the same
    boot if the driver and the GPUs have not changed. cdigen repeats a query with an incomplete result at
    growing intervals.
    """
    linkable = _linkable(inventories)
    if not linkable:
        return RefreshedInventories(inventories=dict(inventories))
    context, found = where(), dict(inventories)
    results: dict[str, KnownLinks] = {}
    for vendor, code in linkable:
        known = _query(found[vendor], context, code)
        if known is not None:
            results[vendor] = known
            found[vendor] = with_links(found[vendor], known)
    return RefreshedInventories(inventories=found, findings=_save(results, context, state_dir))


def _query(inventory: Inventory, context: DiscoveryContext, code: Any) -> KnownLinks | None:
    """Return the links of the GPUs in INVENTORY from a query with CODE, or None if no query is due."""
    now_s = int(time.clock_gettime(time.CLOCK_BOOTTIME))
    load = code.load(context)
    before = find_known(inventory, load, context.known_links())
    if before is not None and (
        not before.requery_after_s or 0 <= now_s - before.queried_s < before.requery_after_s
    ):
        return None
    result = code.read_links(context, inventory)
    if result is None:
        return None
    gpus, is_complete = result
    return KnownLinks(
        vendor=inventory.vendor,
        load=load,
        about=gpu_identities(inventory),
        queried_s=now_s,
        requery_after_s=0 if is_complete else _wait_s(before),
        gpus=merge_answers(gpus, before),
    )


def _wait_s(before: KnownLinks | None) -> int:
    return RETRY_S if before is None else min(2 * before.requery_after_s, MOST_RETRY_S)


def _save(
    results: Mapping[str, KnownLinks], context: DiscoveryContext, state_dir: str
) -> tuple[Finding, ...]:
    if not results or not state_dir:
        return ()
    from cdigen.store import known_links  # noqa: PLC0415 - few cycles have new results

    known = (*(each for each in context.known_links() if each.vendor not in results), *results.values())
    try:
        known_links.save(state_dir, context.host, known)
    except StoreError as error:
        return (finding_of(error, f"{state_dir}/{known_links.FILE}"),)
    return ()


def _linkable(inventories: Mapping[str, Inventory]) -> list[tuple[str, Any]]:
    """Return the vendors with enough GPUs for a query, each with its module."""
    codes = [
        (vendor, import_module(module))
        for vendor, module in _MODULES.items()
        if vendor in inventories and inventories[vendor].mode == "gpu"
    ]
    return [
        (vendor, code)
        for vendor, code in codes
        if sum(gpu.usable for gpu in inventories[vendor].accelerators) >= code.LEAST
    ]
