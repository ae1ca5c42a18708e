"""Parse the lines in the file lists of a Tegra board.

An example of a line is ``lib, /usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1``. NVIDIA's Jetson Linux
installs the lists as /etc/nvidia-container-runtime/host-files-for-container.d/*.csv. The sources of the
format are libnvidia-container (design/mount_plugins.md) and nvidia-container-toolkit
(internal/platform-support/tegra/csv). The first comma separates the type and the path. Therefore, a path may
contain commas. If a number in a path differs between boards, the path contains a wildcard
(``/dev/dri/card*``).
"""

from __future__ import annotations

from cdigen.host.root import is_plain, shown
from cdigen.model.findings import Finding
from cdigen.value import frozen

KINDS = ("dev", "dir", "lib", "sym")
MAX_PATH = 4095  # PATH_MAX without the NUL byte
# The maximum number of findings about the lines of one list.
MAX_FINDINGS = 20


@frozen
class CsvEntry:
    """A line of a list.

    ``kind`` is the type (``dev``, ``dir``, ``lib`` or ``sym``). ``where`` is the file and the line number.
    """

    kind: str
    path: str
    where: str


def parse(text: str, file: str) -> tuple[tuple[CsvEntry, ...], tuple[Finding, ...]]:
    """Return the entries of the list FILE with the content TEXT, and the findings for invalid lines.

    Blank lines and comments (``#``) are ignored. The paths in the entries have no double slashes and no
    ``.``.
    """
    entries: list[CsvEntry] = []
    findings: list[Finding] = []
    more = 0
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        where = f"{file}:{number}"
        kind, _, path = (part.strip() for part in stripped.partition(","))
        problem = _problem(kind, path)
        if not problem:
            parts = (part for part in path.split("/") if part not in {"", "."})
            entries.append(CsvEntry(kind=kind, path="/" + "/".join(parts), where=where))
        elif len(findings) < MAX_FINDINGS:
            findings.append(_unknown(where, f"{where} is ignored: {problem}"))
        else:
            more += 1
    if more:
        findings.append(_unknown(file, f"{file} has {more} more invalid lines"))
    return tuple(entries), tuple(findings)


def _problem(kind: str, path: str) -> str:
    """Return the problem of a line with KIND and PATH, or an empty string."""
    if kind not in KINDS:
        return f"unknown type {shown(kind[:40])!r} (known: {', '.join(KINDS)})"
    parts = path.split("/")
    if not path.startswith("/"):
        return f"{shown(path[:80])!r} is not an absolute path"
    if not is_plain(path) or len(path.encode()) > MAX_PATH:
        return "the path is too long, or contains unprintable characters"
    if ".." in parts:
        return f"{shown(path[:80])!r} contains '..'"
    if not any(part not in {"", "."} for part in parts):
        return "the root folder cannot be mounted"
    return ""


def _unknown(path: str, message: str) -> Finding:
    return Finding(
        severity="warning",
        rule="csv-line-unknown",
        path=path,
        message=message,
        hint="undo changes in the lists of Jetson Linux (package nvidia-l4t-init)",
    )
