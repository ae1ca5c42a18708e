"""One cycle: discover, build, check. The command, the daemon and the tests all run this.

Writing is the caller's, because a command prints where the daemon stores; a ``Result`` carries all
that either needs.
"""

from __future__ import annotations

from cdigen.model.errors import HostError, SpecError
from cdigen.model.findings import Finding, errors
from cdigen.model.profile import DEFAULT
from cdigen.spec.build import build
from cdigen.spec.fit import SAID_ONCE, fit, refuse_newer
from cdigen.spec.hostcheck import check_host
from cdigen.spec.render import render
from cdigen.spec.rules import check
from cdigen.value import frozen
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.host.root import Root
    from cdigen.model.cdi import Draft
    from cdigen.model.inventory import Inventory
    from cdigen.model.target import Target
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
    inventories: dict[str, Inventory],
    *,
    host: Root | None,
    kinds: tuple[str, ...] = (),
    target: Target | None = None,
) -> tuple[tuple[Product, ...], tuple[SpecError, ...]]:
    """Compute and check the specs of INVENTORIES; with HOST, hold them against that host as well.

    KINDS, where given, are those wanted; TARGET is what has to read them. Returns the specs that are
    right, and an error for each that does not fit the target or breaks a rule: a defect of cdigen, or
    a host that changed between reading and checking.
    """
    products: list[Product] = []
    broken: list[SpecError] = []
    for name, inventory in inventories.items():
        for draft in registry.load(name).edits(inventory, (DEFAULT,)):
            if not draft.devices or (kinds and draft.kind not in kinds):
                continue
            try:
                document, findings = _document(draft, host, target)
            except SpecError as error:
                broken.append(error)
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


def _document(
    draft: Draft, host: Root | None, target: Target | None
) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Return the document of DRAFT that fits TARGET and what there is to say of it; raises SpecError."""
    fitted, dropped = fit(draft, target)
    document = build(fitted)
    if target is not None:
        refuse_newer(document, target)
    findings = tuple(finding for finding in check(document) if finding.rule not in SAID_ONCE)
    if host is not None and not errors(findings):
        findings = (*findings, *check_host(document, host))
    if wrong := errors(findings):
        raise _broken(draft.kind, wrong)
    return document, (*dropped, *findings)


def _broken(kind: str, wrong: tuple[Finding, ...]) -> SpecError:
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return SpecError(
        f"the spec of {kind} breaks a rule and was not written: {wrong[0].line()}{more}",
        hint="run it again if the driver was being changed; else report it with the output of "
        "'cdigen inspect --json'",
    )
