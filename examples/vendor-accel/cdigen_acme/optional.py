"""The optional members of Acme's vendor: resources, health, labels and links.

The fictional kernel module writes the state of an NPU into the file ``state`` of its folder, and reports
faults and resets in the kernel log. The file ``links`` lists the NPUs that are connected by Acme's links.
"""

from __future__ import annotations

from cdigen.host.procfs import read_line, read_text
from cdigen.host.sysfs import pci_key
from cdigen.model.health import CauseRule, HealthSample, Symptom
from cdigen.model.inventory import Link
from cdigen.model.saved import GpuLinks
from cdigen.value import replace
from cdigen.vendors.base import ResourceNames, VendorLinks
from cdigen.vendors.health import VendorHealth
from cdigen.vendors.kernel import driver_lines
from cdigen.vendors.kernel.driver_lines import Line
from cdigen.vendors.kernel.pci import health as pci_health
from cdigen.vendors.labels import label_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.health import LogRecord, Recovery
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.context import DiscoveryContext
    from cdigen.vendors.labels import Label, LabelSource

MODULE = "acme_npu"
DRIVER = f"/sys/bus/pci/drivers/{MODULE}"
DEVICE_CLASS = "npu"
FAILED, HUNG = "acme-npu-failed", "acme-npu-hung"
# What each line of the module means. The text follows "acme_npu 0000:41:00.0: ".
LINES = (
    Line(drivers=(MODULE,), begins=r"engine \d+ hung", cause=HUNG),
    Line(drivers=(MODULE,), begins="reset done", clears="reset"),
)

# Pods request NPUs by this resource. Without RESOURCES, the resource has the name of the CDI kind.
RESOURCES = (
    ResourceNames(device_class=DEVICE_CLASS, name="acme.example/npu-v1", memory_gb=lambda _model: 16),
)


CAUSES = (
    CauseRule(
        cause=FAILED,
        cleared_by=("gone", "reload"),
        clears_when="the driver reports another state, or is loaded again",
        meaning="The driver reports that the NPU has failed.",
        reference="Acme's driver guide, state",
    ),
    CauseRule(
        cause=HUNG,
        cleared_by=("reset", "reload"),
        clears_when="the NPU is reset, or its driver is loaded again",
        meaning="An engine of the NPU does not respond.",
        reference="Acme's driver guide, log messages",
    ),
    *pci_health.PCI_CAUSES,
)


def check(context: DiscoveryContext, inventory: Inventory) -> HealthSample:
    """Return the health according to the files of the PCI bus and of the driver."""
    sample = pci_health.check(context, inventory)
    found = tuple(
        Symptom(cause=FAILED, address=address, detail=f"{DRIVER}/{address}/state is failed")
        for address in sample.covered
        if read_line(context.host, f"{DRIVER}/{address}/state") == "failed"
    )
    return replace(sample, symptoms=(*sample.symptoms, *found))


def parse_log(record: LogRecord, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
    """Return the symptoms and recoveries in RECORD of the kernel log."""
    return driver_lines.parse_log(record, LINES) or pci_health.parse_log(record, inventory)


def labels(source: LabelSource) -> list[Label]:
    """Return the labels of a node with the advertised NPUs of SOURCE."""
    npus = source.whole_devices(DEVICE_CLASS)
    if not npus:
        return []
    return [
        ("acme.example/npu.count", str(len(npus))),
        ("acme.example/npu.product", label_value(npus[0].model)),
    ]


def read_links(context: DiscoveryContext, inventory: Inventory) -> tuple[tuple[GpuLinks, ...], bool]:
    """Return the links of INVENTORY's NPUs, and whether all files could be read.

    Each line in the file ``links`` has the address of another NPU and the number of links.
    """
    found: list[GpuLinks] = []
    is_complete = True
    for npu in inventory.accelerators:
        try:
            rows = [
                line.split() for line in read_text(context.host, f"{DRIVER}/{npu.address}/links").splitlines()
            ]
        except OSError:
            rows, is_complete = [], False
        links = tuple(
            Link(peer=row[0], technology="acmelink", count=int(row[1]))
            for row in rows
            if len(row) == 2 and pci_key(row[0]) and row[1].isdecimal() and len(row[1]) < 4
        )
        found.append(GpuLinks(address=npu.address, links=links, island=""))
    return tuple(found), is_complete


# ``probe`` is left out, because no library must be queried.
HEALTH = VendorHealth(
    causes=CAUSES,
    modules=(MODULE,),
    check=check,
    parse_log=parse_log,
    parse_uevents=pci_health.parse_uevents,
)
LINKS = VendorLinks(min_gpus=2, read=read_links)
