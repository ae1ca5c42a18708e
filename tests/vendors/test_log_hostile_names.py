"""Kernel log lines that begin with the name of a process: no vendor treats them as lines of a driver."""

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.values.devices import accelerator, inventory
from support.values.health_devices import health_of

from cdigen.kernellog.reading import parsed
from cdigen.model.health import LogRecord

LONGEST = 15  # TASK_COMM_LEN, without the NUL at the end
VENDORS = ("nvidia", "amd", "intel")
# The PCI addresses of the devices in the inventory.
ADDRESSES = ("0000:65:00.0", "0000:03:00.0", "0000:00:02.0")
# Lines of drivers. The tests use the first characters of each line as the name of a process.
LINES = (
    "NVRM: Xid (PCI:0000:65:00): 79, ",
    "NVRM: Xid (0000:65:00): 79, ",
    "NVRM: GPU 0000:65:00.0: RmInitAdapter failed!",
    "NVRM: GPU at 0000:65:00.0 has fallen off the bus.",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
    "NVRM: rm_init_adapter failed for device bearing minor number 0",
    "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 01",
    "nvidia 0000:65:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal)",
    "xe 0000:03:00.0: [drm] device wedged, needs recovery",
    "i915 0000:00:02.0: [drm] *ERROR* Failed to reset chip",
    "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!",
    "a 0000:03:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal)",
    "[drm] Initialized xe 1.1.0 for 0000:03:00.0 on minor 1",
)
DEVICES = tuple(
    accelerator(index, address, minor=index, pci_path=("pci0000:00", address))
    for index, address in enumerate(ADDRESSES)
)
# The kernel's texts after the name of a process. The sources are fault.c and traps.c of x86, page_alloc.c,
# oom_kill.c and drop_caches.c.
BEHIND = (
    "[812]: segfault at 0 ip 00007ffbb0d85ad8 sp 00007ffce613abb8 error 4 in libc.so.6[167ad8,7ffbb0c44000]",
    "[812] trap int3 ip:7ffbb0d85ad8 sp:7ffce613abb8 error:0",
    ": page allocation failure: order:0, mode:0x40cc0(GFP_KERNEL), nodemask=(null),cpuset=/,mems_allowed=0",
    " invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    " (812): drop_caches: 3",
    " (812) used greatest stack depth: 12345 bytes left",
)


def meanings(line: str) -> list[object]:
    """Return the results of all vendors for LINE."""
    record = parsed(f"6,1,1,-;{line}\n".encode())
    assert record is not None
    found: list[object] = []
    for vendor in VENDORS:
        line_read = LogRecord(sequence=1, at_s=1.0, text=record[2].decode())
        found += health_of(vendor).parse_log(line_read, inventory(vendor, *DEVICES))
    return found


@pytest.mark.parametrize("line", LINES)
def test_a_process_name_cannot_imitate_a_line_of_a_driver(line: str) -> None:
    for length in range(1, LONGEST + 1):
        for behind in BEHIND:
            assert meanings(line[:length] + behind) == []


@given(
    some.text(some.characters(min_codepoint=32, max_codepoint=126), max_size=LONGEST),
    some.sampled_from(BEHIND),
)
def test_a_generated_process_name_cannot_imitate_a_line_of_a_driver(name: str, behind: str) -> None:
    assert meanings(name + behind) == []


def test_vendors_parse_at_least_eight_of_the_lines_of_drivers() -> None:
    # Otherwise, the tests above would also pass for lines that no vendor parses.
    assert sum(meanings(line) != [] for line in LINES) >= 8
