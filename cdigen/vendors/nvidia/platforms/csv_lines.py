"""Parse the lines of a Tegra's lists: ``lib, /usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1``.

NVIDIA's Jetson Linux installs them as /etc/nvidia-container-runtime/host-files-for-container.d/*.csv.
Format: libnvidia-container, design/mount_plugins.md; nvidia-container-toolkit,
internal/platform-support/tegra/csv: type and path around the first comma, so a path may hold commas.
Paths hold wildcards where the numbers differ from board to board (``/dev/dri/card*``).
"""

from __future__ import annotations

from cdigen.host.root import is_plain, shown
from cdigen.model.findings import Finding
from cdigen.value import frozen

KINDS = ("dev", "dir", "lib", "sym")
MAX_PATH = 4095  # PATH_MAX less its NUL
# A file that is something else altogether is not repeated line by line.
MAX_FINDINGS = 20


@frozen
class CsvEntry:
    """One line: the path, what it is (``dev``, ``dir``, ``lib``, ``sym``), and file and line as ``where``."""

    kind: str
    path: str
    where: str


def parse(text: str, file: str) -> tuple[tuple[CsvEntry, ...], tuple[Finding, ...]]:
    """Return the entries of the list FILE with the content TEXT, and a finding for each line that is none.

    Blank lines and comments (``#``) are skipped. Paths come without double slashes and ``.``.
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
            findings.append(_unknown(where, f"{where} is passed over: {problem}"))
        else:
            more += 1
    if more:
        findings.append(_unknown(file, f"{file} has {more} more such lines"))
    return tuple(entries), tuple(findings)


def _problem(kind: str, path: str) -> str:
    """Return what is wrong with a line, or nothing."""
    if kind not in KINDS:
        return f"the type {shown(kind[:40])!r} is none of {', '.join(KINDS)}"
    parts = path.split("/")
    if not path.startswith("/"):
        return f"{shown(path[:80])!r} is not an absolute path"
    if not is_plain(path) or len(path.encode()) > MAX_PATH:
        return "its path is longer than any path, or holds control characters"
    if ".." in parts:
        return f"{shown(path[:80])!r} holds '..'"
    if not any(part not in {"", "."} for part in parts):
        return "the root folder cannot be mounted"
    return ""


def _unknown(path: str, message: str) -> Finding:
    return Finding(
        severity="warning",
        rule="csv-line-unknown",
        path=path,
        message=message,
        hint="the lists come with Jetson Linux (nvidia-l4t-init); undo what was changed in them",
    )
