"""The command ``cdigen topology``: the links between devices, in the form of 'nvidia-smi topo -m'."""

from __future__ import annotations

import sys
from itertools import combinations

from cdigen.cli.shared import argument_checks, discovery_options, options, report
from cdigen.cli.shared.daemon_files import daemon_inventory
from cdigen.cli.shared.option_table import add
from cdigen.host.root import shown
from cdigen.model.strict import as_json
from cdigen.pipeline.driver import links
from cdigen.store import plainfiles
from cdigen.topology.levels import islands
from cdigen.topology.matrix import devices_of, matrix, text
from cdigen.vendors.kernel.pci.place import read_nics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from cdigen.config import Settings
    from cdigen.host.root import Root
    from cdigen.model.inventory import Inventory
    from cdigen.topology.matrix import Matrix, MatrixDevice
    from cdigen.vendors.kernel.pci.place import Nic

EXAMPLES = """\
  cdigen topology                      the matrix of all GPUs and network cards
  cdigen topology --json               the same as JSON, with folders in /sys and health
  cdigen topology --svg topology.svg   a picture of the topology
  cdigen topology --inventory FILE     the matrix of another host ('cdigen inspect --json')
"""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    discovery_options.add_discovery_options(parser)
    add(parser, "--svg")


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    host, settings = options.host_and_settings(arguments)
    names = discovery_options.vendor_names(arguments, settings)
    inventories = _inventories(arguments, host, settings, names)
    nics = () if arguments.inventory is not None else read_nics(host)
    devices = devices_of({name: inventories[name] for name in names if name in inventories})
    found = matrix(devices, nics)
    if arguments.svg is not None:
        _draw(arguments, devices)
    if arguments.json:
        report.print_json(_document(found))
    elif devices and arguments.svg is None:
        report.write(sys.stdout, text(found, header_as=lambda line: report.paint(line, "4", sys.stdout)))
    if not devices:
        report.print_note("no device found: see 'cdigen inspect'", arguments)
    return 0


def _draw(arguments: Namespace, devices: tuple[MatrixDevice, ...]) -> None:
    from cdigen.topology.svg import picture  # noqa: PLC0415 - only with --svg

    plainfiles.save_file(arguments.svg, picture(devices).encode())
    report.print_note(f"picture written to {shown(arguments.svg)}", arguments)


def _inventories(
    arguments: Namespace, host: Root, settings: Settings, names: tuple[str, ...]
) -> dict[str, Inventory]:
    """Return the inventories of --inventory or of the daemon, with the links between devices.

    If no daemon runs, the inventories are from a discovery of the host. The same applies if the daemon's
    inventory describes a different driver version.
    """
    if arguments.inventory is not None:
        argument_checks.refuse_beside_inventory(arguments)
        return discovery_options.read_inventory(arguments.inventory, names)
    known = daemon_inventory(host, settings)
    stale = [f"{name}: {known.stale[name]}" for name in names if name in known.stale]
    if not known.problem and not stale:
        return {name: own for name in names if (own := known.of(name)[0]) is not None}
    for problem in stale:
        report.print_note(f"{problem}; reading the host instead", arguments)
    context = discovery_options.context(arguments, host, settings)
    inventories = discovery_options.usable_inventories(arguments, settings, context)
    return links.refresh_links(links.with_known_links(inventories, context), lambda: context)[0]


def _document(found: Matrix) -> dict[str, Any]:
    labels = found.labels
    pairs = [
        (labels[one], labels[other], found.relations[one][other])
        for one, other in combinations(range(len(labels)), 2)
    ]
    accelerators = tuple(device.accelerator for device in found.devices)
    return {
        "devices": [_device(device) for device in found.devices],
        "nics": [_nic(label, nic) for label, nic in found.nics],
        "links": [
            {
                "between": [one, other],
                "level": relation.cell,
                "path": relation.path,
                "technology": relation.technology,
                "count": relation.count,
            }
            for one, other, relation in pairs
        ],
        "islands": [[labels[place] for place in island] for island in islands(accelerators)],
    }


def _device(device: MatrixDevice) -> dict[str, Any]:
    gpu = device.accelerator
    return {
        "label": device.label,
        "vendor": device.vendor,
        "class": gpu.device_class,
        "index": gpu.index,
        "address": gpu.address,
        "uuid": gpu.uuid,
        "model": gpu.model,
        "usable": gpu.usable,
        "pci_path": list(gpu.pci_path),
        "numa_node": gpu.numa_node,
        "cpus": gpu.cpus,
        "island": gpu.island,
        "health": gpu.health,
        "causes": as_json(gpu.causes),
    }


def _nic(label: str, nic: Nic) -> dict[str, Any]:
    return {
        "label": label,
        "name": nic.name,
        "address": nic.address,
        "pci_path": list(nic.pci_path),
        "numa_node": nic.numa_node,
    }
