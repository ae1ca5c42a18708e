"""Write specs for ``generate``: clashes with others' specs first, then the store."""

from __future__ import annotations

from cdigen.cli import report
from cdigen.model.errors import SpecError
from cdigen.model.findings import errors
from cdigen.model.names import spec_file_name
from cdigen.runtimes import lookup
from cdigen.spec.parse import parse_document
from cdigen.spec.rules import check
from cdigen.store import plainfiles, specfiles
from cdigen.vendors.registry import VENDORS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from cdigen.model.errors import HostError
    from cdigen.model.findings import Finding
    from cdigen.reconcile import Product


def publish(
    product: Product, directories: tuple[str, ...], state_dir: str, arguments: Namespace
) -> dict[str, Any]:
    """Write PRODUCT into the last of DIRECTORIES; returns the row that --json prints.

    Raises SpecError where another's spec in the same directory would make devices unresolvable,
    unless --replace-foreign moves it aside.
    """
    directory, name = directories[-1], spec_file_name(product.kind)
    found = lookup.scan(directories)
    devices = [device["name"] for device in product.document["devices"]]
    findings = lookup.clashes(
        found, directory=directory, file_name=name, kind=product.kind, device_names=devices
    )
    in_the_way = errors(findings)
    if in_the_way and not arguments.replace_foreign:
        raise SpecError(in_the_way[0].message, hint=in_the_way[0].hint, kind="foreign-spec")
    published = specfiles.publish(
        directory,
        name,
        product.content,
        kind=product.kind,
        state_dir=state_dir,
        check=_check_bytes,
        replace_foreign=arguments.replace_foreign,
        also_set_aside=tuple(finding.path.rpartition("/")[2] for finding in in_the_way),
    )
    notes = tuple(finding for finding in (*findings, *published.findings) if finding.severity != "error")
    report.say(notes, arguments)
    report.note(f"{published.path}: {published.result}, {len(devices)} devices of {product.kind}", arguments)
    for path in published.set_aside:
        report.note(f"moved another's spec aside: {path}", arguments)
    return {
        "kind": product.kind,
        "file": published.path,
        "result": published.result,
        "findings": [_row(finding) for finding in (*product.findings, *notes)],
    }


def withdraw(
    vendor: str, error: HostError, directories: tuple[str, ...], state_dir: str, arguments: Namespace
) -> dict[str, Any]:
    """Remove our spec of a vendor that is gone, which ERROR says; returns the row that --json prints."""
    kind = f"{VENDORS[vendor][0]}/gpu"
    path = f"{directories[-1]}/{spec_file_name(kind)}"
    removed = specfiles.withdraw(directories[-1], spec_file_name(kind), state_dir=state_dir)
    if removed:
        report.note(f"{path}: withdrawn, because {error.message}", arguments)
    return {"kind": kind, "file": path, "result": "withdrawn" if removed else "absent", "findings": []}


def save(path: str, content: bytes, arguments: Namespace) -> None:
    """Write CONTENT into a file that the user named, whole or not at all."""
    plainfiles.save(path, content)
    report.note(f"{path}: written", arguments)


def _check_bytes(content: bytes) -> None:
    """Refuse bytes that do not read back as a good spec; the store calls it before the rename."""
    parsed = parse_document(content, yaml=False)
    wrong = errors((*parsed.findings, *(check(parsed.document) if parsed.document is not None else ())))
    if wrong:
        raise SpecError(
            f"the spec read back from the disk is wrong: {wrong[0].line()}", hint="check the disk"
        )


def _row(finding: Finding) -> dict[str, str]:
    return {
        "severity": finding.severity,
        "rule": finding.rule,
        "path": finding.path,
        "message": finding.message,
        "hint": finding.hint,
    }
