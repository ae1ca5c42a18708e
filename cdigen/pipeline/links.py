"""Links between GPUs and their memory, which take long to find out: asked once, kept, added to inventories.

``with_known`` adds what is kept; ``refreshed`` asks, where that is due, and keeps it.
"""

from __future__ import annotations

import time
from importlib import import_module

from cdigen.model.errors import StoreError
from cdigen.model.findings import finding_of
from cdigen.model.known_links import KnownLinks, gpus_of, known_of, told_now, with_links
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import DiscoveryContext

# Vendor -> the module with its ``ask`` and ``load``, and LEAST, of how many GPUs there is something to ask.
_ASKED = {"nvidia": "cdigen.vendors.nvidia.links", "amd": "cdigen.vendors.amd.links"}
# An answer with holes (a driver that is still starting, a link that is down or fails) is asked for again,
# first after so long, then each time after twice as long: links that no bridge joins stay down.
RETRY_S, MOST_RETRY_S = 600, 86_400


def with_known(inventories: Mapping[str, Inventory], context: DiscoveryContext) -> dict[str, Inventory]:
    """Return INVENTORIES with the links and the memory that are kept of their GPUs."""
    found = dict(inventories)
    for vendor, code in _linkable(inventories):
        known = known_of(found[vendor], code.load(context), context.known_links())
        if known is not None:
            found[vendor] = with_links(found[vendor], known)
    return found


@frozen
class Refreshed:
    """The inventories with their links, and why these could not be kept."""

    inventories: dict[str, Inventory]
    findings: tuple[Finding, ...] = ()


def refreshed(
    inventories: Mapping[str, Inventory], where: Callable[[], DiscoveryContext], state_dir: str = ""
) -> Refreshed:
    """Return INVENTORIES with links and memory, after asking for what is not kept; STATE_DIR keeps it.

    WHERE gives the context of the host, which hosts without GPUs do not need.

    It takes as long as the vendor's library does, within its deadline. What was asked is not asked again in
    this boot, as long as driver and GPUs are the same; an answer with holes is, ever more seldom.
    """
    linkable = _linkable(inventories)
    if not linkable:
        return Refreshed(inventories=dict(inventories))
    context, found = where(), dict(inventories)
    asked: dict[str, KnownLinks] = {}
    for vendor, code in linkable:
        known = _asked_now(found[vendor], context, code)
        if known is not None:
            asked[vendor] = known
            found[vendor] = with_links(found[vendor], known)
    return Refreshed(inventories=found, findings=_saved(asked, context, state_dir))


def _asked_now(inventory: Inventory, context: DiscoveryContext, code: Any) -> KnownLinks | None:
    """Return what CODE's vendor tells now of the links of INVENTORY's GPUs, None where nothing is due."""
    now_s = int(time.clock_gettime(time.CLOCK_BOOTTIME))
    load = code.load(context)
    before = known_of(inventory, load, context.known_links())
    if before is not None and (not before.again_s or 0 <= now_s - before.asked_s < before.again_s):
        return None
    told = code.ask(context, inventory)
    if told is None:
        return None
    gpus, is_complete = told
    return KnownLinks(
        vendor=inventory.vendor,
        load=load,
        about=gpus_of(inventory),
        asked_s=now_s,
        again_s=0 if is_complete else _wait_s(before),
        gpus=told_now(gpus, before),
    )


def _wait_s(before: KnownLinks | None) -> int:
    return RETRY_S if before is None else min(2 * before.again_s, MOST_RETRY_S)


def _saved(asked: Mapping[str, KnownLinks], context: DiscoveryContext, state_dir: str) -> tuple[Finding, ...]:
    if not asked or not state_dir:
        return ()
    from cdigen.store import known_links  # noqa: PLC0415 - few cycles have anything to keep

    kept = (*(each for each in context.known_links() if each.vendor not in asked), *asked.values())
    try:
        known_links.save(state_dir, context.host, kept)
    except StoreError as error:
        return (finding_of(error, f"{state_dir}/{known_links.FILE}"),)
    return ()


def _linkable(inventories: Mapping[str, Inventory]) -> list[tuple[str, Any]]:
    """Return the vendors that have GPUs enough for a question, with their code."""
    codes = [
        (vendor, import_module(module))
        for vendor, module in _ASKED.items()
        if vendor in inventories and inventories[vendor].mode == "gpu"
    ]
    return [
        (vendor, code)
        for vendor, code in codes
        if sum(gpu.usable for gpu in inventories[vendor].accelerators) >= code.LEAST
    ]
