"""``cdigen generate``: compute the specs of this host, then print or write them."""

from __future__ import annotations

import os

from cdigen import reconcile
from cdigen.cli import options, report
from cdigen.cli.wishes import add_options as add_wishes
from cdigen.cli.wishes import wishes
from cdigen.config import SPEC_DIRS
from cdigen.model.errors import ConfigError, HostError, SpecError
from cdigen.model.findings import errors
from cdigen.model.names import spec_file_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cdigen.config import Settings
    from cdigen.host.root import Root
    from cdigen.model.inventory import Inventory
    from cdigen.reconcile import Product

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


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    where = parser.add_argument_group("where to put it").add_mutually_exclusive_group()
    where.add_argument("--write", action="store_true", help="into the last spec directory, one file per kind")
    where.add_argument("--output", metavar="FILE", help="into FILE")
    where.add_argument("--output-dir", metavar="DIR", help="into DIR, one file per kind")
    parser.add_argument(
        "--format", choices=("json", "yaml"), default="json", help="of what is printed or written"
    )
    parser.add_argument(
        "--replace-foreign", action="store_true", help="move a clashing spec of others aside (with --write)"
    )
    parser.add_argument(
        "--withdraw", action="store_true", help="remove our spec of a vendor that is gone (with --write)"
    )
    add_wishes(parser)
    options.add_spec_dir_option(parser)
    options.add_discovery_options(parser)
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    _refuse_odd_combinations(arguments)
    host, settings = options.host_and_settings(arguments)
    wished = wishes(arguments, settings)
    names = options.vendor_names(arguments, settings)
    failures: dict[str, HostError] = {}
    if arguments.inventory is not None:
        _refuse_output_into_spec_directory(arguments, host, settings)
        inventories = options.recorded(arguments.inventory, names)
        products, broken = reconcile.produce(inventories, host=None, wishes=wished)
    else:
        places = options.places(arguments, host, settings)
        if settings.create_nodes and arguments.write:
            report.say(reconcile.make_nodes(names, places), arguments)
            places = options.places(arguments, host, settings)
        inventories, failures = reconcile.discover(names, places)
        products, broken = reconcile.produce(inventories, host=host, wishes=wished)
    _give_up_if_nothing(arguments, products, broken, failures, inventories)
    for product in products:
        report.say(product.findings, arguments)
    if arguments.write:
        _write(arguments, host, settings, products, failures)
    elif arguments.output_dir is not None:
        _save_each(arguments, products)
    else:
        _print_or_save(arguments, products)
    if broken:
        raise broken[0]
    return 0


def _refuse_odd_combinations(arguments: Namespace) -> None:
    for option, given in (
        ("--replace-foreign", arguments.replace_foreign),
        ("--withdraw", arguments.withdraw),
    ):
        if given and not arguments.write:
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


def _refuse_output_into_spec_directory(arguments: Namespace, host: Root, settings: Settings) -> None:
    folder = arguments.output_dir
    if arguments.output is not None:
        folder = os.path.dirname(os.path.realpath(arguments.output))
    if folder is None:
        return
    spec_dirs = {*options.spec_directories(arguments, host, settings), *settings.spec_dirs, *SPEC_DIRS}
    if os.path.realpath(folder) in {os.path.realpath(directory) for directory in spec_dirs}:
        raise ConfigError(
            f"{folder} is a spec directory: the spec of an inventory from elsewhere must not become mounts "
            "by root",
            hint="write it into another folder",
        )


def _give_up_if_nothing(
    arguments: Namespace,
    products: tuple[Product, ...],
    broken: tuple[SpecError, ...],
    failures: dict[str, HostError],
    inventories: dict[str, Inventory],
) -> None:
    """Raise the error of a host that has nothing to give, or with --strict of one that lacks something."""
    if not products and broken:
        raise broken[0]
    if failures and (arguments.strict or not products):
        if arguments.write and arguments.withdraw:
            return
        raise next(iter(failures.values()))
    if not products:
        raise HostError(
            "there is no GPU to make a spec for"
            + (f" of kind {', '.join(arguments.kind)}" if arguments.kind else ""),
            hint="see 'cdigen inspect'",
            kind="no-gpu",
        )
    incomplete = errors(finding for inventory in inventories.values() for finding in inventory.findings)
    if arguments.strict and incomplete:
        raise HostError(incomplete[0].message, hint=incomplete[0].hint, kind="incomplete")


def _write(
    arguments: Namespace,
    host: Root,
    settings: Settings,
    products: tuple[Product, ...],
    failures: dict[str, HostError],
) -> None:
    from cdigen.cli.publish import publish, withdraw  # noqa: PLC0415 - the store is not for printing

    directories = options.spec_directories(arguments, host, settings)
    state_dir = options.outer_directory(host, settings.state_dir)
    rows = [publish(product, directories, state_dir, arguments) for product in products]
    if arguments.withdraw:
        rows.extend(
            withdraw(name, error, directories, state_dir, arguments) for name, error in failures.items()
        )
    if arguments.json:
        report.print_json(rows)
    if failures and not products:
        raise next(iter(failures.values()))


def _save_each(arguments: Namespace, products: tuple[Product, ...]) -> None:
    from cdigen.cli.publish import save  # noqa: PLC0415 - the store is not for printing

    directory = os.path.abspath(arguments.output_dir)
    for product in products:
        name = spec_file_name(product.kind)
        if arguments.format == "yaml":
            name = name.removesuffix(".json") + ".yaml"
        save(os.path.join(directory, name), _formatted(arguments, product), arguments)


def _print_or_save(arguments: Namespace, products: tuple[Product, ...]) -> None:
    if arguments.json:
        documents = [product.document for product in products]
        if arguments.output is None:
            report.print_json(documents)
            return
    if len(products) > 1:
        raise ConfigError(
            f"this host has {len(products)} kinds: {', '.join(product.kind for product in products)}",
            hint="choose one with --kind, or write them with --output-dir",
        )
    content = _formatted(arguments, products[0])
    if arguments.output is None:
        report.print_bytes(content)
        return
    from cdigen.cli.publish import save  # noqa: PLC0415 - the store is not for printing

    save(os.path.abspath(arguments.output), content, arguments)


def _formatted(arguments: Namespace, product: Product) -> bytes:
    if arguments.format == "json":
        return product.content
    import yaml  # noqa: PLC0415 - only where it is asked for

    text = yaml.safe_dump(product.document, sort_keys=False, allow_unicode=True, width=1000)
    return str(text).encode()
