"""Read the version, the flavour (open, proprietary) and the architecture of the loaded nvidia kernel module.

The formats are from NVIDIA's README of the driver, "The /proc file system interface", and from real drivers
550 and 580. In both flavours, the line with the version begins with ``NVRM version:``. Examples of the
following text are
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
    """Return the running driver; raise HostError if no driver is loaded or its version file is invalid."""
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
            f"{VERSION_FILE} cannot be read: {reason(error)}", hint=remedy(error), kind="driver-not-loaded"
        ) from error
    driver = parse_version(text)
    if driver is None:
        raise HostError(
            f"{VERSION_FILE} contains no driver version: {text[:80].strip()!r}",
            hint="reload the module: 'rmmod nvidia && modprobe nvidia'",
            kind="driver-not-loaded",
        )
    return driver


def remedy(error: OSError) -> str:
    """Return the next step for ERROR, which a read of a file in /proc raised."""
    if error.errno in {EACCES, EPERM}:
        return "run as root"
    return "see 'findmnt -R /proc' for mounts over the kernel's own files"


def unusable_file(path: str, problem: str, consequence: str, error: OSError | None = None) -> Finding:
    """Return the finding that the file PATH in /proc has no usable content."""
    return Finding(
        severity="warning",
        rule="kernel-file-unusable",
        path=path,
        message=f"{path} {problem}; {consequence}",
        hint=remedy(error) if error else f"see 'cat {path}'; the kernel generates the content at each read",
    )


def parse_lines(text: str) -> dict[str, str]:
    """Return the names and values of the ``Name: value`` lines in TEXT, the content of a file in /proc.

    Other lines are ignored. If a name occurs twice, the first line applies.
    """
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip().isprintable() and value.strip().isprintable():
            values.setdefault(name.strip(), value.strip())
    return values


def parse_numbers(text: str) -> dict[str, int]:
    """Return the names and values of the lines in TEXT with a whole number of up to ten digits."""
    return {
        name: int(value)
        for name, value in parse_lines(text).items()
        if value.isascii() and value.isdigit() and len(value) <= 10
    }


def parse_version(text: str) -> Driver | None:
    """Return the driver in the text of /proc/driver/nvidia/version, or None if there is no version.

    If TEXT does not contain the architecture, the result contains the architecture of this machine.
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
    """Return whether TEXT is a UUID in the driver's format.

    The format is KIND, a hyphen, and groups of 8, 4, 4, 4 and 12 hexadecimal digits with hyphens between
    them.
    """
    return re.fullmatch(f"{kind}-[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}", text) is not None
