"""One cycle: discover, build, check. The command, the daemon and the tests all run this.

Writing is the caller's, because a command prints where the daemon stores; a ``Result`` carries all
that either needs.
"""

from __future__ import annotations

from cdigen.model.errors import HostError, SpecError
from cdigen.model.findings import Finding, errors
from cdigen.model.profile import DEFAULT
from cdigen.spec.build import build
from cdigen.spec.hostcheck import check_host
from cdigen.spec.render import render
from cdigen.spec.rules import check
from cdigen.value import frozen
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.host.root import Root
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import Places


@frozen
class Product:
    """One kind's spec: the document, its bytes, and what was found while it was made and checked."""

    vendor: str
    kind: str
    document: dict[str, Any]
    content: bytes
    findings: tuple[Finding, ...]


def discover(names: tuple[str, ...], places: Places) -> tuple[dict[str, Inventory], dict[str, HostError]]:
    """Read the inventory of each vendor; one vendor's trouble never costs another's."""
    inventories: dict[str, Inventory] = {}
    failures: dict[str, HostError] = {}
    for name in names:
        try:
            inventories[name] = registry.load(name).discover(places)
        except HostError as error:
            failures[name] = error
    return inventories, failures


def produce(
    inventories: dict[str, Inventory], *, host: Root | None, kinds: tuple[str, ...] = ()
) -> tuple[tuple[Product, ...], tuple[SpecError, ...]]:
    """Compute and check the specs of INVENTORIES; with HOST, hold them against that host as well.

    KINDS, where given, are those wanted. Returns the specs that are right, and an error for each
    that breaks a rule: a defect of cdigen, or a host that changed between reading and checking.
    """
    products: list[Product] = []
    broken: list[SpecError] = []
    for name, inventory in inventories.items():
        for draft in registry.load(name).edits(inventory, (DEFAULT,)):
            if not draft.devices or (kinds and draft.kind not in kinds):
                continue
            document = build(draft)
            findings = check(document)
            if host is not None and not errors(findings):
                findings = (*findings, *check_host(document, host))
            if wrong := errors(findings):
                broken.append(_broken(draft.kind, wrong))
                continue
            products.append(
                Product(
                    vendor=name,
                    kind=draft.kind,
                    document=document,
                    content=render(document),
                    findings=(*inventory.findings, *findings),
                )
            )
    return tuple(products), tuple(broken)


def _broken(kind: str, wrong: tuple[Finding, ...]) -> SpecError:
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return SpecError(
        f"the spec of {kind} breaks a rule and was not written: {wrong[0].line()}{more}",
        hint="run it again if the driver was being changed; else report it with the output of "
        "'cdigen inspect --json'",
    )
