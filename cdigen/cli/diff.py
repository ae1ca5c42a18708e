"""``cdigen diff``: what is on the disk against what this host would give now."""

from __future__ import annotations

import os
import sys

from cdigen import publishing, reconcile
from cdigen.cli import given, options, report
from cdigen.cli.wishes import add_options as add_wishes
from cdigen.cli.wishes import means, wishes
from cdigen.host.root import shown
from cdigen.model.names import spec_file_name
from cdigen.offers import require_kinds
from cdigen.spec.compare import compare
from cdigen.store import specfiles
from cdigen.value import frozen
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from cdigen.model.errors import HostError
    from cdigen.reconcile import Product
    from cdigen.spec.compare import Changes
    from cdigen.store.state import Owned

EXAMPLES = """\
  cdigen diff                          what differs; exit 0 where nothing does, else 1
  cdigen diff --kind nvidia.com/gpu    only one kind
  cdigen diff --json                   device names, mounts, nodes and hooks that differ
"""

DIFFERENT = 1


@frozen
class _Difference:
    kind: str
    file: str
    changes: Changes


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    add_wishes(parser)
    options.add_spec_dir_option(parser)
    options.add_discovery_options(parser, takes_inventory=False)
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    options.refuse_inventory(arguments)
    host, settings = options.host_and_settings(arguments)
    wished = wishes(arguments, settings)
    names = options.vendor_names(arguments, settings)
    given.require_spec_directories(arguments)
    places = options.places(arguments, host, settings)
    given.require_sources(arguments, places)
    inventories, failures = options.discover(arguments, settings, places)
    directory = options.spec_directories(arguments, host, settings)[-1]
    state_dir = options.outer_directory(host, settings.state_dir)
    recorded, findings = specfiles.recorded(directory, state_dir=state_dir)
    ours = {owned.kind for owned in recorded}
    require_kinds(wished.kinds, inventories, wished.profiles, names=names, known=ours)
    products, broken = reconcile.produce(
        inventories,
        host=host,
        wishes=wished,
        means=means(arguments, host, settings, write=False),
    )
    report.say((*findings, *(finding for product in products for finding in product.findings)), arguments)
    differences = [
        *_of_products(products, directory),
        *_gone(
            tuple(owned for owned in recorded if owned.kind.startswith(registry.prefixes(names))),
            directory,
            products,
            wished.kinds,
            tuple(broken),
        ),
    ]
    _complain_of_vendors(failures, differences, arguments)
    if arguments.json:
        report.print_json([one.changes.row(one.kind, one.file) for one in differences])
    else:
        _print(differences)
    if broken:
        return report.complain(broken.values())
    return DIFFERENT if differences else 0


def _of_products(products: tuple[Product, ...], directory: str) -> Iterator[_Difference]:
    for product in products:
        file = os.path.join(directory, spec_file_name(product.kind))
        changes = compare(publishing.read_spec(file), product.document)
        if changes.any():
            yield _Difference(kind=product.kind, file=file, changes=changes)


def _gone(
    recorded: tuple[Owned, ...],
    directory: str,
    products: tuple[Product, ...],
    kinds: tuple[str, ...],
    broken: tuple[str, ...],
) -> Iterator[_Difference]:
    """Yield the specs of ours whose kinds this host does not offer now."""
    offered = {product.kind for product in products} | set(broken)
    for owned in recorded:
        kind, file = owned.kind, os.path.join(directory, owned.name)
        document = publishing.read_spec(file)
        unwanted = bool(kinds) and kind not in kinds
        if document is not None and kind not in offered and not unwanted:
            yield _Difference(kind=kind, file=file, changes=compare(document, None))


def _complain_of_vendors(
    failures: dict[str, HostError], differences: list[_Difference], arguments: Namespace
) -> None:
    """Raise what keeps a vendor from giving anything, unless that is what the difference is."""
    if failures and not differences:
        raise next(iter(failures.values()))
    for error in failures.values():
        report.note(f"{error.message}; {error.hint}" if error.hint else error.message, arguments)


def _print(differences: list[_Difference]) -> None:
    rows = [(one.kind, shown(one.file), one.changes.summary()) for one in differences]
    if rows:
        report.write(sys.stdout, report.table(rows, header=("KIND", "FILE", "DIFFERENCE")))
    for one in differences:
        for group in one.changes.rows():
            where = f"{one.kind}={group['device']}" if group["device"] else one.kind
            for sign, key in (("+", "added"), ("-", "removed"), ("~", "changed")):
                for entry in group[key]:
                    report.write(sys.stdout, f"{sign} {where}: {shown(entry)}\n")
