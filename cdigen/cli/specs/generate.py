"""The command ``cdigen generate``: generate the specs of this host, and print or write them."""

from __future__ import annotations

import os

from cdigen.cli.shared import argument_checks, discovery_options, options, report
from cdigen.cli.shared.option_table import add
from cdigen.cli.shared.spec_options import add_options as add_spec_options
from cdigen.cli.shared.spec_options import delivery_options, generate_options
from cdigen.config import SPEC_DIRS
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError, HostError, SpecError
from cdigen.model.findings import errors
from cdigen.model.names import spec_file_name
from cdigen.pipeline import generate
from cdigen.pipeline.naming import inventory_kinds, require_kinds
from cdigen.value import frozen
from cdigen.vendors.exclusion import exclusion_problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from cdigen.config import Settings
    from cdigen.host.root import Root
    from cdigen.model.errors import CdigenError
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory
    from cdigen.pipeline.generate import GeneratedSpec
    from cdigen.pipeline.publish import PublishOutcome
    from cdigen.pipeline.withdraw import StaleSpec
    from cdigen.vendors.context import DiscoveryContext

EXAMPLES = """\
  cdigen generate                                print the spec
  cdigen generate --write                        write it for podman, Docker and containerd
  cdigen generate --output-dir ./specs           write one file per kind into a folder
  cdigen generate --driver-root /run/nvidia/driver --write
                                                 use the files of a driver container
  cdigen generate --inventory host.json          print the spec of another host
  cdigen generate --target podman-4.3 --target docker-25
                                                 print a spec that both runtimes can read
"""


# On a host with GPUs and other devices, the default kind ends with this text.
_GPUS = "/gpu"


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    output = parser.add_argument_group("output").add_mutually_exclusive_group()
    add(output, "--write", "--output", "--output-dir")
    add(parser, "--format", "--replace-foreign", "--withdraw")
    add_spec_options(parser)
    add(parser, "--spec-dir")
    discovery_options.add_discovery_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    _refuse_odd_combinations(arguments)
    host, settings = options.host_and_settings(arguments)
    spec_options = generate_options(arguments, settings)
    names = discovery_options.vendor_names(arguments, settings)
    if arguments.write:
        from cdigen.cli.shared.maintained import refuse_other_settings  # noqa: PLC0415 - only for --write

        options.refuse_own_spec_directory(arguments, host, settings)
        refuse_other_settings(arguments, host, settings)
    delivery = delivery_options(arguments, host, settings, write=arguments.write)
    if not arguments.write:
        argument_checks.note_missing_spec_directories(arguments)
    inventories, failures = _discover(arguments, host, settings, names)
    is_recorded = arguments.inventory is not None
    if not arguments.withdraw:
        vendors = inventories if is_recorded else names
        require_kinds(spec_options.kinds, inventories, spec_options.profiles, names=vendors)
    specs, broken = generate.generate_specs(
        inventories, host=None if is_recorded else host, options=spec_options, delivery=delivery
    )
    if arguments.write or len(specs) > 1:
        specs = _with_mount_conflicts(arguments, host, settings, specs)
    results = _Results(inventories=inventories, failures=failures, specs=specs, broken=broken)
    unready = _reason_unready(arguments, results)
    stale = _stale_specs(arguments, host, settings, results) if arguments.write else ()
    if unready is not None and not arguments.withdraw:
        report.print_findings(_check_old_specs(arguments, host, settings, stale), arguments)
        raise unready
    _refuse_incomplete(arguments, inventories)
    failed = () if unready is not None else discovery_options.findings_of(failures)
    old = _check_old_specs(arguments, host, settings, stale)
    report.print_findings((*failed, *_findings(results), *old), arguments)
    if arguments.write:
        outcomes = _write(arguments, host, settings, results, stale)
    elif arguments.output is not None or arguments.output_dir is not None:
        outcomes = _save(arguments, results)
    else:
        return _print(arguments, results)
    return _conclude(arguments, results, outcomes, unready)


