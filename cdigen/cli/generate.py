"""``cdigen generate``: generate the specs of this host, then print or write them."""

from __future__ import annotations

import os

from cdigen.cli import argument_checks, discovery_options, options, report
from cdigen.cli.spec_options import add_options as add_spec_options
from cdigen.cli.spec_options import delivery_options, generate_options
from cdigen.config import SPEC_DIRS
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError, HostError, SpecError
from cdigen.model.findings import errors
from cdigen.model.names import spec_file_name
from cdigen.pipeline import generate
from cdigen.pipeline.naming import offered_kinds, require_kinds
from cdigen.value import frozen

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
    from cdigen.pipeline.generate import GeneratedSpec, GenerateOptions
    from cdigen.pipeline.publish import PublishOutcome
    from cdigen.vendors.base import DiscoveryContext

EXAMPLES = """\
  cdigen generate                                print the spec
  cdigen generate --write                        write it where podman, Docker and containerd look
  cdigen generate --output-dir ./specs           write one file per kind into a folder
  cdigen generate --driver-root /run/nvidia/driver --write
                                                 the driver lies in a driver container
  cdigen generate --inventory host.json          what another host would give
  cdigen generate --target podman-4.3 --target docker-25
                                                 what both of these runtimes read
"""


# How the kind ends that a host with GPUs and other devices is asked for.
_GPUS = "/gpu"


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    where = parser.add_argument_group("where to put it").add_mutually_exclusive_group()
    where.add_argument("--write", action="store_true", help="into the last spec directory, one file per kind")
    where.add_argument("--output", metavar="FILE", type=options.not_empty, help="into FILE")
    where.add_argument(
        "--output-dir", metavar="DIR", type=options.not_empty, help="into DIR, one file per kind"
    )
    parser.add_argument(
        "--format", choices=("json", "yaml"), default="json", help="how it is written (default: json)"
    )
    parser.add_argument(
        "--replace-foreign", action="store_true", help="move a clashing spec of others aside (with --write)"
    )
    parser.add_argument(
        "--withdraw",
        action="store_true",
        help="remove our specs of vendors and kinds that are gone (with --write)",
    )
    add_spec_options(parser)
    options.add_spec_dir_option(parser)
    discovery_options.add_discovery_options(parser)
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    _refuse_odd_combinations(arguments)
    host, settings = options.host_and_settings(arguments)
    spec_options = generate_options(arguments, settings)
    names = discovery_options.vendor_names(arguments, settings)
    delivery = delivery_options(arguments, host, settings, write=arguments.write)
    if not arguments.write:
        argument_checks.note_missing_spec_directories(arguments)
    inventories, failures = _discover(arguments, host, settings, names)
    is_recorded = arguments.inventory is not None
    if not arguments.withdraw:
        asked = inventories if is_recorded else names
        require_kinds(spec_options.kinds, inventories, spec_options.profiles, names=asked)
    specs, broken = generate.generate_specs(
        inventories, host=None if is_recorded else host, options=spec_options, delivery=delivery
    )
    if arguments.write or len(specs) > 1:
        specs = _with_mount_conflicts(arguments, host, settings, specs)
    results = _Results(inventories=inventories, failures=failures, specs=specs, broken=broken)
    unready = _reason_unready(arguments, results)
    if unready is not None and not arguments.withdraw:
        if arguments.write:
            report.print_findings(_check_old_specs(arguments, host, settings, results), arguments)
        raise unready
    _refuse_incomplete(arguments, inventories)
    told = () if unready is not None else discovery_options.defects(failures)
    report.print_findings((*told, *_findings(results)), arguments)
    if arguments.write:
        outcomes = _write(arguments, host, settings, results, spec_options)
    elif arguments.output is not None or arguments.output_dir is not None:
        outcomes = _save(arguments, results)
    else:
        return _print(arguments, results)
    return _conclude(arguments, results, outcomes, unready)


def _with_mount_conflicts(
    arguments: Namespace, host: Root, settings: Settings, specs: tuple[GeneratedSpec, ...]
) -> tuple[GeneratedSpec, ...]:
    """Return SPECS with what there is to say of kinds that cover each other's mounts."""
    from cdigen.pipeline.publish import with_mount_conflicts  # noqa: PLC0415 - one spec to print needs none of it

    directories = options.spec_directories(arguments, host, settings) if arguments.write else ()
    return with_mount_conflicts(specs, directories, host if arguments.inventory is None else None)


