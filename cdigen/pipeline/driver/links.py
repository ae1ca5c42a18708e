"""Query the links between GPUs and the memory sizes of GPUs, and store the results of these slow queries.

``with_known_links`` adds the stored results to inventories. ``refresh_links`` runs due queries first.
"""

from __future__ import annotations

import time

from cdigen.model.saved import KnownLinks, find_known, gpu_identities, merge_answers, with_links
from cdigen.vendors import registry
from cdigen.vendors.kernel.modules import load_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import VendorLinks
    from cdigen.vendors.context import DiscoveryContext

# A result is incomplete if a driver is still starting, or a link is down or fails. Then cdigen queries again
# after RETRY_S. cdigen doubles the time after each incomplete result, up to MOST_RETRY_S, because links
# without a bridge stay down.
RETRY_S, MOST_RETRY_S = 600, 86_400


def with_known_links(inventories: Mapping[str, Inventory], context: DiscoveryContext) -> dict[str, Inventory]:
    """Return INVENTORIES with the stored links and memory sizes of their GPUs."""
    found = dict(inventories)
    for vendor in _linkable(inventories):
        known = find_known(found[vendor], _load(vendor, context), context.known_links())
        if known is not None:
            found[vendor] = with_links(found[vendor], known)
    return found


def refresh_links(
    inventories: Mapping[str, Inventory], where: Callable[[], DiscoveryContext], state_dir: str = ""
) -> tuple[dict[str, Inventory], tuple[Finding, ...]]:
    """Return INVENTORIES with links and memory sizes, after queries for missing results, and the failures.

    The function stores new results in STATE_DIR. The argument WHERE is a function that returns the context of
    the host. On hosts without GPUs, it is not called.

    A query waits for the library of the vendor, up to a deadline. cdigen does not repeat a query in the same
    boot if the driver and the GPUs have not changed. cdigen repeats a query with an incomplete result at
    growing intervals.
    """
    linkable = _linkable(inventories)
    if not linkable:
        return dict(inventories), ()
    context, found = where(), dict(inventories)
    results: dict[str, KnownLinks] = {}
    failures: list[Finding] = []
    for vendor, source in linkable.items():
        with registry.reporting(vendor, failures):
            if (known := _query(found[vendor], context, source)) is not None:
                results[vendor] = known
                found[vendor] = with_links(found[vendor], known)
    return found, (*failures, *_save(results, context, state_dir))


def _query(inventory: Inventory, context: DiscoveryContext, source: VendorLinks) -> KnownLinks | None:
    """Return the links of the GPUs in INVENTORY from a query of SOURCE, or None if no query is due."""
    now_s = int(time.clock_gettime(time.CLOCK_BOOTTIME))
    load = _load(inventory.vendor, context)
    before = find_known(inventory, load, context.known_links())
    if before is not None and (
        not before.requery_after_s or 0 <= now_s - before.queried_s < before.requery_after_s
    ):
        return None
    if (result := source.read(context, inventory)) is None:
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
    from cdigen.store.records.saved import KNOWN_LINKS  # noqa: PLC0415 - few cycles have new results

    known = (*(each for each in context.known_links() if each.vendor not in results), *results.values())
    unsaved = KNOWN_LINKS.save(state_dir, context.host, known)
    return () if unsaved is None else (unsaved,)


def _load(vendor: str, context: DiscoveryContext) -> str:
    """Return a text that changes each time VENDOR's driver is loaded."""
    return load_of(context.host, registry.load(vendor).MODULES[0])


def _linkable(inventories: Mapping[str, Inventory]) -> dict[str, VendorLinks]:
    """Return the vendors with enough GPUs for a query, each with its source of links."""
    sources = {
        vendor: source
        for vendor, inventory in inventories.items()
        if inventory.mode == "gpu" and (source := registry.links(vendor)) is not None
    }
    return {
        vendor: source
        for vendor, source in sources.items()
        if sum(gpu.usable for gpu in inventories[vendor].accelerators) >= source.min_gpus
    }
