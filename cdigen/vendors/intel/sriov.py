"""SR-IOV: which function is a virtual one, of which, and its number.

A physical function has ``virtfn<N>`` for each virtual one, and that has ``physfn`` (the kernel's
Documentation/ABI/testing/sysfs-bus-pci). To its driver a virtual function is a GPU like any other, and so
it is to containers; the physical one goes on serving, too, with what its driver has left itself.
"""

from __future__ import annotations

from cdigen.host.sysfs import pci_address
from cdigen.value import frozen
from cdigen.vendors.intel.pci import link_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.host.root import Root
    from cdigen.model.findings import FindingCollector
    from cdigen.vendors.intel.pci import PciFunction


@frozen
class VirtualFunction:
    """A virtual function: the address of its physical one, and its number, None where /sys does not tell."""

    parent: str
    number: int | None


def virtual_functions(
    host: Root, functions: Iterable[PciFunction], collector: FindingCollector
) -> Mapping[str, VirtualFunction]:
    """Return which of FUNCTIONS are virtual ones, by address; a link that leads nowhere is a finding."""
    found: dict[str, VirtualFunction] = {}
    every = tuple(functions)
    for physical in every:
        for name in physical.entries:
            digits = name.removeprefix("virtfn")
            if digits != name and digits.isascii() and digits.isdigit() and len(digits) <= 5:
                address = pci_address(link_name(host, f"{physical.folder}/{name}"))
                if address:
                    found[address] = VirtualFunction(parent=physical.address, number=int(digits))
    for function in every:
        if "physfn" not in function.entries or function.address in found:
            continue
        path = f"{function.folder}/physfn"
        parent = pci_address(link_name(host, path))
        if parent:
            found[function.address] = VirtualFunction(parent=parent, number=None)
            continue
        message = (
            f"{path} leads to no PCI device; {function.word} is served as if it were no virtual function"
        )
        collector.add("warning", "sysfs-link-broken", path, message, "see 'lspci -vv' and 'dmesg'")
    return found
