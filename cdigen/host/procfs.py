"""Read small files of /proc and /sys: kernel release, boot id, names of processes, majors."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

MACHINES = ("x86_64", "aarch64")
DEVICES = "/proc/devices"
# The maximum number of digits of a size in bytes.
_MAX_DIGITS = 15
# The maximum number of characters of a process name. TASK_COMM_LEN is 16, but names of kernel threads have up
# to 64 characters (fs/proc/array.c, proc_task_name).
MAX_NAME = 64


def read_text(root: Root, path: str, *, limit: int = 1 << 16) -> str:
    """Return the content of a small text file of /proc or /sys; raises OSError.

    Bytes that are not UTF-8 become U+FFFD. The parser of the file then reports the file as invalid.
    """
    return root.read(path, limit=limit).decode("utf-8", "replace")


def read_line(root: Root, path: str) -> str:
    """Return the content of a one-line file, or "" if the content is unreadable or not printable."""
    try:
        text = read_text(root, path).strip()
    except OSError:
        return ""
    return text if text.isprintable() else ""


def number_behind(prefix: str, name: str) -> int | None:
    """Return the number after PREFIX in NAME (128 in ``renderD128``), or None if there is no such number.

    Device numbers of the kernel have up to seven digits and no leading zeros.
    """
    digits = name.removeprefix(prefix)
    if not name.startswith(prefix) or not (digits.isascii() and digits.isdigit() and len(digits) <= 7):
        return None
    return int(digits) if digits == "0" or not digits.startswith("0") else None


def mib(text: str) -> int | None:
    """Return TEXT (bytes) in MiB; None if TEXT is not a number, or less than one MiB."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        return None
    return int(text) >> 20 or None


def kernel_release(root: Root) -> str:
    """Return the running kernel's release (``uname -r``), or an empty string if it is unknown.

    Many paths contain the release as a folder name. A text with a slash is not a release.
    """
    release = read_line(root, "/proc/sys/kernel/osrelease")
    return "" if "/" in release else release


def is_wsl_release(release: str) -> bool:
    """Return whether RELEASE is a kernel of WSL: ``4.4.0-19041-Microsoft``, ``5.15.90.1-microsoft-standard``.

    WSL 1 has the first form. WSL's own programs test for the same word (microsoft/WSL issue 423).
    """
    return "microsoft" in release.lower()


def boot_id(root: Root) -> str:
    """Return the kernel's boot ID (random(4)), or an empty string if there is none."""
    return read_line(root, "/proc/sys/kernel/random/boot_id")


def process_name(root: Root, pid: int) -> str:
    """Return the name of the process PID of ROOT, or "" if the process does not exist.

    A process can set its name to any bytes. Therefore, unprintable characters are replaced by ``?``.
    """
    try:
        name = read_text(root, f"/proc/{pid}/comm", limit=4 * MAX_NAME).removesuffix("\n")
    except OSError:
        return ""
    return "".join(mark if mark.isprintable() else "?" for mark in name)[:MAX_NAME]


def parse_majors(text: str) -> dict[str, int]:
    """Return the majors of character devices by driver name, from the text of /proc/devices."""
    majors: dict[str, int] = {}
    for line in text.partition("Block devices:")[0].splitlines():
        number, _, name = line.strip().partition(" ")
        if number.isascii() and number.isdigit() and len(number) <= 4 and name:
            majors.setdefault(name.strip(), int(number))
    return majors