def _discover(
    arguments: Namespace, host: Root, settings: Settings, names: tuple[str, ...]
) -> tuple[dict[str, Inventory], dict[str, HostError]]:
    """Read the document that was given, or the host, whose missing nodes are made where that is allowed."""
    if arguments.inventory is not None:
        _refuse_output_into_spec_directory(arguments, host, settings)
        return discovery_options.read_inventory(arguments.inventory, names), {}
    context = discovery_options.context(arguments, host, settings)
    argument_checks.require_sources(arguments, context)
    if settings.create_nodes and arguments.write:
        from cdigen.pipeline.device_nodes import make_nodes  # noqa: PLC0415 - only where it is allowed

        report.print_findings(make_nodes(names, context), arguments)
        context = discovery_options.context(arguments, host, settings)
    inventories, failures = discovery_options.discover(arguments, settings, context)
    if arguments.write:
        _remember(arguments, inventories, failures, context, settings)
    return inventories, failures


@frozen
class _Results:
    # What was found, by vendor, and what was made of it.
    inventories: dict[str, Inventory]
    failures: dict[str, HostError]
    specs: tuple[GeneratedSpec, ...]
    broken: dict[str, SpecError]


def _refuse_odd_combinations(arguments: Namespace) -> None:
    for option, is_given in (
        ("--replace-foreign", arguments.replace_foreign),
        ("--withdraw", arguments.withdraw),
    ):
        if is_given and not arguments.write:
            raise ConfigError(f"{option} has no meaning without --write", hint="see 'cdigen generate --help'")
    if arguments.write and arguments.inventory is not None:
        raise ConfigError(
            "--inventory and --write exclude each other: a document from elsewhere must not become mounts "
            "by root",
            hint="print it, or use --output",
        )
    if arguments.write and arguments.format != "json":
        raise ConfigError(
            "--write writes JSON only",
            hint="YAML reads unquoted names such as 0 as numbers; use --output for it",
        )
    is_printed = not arguments.write and arguments.output is None and arguments.output_dir is None
    if is_printed and arguments.json and arguments.format != "json":
        raise ConfigError("--json prints JSON, not YAML", hint="leave --json or --format away")
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
            f"{shown(folder)} is a spec directory: the spec of an inventory from elsewhere must not become "
            "mounts by root",
            hint="write it into another folder",
        )


def _remember(
    arguments: Namespace,
    inventories: dict[str, Inventory],
    failures: dict[str, HostError],
    context: DiscoveryContext,
    settings: Settings,
) -> None:
    from cdigen.pipeline.discovery import save_partition_names  # noqa: PLC0415 - the store is not for printing

    state_dir = options.outer_directory(context.host, settings.state_dir)
    unsaved = save_partition_names(inventories, failures, context, state_dir)
    report.print_findings(() if unsaved is None else (unsaved,), arguments)


def _reason_unready(arguments: Namespace, results: _Results) -> HostError | None:
    """Return the error of a host that has nothing to give, or with --strict of a vendor that has not."""
    nothing = not results.specs and not results.broken
    if results.failures and (nothing or arguments.strict):
        return next(iter(results.failures.values()))
    if nothing:
        return HostError(
            "there is no GPU to make a spec for"
            + (f" of kind {', '.join(arguments.kind)}" if arguments.kind else ""),
            hint="see 'cdigen inspect'",
            kind="no-gpu",
        )
    return None


def _check_old_specs(
    arguments: Namespace, host: Root, settings: Settings, results: _Results
) -> tuple[Finding, ...]:
    """Return whether the specs that stay on disk because a vendor is not ready still hold."""
    from cdigen.pipeline.withdraw import check_old_specs  # noqa: PLC0415 - the store is not for printing

    directory = options.spec_directories(arguments, host, settings)[-1]
    state_dir = options.outer_directory(host, settings.state_dir)
    asked = discovery_options.vendor_names(arguments, settings)
    vendors = tuple(name for name in asked if name not in results.inventories)
    return check_old_specs(directory, state_dir, host, vendors=vendors)


def _refuse_incomplete(arguments: Namespace, inventories: dict[str, Inventory]) -> None:
    incomplete = errors(finding for inventory in inventories.values() for finding in inventory.findings)
    if arguments.strict and incomplete:
        raise HostError(incomplete[0].message, hint=incomplete[0].hint, kind="incomplete")


def _findings(results: _Results) -> tuple[Finding, ...]:
    """Return what there is to say before anything is written, each thing once."""
    hosts = (finding for inventory in results.inventories.values() for finding in inventory.findings)
    specs = (finding for spec in results.specs for finding in spec.findings)
    return tuple(dict.fromkeys((*hosts, *specs)))


