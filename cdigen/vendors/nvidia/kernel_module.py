"""Read the version, flavour and machine of the loaded nvidia kernel module.

Formats: NVIDIA's README of the driver, "The /proc file system interface", and real 550 and 580
drivers. Both flavours of the module begin with ``NVRM version:``:
``NVIDIA UNIX x86_64 Kernel Module  550.163.01  <date>`` and
``NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (...)  <date>``.
"""

from __future__ import annotations

import os
import re
from errno import EACCES, EPERM

from cdigen.host.procfs import MACHINES, read_text
from cdigen.host.root import reason
from cdigen.model.errors import HostError
from cdigen.model.findings import Finding
from cdigen.model.inventory import Driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

VERSION_FILE = "/proc/driver/nvidia/version"


def read_driver(host: Root) -> Driver:
    """Read which driver runs; raises HostError where none does or its files make no sense."""
    try:
        text = read_text(host, VERSION_FILE)
    except (FileNotFoundError, NotADirectoryError):
        raise HostError(
            f"the NVIDIA kernel module is not loaded: {VERSION_FILE} does not exist",
            hint="load it with 'modprobe nvidia'; if that fails, install the driver for this kernel",
            kind="driver-not-loaded",
        ) from None
    except OSError as error:
        raise HostError(
            f"{VERSION_FILE} cannot be read: {reason(error)}",
            hint=remedy(error),
            kind="driver-not-loaded",
        ) from error
    driver = parse_version(text)
    if driver is None:
        raise HostError(
            f"{VERSION_FILE} names no driver version: {text[:80].strip()!r}",
            hint="reload the module: 'rmmod nvidia && modprobe nvidia'",
            kind="driver-not-loaded",
        )
    return driver


def remedy(error: OSError) -> str:
    """Return what to do about a file of the kernel that cannot be read."""
    if error.errno in {EACCES, EPERM}:
        return "run as root"
    return "see with 'findmnt -R /proc' what lies over the kernel's own files"


def unusable_file(path: str, problem: str, consequence: str, error: OSError | None = None) -> Finding:
    """Return the finding that a small file of the kernel is there and tells nothing."""
    return Finding(
        severity="warning",
        rule="kernel-file-unusable",
        path=path,
        message=f"{path} {problem}; {consequence}",
        hint=remedy(error) if error else f"see 'cat {path}'; the kernel writes it anew at each reading",
    )


def parse_lines(text: str) -> dict[str, str]:
    """Return the ``Name: value`` lines of one of the module's files; other lines are passed over."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip().isprintable() and value.strip().isprintable():
            values.setdefault(name.strip(), value.strip())
    return values


def parse_numbers(text: str) -> dict[str, int]:
    """Return those of the ``Name: value`` lines that have a whole number of up to ten digits."""
    return {
        name: int(value)
        for name, value in parse_lines(text).items()
        if value.isascii() and value.isdigit() and len(value) <= 10
    }


def parse_version(text: str) -> Driver | None:
    """Return the driver that the text of /proc/driver/nvidia/version names, or None.

    Where the text does not name the machine, this process's own is taken.
    """
    for line in text.splitlines():
        label, colon, rest = line.partition(":")
        if not colon or label.strip() != "NVRM version":
            continue
        words = rest.split()
        versions = [word for word in words if is_version(word)]
        if not versions:
            return None
        machines = [word for word in words if word in MACHINES]
        return Driver(
            version=versions[0],
            flavour="open" if "Open" in words else "proprietary",
            architecture=machines[0] if machines else os.uname().machine,
        )
    return None


def is_version(word: str) -> bool:
    """Return whether WORD has the form of a driver version: 470.256.02, 580.65, 550.163.01."""
    return re.fullmatch(r"[0-9]{3}(\.[0-9]{1,4}){1,2}", word) is not None


def is_uuid(text: str, kind: str = "GPU") -> bool:
    """Return whether TEXT is a UUID as the driver spells it: KIND, a hyphen and 8-4-4-4-12 digits."""
    return re.fullmatch(f"{kind}-[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}", text) is not None