def _with_mount_conflicts(
    arguments: Namespace, host: Root, settings: Settings, specs: tuple[GeneratedSpec, ...]
) -> tuple[GeneratedSpec, ...]:
    """Return SPECS with findings on kinds whose mounts cover the mounts of other kinds."""
    from cdigen.pipeline.publish import with_mount_conflicts  # noqa: PLC0415 - not for printing one spec

    directories = options.spec_directories(arguments, host, settings) if arguments.write else ()
    return with_mount_conflicts(specs, directories, host if arguments.inventory is None else None)


def _discover(
    arguments: Namespace, host: Root, settings: Settings, names: tuple[str, ...]
) -> tuple[dict[str, Inventory], dict[str, HostError]]:
    """Return the inventories of --inventory or of the host, and the failures by vendor."""
    if arguments.inventory is not None:
        _refuse_output_into_spec_directory(arguments, host, settings)
        return discovery_options.read_inventory(arguments.inventory, names), {}
    context = discovery_options.context(arguments, host, settings)
    inventories, failures = discovery_options.discover(arguments, settings, context)
    if arguments.write:
        _save_partition_names(arguments, inventories, failures, context, settings)
    return inventories, failures


@frozen
class _Results:
    # The keys of ``inventories`` and ``failures`` are vendors. The keys of ``broken`` are kinds.
    inventories: dict[str, Inventory]
    failures: dict[str, HostError]
    specs: tuple[GeneratedSpec, ...]
    broken: dict[str, SpecError]


def _refuse_odd_combinations(arguments: Namespace) -> None:
    for option, is_used in (
        ("--replace-foreign", arguments.replace_foreign),
        ("--withdraw", arguments.withdraw),
    ):
        if is_used and not arguments.write:
            raise ConfigError(f"{option} has no effect without --write", hint="see 'cdigen generate --help'")
    if arguments.write and arguments.inventory is not None:
        raise ConfigError(
            "--inventory and --write exclude each other: root must not mount the paths of another host's "
            "inventory",
            hint="print the spec, or use --output",
        )
    if arguments.write and arguments.format != "json":
        raise ConfigError(
            "--write writes JSON only",
            hint="use --output FILE for YAML; YAML parsers read unquoted names such as 0 as numbers",
        )
    is_printed = not arguments.write and arguments.output is None and arguments.output_dir is None
    if is_printed and arguments.json and arguments.format != "json":
        raise ConfigError("--json prints JSON, not YAML", hint="omit --json or --format")
    if arguments.inventory is not None:
        argument_checks.refuse_beside_inventory(arguments)


def _refuse_output_into_spec_directory(arguments: Namespace, host: Root, settings: Settings) -> None:
    folder = arguments.output_dir
    if arguments.output is not None:
        folder = os.path.dirname(os.path.realpath(arguments.output))
    if folder is None:
        return
    spec_dirs = {*options.spec_directories(arguments, host, settings), *settings.spec_dirs, *SPEC_DIRS}
    if os.path.realpath(folder) in {os.path.realpath(directory) for directory in spec_dirs}:
        raise ConfigError(
            f"{shown(folder)} is a spec directory: root must not mount the paths of another host's inventory",
            hint="write the spec into another folder",
        )


def _save_partition_names(
    arguments: Namespace,
    inventories: dict[str, Inventory],
    failures: dict[str, HostError],
    context: DiscoveryContext,
    settings: Settings,
) -> None:
    from cdigen.pipeline.discovery import save_partition_names  # noqa: PLC0415 - only for --write

    state_dir = options.outer_directory(context.host, settings.state_dir)
    unsaved = save_partition_names(inventories, failures, context, state_dir)
    report.print_findings(() if unsaved is None else (unsaved,), arguments)


def _reason_unready(arguments: Namespace, results: _Results) -> HostError | None:
    """Return an error if the host has no devices (with --strict, if a vendor has no devices), else None."""
    nothing = not results.specs and not results.broken
    if results.failures and (nothing or arguments.strict):
        return next(iter(results.failures.values()))
    excluded = [each for one in results.inventories.values() for each in one.accelerators if each.excluded]
    if nothing and excluded and not arguments.kind:
        return HostError(
            f"no device is left: {exclusion_problem(excluded[0].excluded)}",
            hint="'cdigen inspect' shows the row that excludes each device",
            kind="no-gpu",
        )
    if nothing:
        return HostError(
            "no GPU found" + (f" of kind {', '.join(arguments.kind)}" if arguments.kind else ""),
            hint="cdigen inspect",
            kind="no-gpu",
        )
    return None


