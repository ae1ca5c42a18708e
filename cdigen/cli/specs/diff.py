"""The command ``cdigen diff``: compare the specs on the disk with the specs that cdigen would write now."""

from __future__ import annotations

import os
import sys

from cdigen.cdi.compare import compare
from cdigen.cli.shared import argument_checks, discovery_options, options, report
from cdigen.cli.shared.option_table import add
from cdigen.cli.shared.spec_options import add_options as add_spec_options
from cdigen.cli.shared.spec_options import delivery_options, generate_options
from cdigen.host.root import shown
from cdigen.model.names import spec_file_name
from cdigen.pipeline import generate, publish
from cdigen.pipeline.naming import require_kinds
from cdigen.store.specs import recorded as recorded_specs
from cdigen.value import frozen
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from cdigen.cdi.compare import Changes
    from cdigen.model.errors import HostError
    from cdigen.pipeline.generate import GeneratedSpec
    from cdigen.store.records.owned_specs import OwnedSpec

EXAMPLES = """\
  cdigen diff                          print the differences; exit 0 if there are none, else 1
  cdigen diff --kind nvidia.com/gpu    compare only one kind
  cdigen diff --json                   print devices, mounts, nodes and hooks that differ as JSON
"""

DIFFERENT = 1


@frozen
class _Difference:
    kind: str
    file: str
    changes: Changes


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    add_spec_options(parser)
    add(parser, "--spec-dir")
    discovery_options.add_discovery_options(parser, takes_inventory=False)


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    discovery_options.refuse_inventory(arguments)
    host, settings = options.host_and_settings(arguments)
    spec_options = generate_options(arguments, settings)
    names = discovery_options.vendor_names(arguments, settings)
    argument_checks.require_spec_directories(arguments)
    context = discovery_options.context(arguments, host, settings)
    inventories, failures = discovery_options.discover(arguments, settings, context)
    directories = options.spec_directories(arguments, host, settings)
    directory = directories[-1]
    state_dir = options.outer_directory(host, settings.state_dir)
    recorded, findings = recorded_specs(directory, state_dir=state_dir)
    ours = {owned.kind for owned in recorded}
    require_kinds(spec_options.kinds, inventories, spec_options.profiles, names=names, known=ours)
    specs, broken = generate.generate_specs(
        inventories,
        host=host,
        options=spec_options,
        delivery=delivery_options(arguments, host, settings, write=False),
    )
    report.print_findings((*findings, *(finding for spec in specs for finding in spec.findings)), arguments)
    specs = tuple(spec for spec in specs if not publish.overriding_file(spec, directories, state_dir))
    differences = [
        *_of_specs(specs, directory),
        *_stale(
            tuple(owned for owned in recorded if owned.kind.startswith(registry.prefixes(names))),
            directory,
            specs,
            spec_options.kinds,
            tuple(broken),
        ),
    ]
    _report_failures(failures, differences, arguments)
    if arguments.json:
        report.print_json([one.changes.row(one.kind, one.file) for one in differences])
    else:
        _print(differences)
    if broken:
        return report.print_errors(broken.values())
    return DIFFERENT if differences else 0


def _of_specs(specs: tuple[GeneratedSpec, ...], directory: str) -> Iterator[_Difference]:
    for spec in specs:
        file = os.path.join(directory, spec_file_name(spec.kind))
        changes = compare(publish.read_spec(file), spec.document)
        if changes.any():
            yield _Difference(kind=spec.kind, file=file, changes=changes)


def _stale(
    recorded: tuple[OwnedSpec, ...],
    directory: str,
    specs: tuple[GeneratedSpec, ...],
    kinds: tuple[str, ...],
    broken: tuple[str, ...],
) -> Iterator[_Difference]:
    """Yield the difference of each recorded spec whose kind has no devices on this host now."""
    offered = {spec.kind for spec in specs} | set(broken)
    for owned in recorded:
        kind, file = owned.kind, os.path.join(directory, owned.name)
        document = publish.read_spec(file)
        is_excluded = bool(kinds) and kind not in kinds
        if document is not None and kind not in offered and not is_excluded:
            yield _Difference(kind=kind, file=file, changes=compare(document, None))


def _report_failures(
    failures: dict[str, HostError], differences: list[_Difference], arguments: Namespace
) -> None:
    """Raise the first failure of a vendor if there are no differences; otherwise print all failures."""
    if failures and not differences:
        raise next(iter(failures.values()))
    for error in failures.values():
        report.print_note(f"{error.message}; {error.hint}" if error.hint else error.message, arguments)


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