def _write(
    arguments: Namespace, host: Root, settings: Settings, results: _Results, spec_options: GenerateOptions
) -> list[PublishOutcome]:
    from cdigen.cli.outcomes import prune_views  # noqa: PLC0415 - likewise
    from cdigen.pipeline import publish, withdraw  # noqa: PLC0415 - the store is not for printing
    from cdigen.store.specs import recorded as recorded_specs  # noqa: PLC0415 - likewise

    directories = options.spec_directories(arguments, host, settings)
    state_dir = options.outer_directory(host, settings.state_dir)
    directory = directories[-1]
    prune_views(state_dir, options.known_spec_directories(arguments, host, settings), arguments)
    outcomes = [
        publish.publish_spec(spec, directories, state_dir, replace_foreign=arguments.replace_foreign)
        for spec in results.specs
    ]
    outcomes += _broken(results, lambda kind: os.path.join(directory, spec_file_name(kind)))
    if arguments.withdraw:
        recorded, findings = recorded_specs(directory, state_dir=state_dir)
        report.print_findings(findings, arguments)
        # What the configuration offers but the options left out is not gone.
        defective = generate.defective_vendors(results.broken, results.inventories)
        sound = {name: found for name, found in results.inventories.items() if name not in defective}
        lost = withdraw.stale_specs(
            recorded,
            vendors=[
                name for name in discovery_options.vendor_names(arguments, settings) if name not in defective
            ],
            failures=results.failures,
            offered=offered_kinds(sound, settings.offered_profiles),
            wanted=spec_options.kinds,
        )
        outcomes += [withdraw.withdraw_spec(spec, directory, state_dir) for spec in lost]
    return outcomes


def _save(arguments: Namespace, results: _Results) -> list[PublishOutcome]:
    from cdigen.cli.outcomes import save_spec  # noqa: PLC0415 - the store is not for printing

    output: str | None = arguments.output
    specs = results.specs
    if output is not None:
        argument_checks.require_parent("--output", output)
        specs = (_chosen(arguments, results),) if specs else ()

    def file(kind: str) -> str:
        if output is not None:
            return os.path.abspath(output)
        name = spec_file_name(kind).removesuffix(".json")
        return os.path.abspath(f"{arguments.output_dir}/{name}.{arguments.format}")

    outcomes = [save_spec(spec, file(spec.kind), _formatted(arguments, spec)) for spec in specs]
    return outcomes + _broken(results, file)


def _broken(results: _Results, file: Callable[[str], str]) -> list[PublishOutcome]:
    """Return the outcomes of the kinds whose specs are broken; FILE tells where each would have gone."""
    from cdigen.pipeline.publish import refused_outcome  # noqa: PLC0415 - the store is not for printing

    return [refused_outcome(kind, file(kind), error) for kind, error in results.broken.items()]


def _print(arguments: Namespace, results: _Results) -> int:
    if not results.specs:
        _raise_first(tuple(results.broken.values()))
    if arguments.json:
        report.print_json([spec.document for spec in results.specs])
    else:
        report.print_bytes(_formatted(arguments, _chosen(arguments, results)))
    return report.print_errors(results.broken.values())


def _chosen(arguments: Namespace, results: _Results) -> GeneratedSpec:
    """Return what goes where one document can: the only kind, else the GPUs where no kind was named.

    Raises ConfigError where the kinds are as good as each other, SpecError where the GPUs' spec is broken.
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
            hint="choose one with --kind, or write them with --output-dir",
        )
    others = ", ".join(kind for kind in kinds if kind not in gpus)
    report.print_note(
        f"this is {gpus[0]}; the host has {others} as well: choose with --kind or take all with --output-dir",
        arguments,
    )
    return specs[kinds.index(gpus[0])]


def _conclude(
    arguments: Namespace, results: _Results, outcomes: list[PublishOutcome], unready: HostError | None
) -> int:
    """Say what became of everything, as one document with --json; raises where nothing at all was done."""
    from cdigen.cli.outcomes import print_outcome  # noqa: PLC0415 - the store is not for printing

    for outcome in outcomes:
        print_outcome(outcome, arguments)
    said = set(_findings(results))
    met = (finding for outcome in outcomes for finding in outcome.findings if finding not in said)
    report.print_findings(met, arguments)
    problems: list[CdigenError] = [outcome.error for outcome in outcomes if outcome.error is not None]
    if unready is not None:
        problems.append(unready)
    if problems and all(outcome.result == "refused" for outcome in outcomes):
        _raise_first(problems)
    if arguments.json:
        report.print_json([outcome.row() for outcome in outcomes])
    return report.print_errors(problems)


def _raise_first(problems: Sequence[CdigenError]) -> NoReturn:
    # The entry point prints the one that is raised, with --json as the only document.
    report.print_errors([error for error in problems if error.message != problems[0].message])
    raise problems[0]


def _formatted(arguments: Namespace, spec: GeneratedSpec) -> bytes:
    if arguments.format == "json":
        return spec.content
    import yaml  # noqa: PLC0415 - only where it is asked for

    text = yaml.safe_dump(spec.document, sort_keys=False, allow_unicode=True, width=1000)
    return str(text).encode()