def _stale_specs(
    arguments: Namespace, host: Root, settings: Settings, results: _Results
) -> tuple[StaleSpec, ...]:
    """Return cdigen's specs whose vendor or kind is absent or withheld; --withdraw removes these specs."""
    from cdigen.pipeline import withdraw  # noqa: PLC0415 - printing needs no store
    from cdigen.store.specs import recorded as recorded_specs  # noqa: PLC0415 - likewise

    directory = options.spec_directories(arguments, host, settings)[-1]
    state_dir = options.outer_directory(host, settings.state_dir)
    recorded, findings = recorded_specs(directory, state_dir=state_dir)
    report.print_findings(findings, arguments)
    written = {spec.kind for spec in results.specs}
    if not arguments.withdraw and written.issuperset(owned.kind for owned in recorded):
        return ()
    # A kind that only the options exclude is not stale.
    defective = generate.defective_vendors(results.broken, results.inventories)
    sound = {name: found for name, found in results.inventories.items() if name not in defective}
    vendors = discovery_options.vendor_names(arguments, settings)
    return (
        *withdraw.stale_specs(
            recorded,
            vendors=[name for name in vendors if name not in defective],
            failures=results.failures,
            offered=inventory_kinds(sound, settings.effective_profiles),
            kinds=options.kinds(arguments),
        ),
        *withdraw.withheld_specs(recorded, results.broken, directory),
    )


def _check_old_specs(
    arguments: Namespace, host: Root, settings: Settings, stale: tuple[StaleSpec, ...]
) -> tuple[Finding, ...]:
    """Return findings on the specs STALE if --withdraw is absent. These specs then stay on the disk."""
    if arguments.withdraw or not stale:
        return ()
    from cdigen.pipeline.withdraw import check_old_specs  # noqa: PLC0415 - printing needs no store

    return check_old_specs(stale, options.spec_directories(arguments, host, settings)[-1], host)


def _refuse_incomplete(arguments: Namespace, inventories: dict[str, Inventory]) -> None:
    incomplete = errors(finding for inventory in inventories.values() for finding in inventory.findings)
    if arguments.strict and incomplete:
        raise HostError(incomplete[0].message, hint=incomplete[0].hint, kind="incomplete")


def _findings(results: _Results) -> tuple[Finding, ...]:
    """Return the findings of the inventories and the generated specs, without duplicates."""
    hosts = (finding for inventory in results.inventories.values() for finding in inventory.findings)
    specs = (finding for spec in results.specs for finding in spec.findings)
    return tuple(dict.fromkeys((*hosts, *specs)))


def _write(
    arguments: Namespace, host: Root, settings: Settings, results: _Results, stale: tuple[StaleSpec, ...]
) -> list[PublishOutcome]:
    from cdigen.cli.shared.maintained import foreign_conflicts  # noqa: PLC0415 - only for --write
    from cdigen.cli.specs.outcomes import prune_views  # noqa: PLC0415 - likewise
    from cdigen.pipeline import publish, withdraw  # noqa: PLC0415 - printing needs no store

    directories = options.spec_directories(arguments, host, settings)
    state_dir = options.outer_directory(host, settings.state_dir)
    directory = directories[-1]
    prune_views(state_dir, options.known_spec_directories(arguments, host, settings), arguments)
    refused = foreign_conflicts(arguments, host, settings, results.specs) if arguments.replace_foreign else {}
    outcomes = [
        publish.refused_outcome(
            spec.kind, os.path.join(directory, spec_file_name(spec.kind)), refused[spec.kind]
        )
        if spec.kind in refused
        else publish.publish_spec(spec, directories, state_dir, replace_foreign=arguments.replace_foreign)
        for spec in results.specs
    ]
    outcomes += _broken(results, lambda kind: os.path.join(directory, spec_file_name(kind)))
    if arguments.withdraw:
        outcomes += [withdraw.withdraw_or_keep(spec, directories, state_dir) for spec in stale]
    return outcomes


def _save(arguments: Namespace, results: _Results) -> list[PublishOutcome]:
    from cdigen.cli.specs.outcomes import save_spec  # noqa: PLC0415 - printing needs no store

    output: str | None = arguments.output
    specs = results.specs
    if output is not None:
        argument_checks.require_parent("--output", output)
        specs = (_select_spec(arguments, results),) if specs else ()

    def file(kind: str) -> str:
        if output is not None:
            return os.path.abspath(output)
        name = spec_file_name(kind).removesuffix(".json")
        return os.path.abspath(f"{arguments.output_dir}/{name}.{arguments.format}")

    outcomes = [save_spec(spec, file(spec.kind), _format(arguments, spec)) for spec in specs]
    return outcomes + _broken(results, file)


def _broken(results: _Results, file: Callable[[str], str]) -> list[PublishOutcome]:
    """Return an outcome for each kind with a broken spec. FILE returns the path of a kind's spec."""
    from cdigen.pipeline.publish import refused_outcome  # noqa: PLC0415 - printing needs no store

    return [refused_outcome(kind, file(kind), error) for kind, error in results.broken.items()]


def _print(arguments: Namespace, results: _Results) -> int:
    if not results.specs:
        _raise_first(tuple(results.broken.values()))
    if arguments.json:
        report.print_json([spec.document for spec in results.specs])
    else:
        report.print_bytes(_format(arguments, _select_spec(arguments, results)))
    return report.print_errors(results.broken.values())


def _select_spec(arguments: Namespace, results: _Results) -> GeneratedSpec:
    """Return the only spec, or the default of several specs, for an output with a single document.

    If --kind is absent, the default is the spec of the GPUs. Raises ConfigError if several specs have no
    default, and SpecError if the spec of the GPUs is broken.
    """
    specs, broken = results.specs, results.broken
    kinds = [spec.kind for spec in specs]
    yielding = {spec.kind for spec in specs if spec.yields}
    gpus = [kind for kind in (*kinds, *broken) if kind.endswith(_GPUS) and kind not in yielding]
    gpus = [] if arguments.kind else gpus
    if len(gpus) == 1 and gpus[0] in broken:
        _raise_first((broken[gpus[0]], *broken.values()))
    if len(specs) == 1:
        return specs[0]
    if len(gpus) != 1:
        raise ConfigError(
            f"this host has {len(kinds)} kinds: {', '.join(kinds)}",
            hint="select a kind with --kind, or write all with --output-dir",
        )
    others = ", ".join(kind for kind in kinds if kind not in gpus)
    report.print_note(
        f"this is the spec of {gpus[0]}; the host also has {others}: select with --kind, or write all with "
        "--output-dir",
        arguments,
    )
    return specs[kinds.index(gpus[0])]


def _conclude(
    arguments: Namespace, results: _Results, outcomes: list[PublishOutcome], unready: HostError | None
) -> int:
    """Print all outcomes (with --json as one document); raise the first problem if nothing was written."""
    from cdigen.cli.specs.outcomes import print_outcome  # noqa: PLC0415 - printing specs needs no store

    for outcome in outcomes:
        print_outcome(outcome, arguments)
    printed = set(_findings(results))
    new = (finding for outcome in outcomes for finding in outcome.findings if finding not in printed)
    report.print_findings(new, arguments)
    problems: list[CdigenError] = [outcome.error for outcome in outcomes if outcome.error is not None]
    if unready is not None:
        problems.append(unready)
    if problems and all(outcome.result == "refused" for outcome in outcomes):
        _raise_first(problems)
    if arguments.json:
        report.print_json([outcome.row() for outcome in outcomes])
    return report.print_errors(problems)


def _raise_first(problems: Sequence[CdigenError]) -> NoReturn:
    # The entry point prints the raised error. With --json, the error is the only document.
    report.print_errors([error for error in problems if error.message != problems[0].message])
    raise problems[0]


def _format(arguments: Namespace, spec: GeneratedSpec) -> bytes:
    if arguments.format == "json":
        return spec.content
    import yaml  # noqa: PLC0415 - only for --format yaml

    text = yaml.safe_dump(spec.document, sort_keys=False, allow_unicode=True, width=1000)
    return str(text).encode()
