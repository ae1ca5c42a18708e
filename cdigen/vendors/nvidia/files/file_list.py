"""Read the driver's own list of its files for containers, ``sandboxutils-filelist.json`` (``read``).

NVIDIA's README of the driver mentions the list ("Installed Components"), but does not describe the format.
cdigen expects the format that other software reads in real lists (kata-containers pull request 13427, and VM
runtimes that share a host's driver).

The list contains objects with ``name`` (file name, possibly with a folder), ``type`` (LIB, BINARY, FIRMWARE,
...) and ``category`` (cuda, egl, ...). The same file may be in several objects. cdigen searches for these
files in addition to the files in its own tables. If a file is also in a table, the capabilities in the table
apply. cdigen ignores objects in an unknown format, and files whose names match neither LIBRARY_NAMES nor
PROGRAM_NAMES (``tables``). Therefore, a list cannot add the host's libc or shell.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from cdigen.host.root import reason, shown
from cdigen.model.findings import Finding
from cdigen.value import frozen
from cdigen.vendors.nvidia.files.tables import CATEGORIES, CONFIG_FOLDERS, EVERY, LIBRARY_NAMES, PROGRAM_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.vendors.context import DiscoveryContext

PATH = "nvidia/files.d/sandboxutils-filelist.json"
# cdigen's own limits, in bytes and files. Drivers have fewer than 200 files.
MAX_SIZE = 1 << 20
MAX_FILES = 2000


@frozen
class FileList:
    """The files in the driver's own list.

    ``libraries`` and ``binaries`` map file names to capabilities. If the list cannot be used, ``findings``
    has the reason.
    """

    libraries: dict[str, tuple[str, ...]]
    binaries: dict[str, tuple[str, ...]]
    findings: tuple[Finding, ...] = ()


def read(context: DiscoveryContext) -> FileList:
    """Return the files in the driver's own list. If the host has no list, the result is empty."""
    root = context.driver
    for folder in context.config_search_paths or CONFIG_FOLDERS:
        path = f"{folder}/{PATH}"
        try:
            return parse(root.read(path, limit=MAX_SIZE))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError, RecursionError) as error:
            where = shown(root.host_path(path))
            finding = Finding(
                severity="info",
                rule="file-list-unreadable",
                path=where,
                message=f"{where}, the driver's list of its files, cannot be used: {reason(error)}; "
                "cdigen uses its own tables",
            )
            return FileList(libraries={}, binaries={}, findings=(finding,))
    return FileList(libraries={}, binaries={})


def parse(data: bytes) -> FileList:
    """Return the files in the list DATA; raise ValueError if DATA has an unknown format."""
    import json  # noqa: PLC0415 - drivers before 570 have no such list

    try:
        entries = json.loads(data)
    except ValueError as error:
        raise ValueError(f"the content is not JSON: {error}") from None
    names = (*LIBRARY_NAMES, *PROGRAM_NAMES)
    named: dict[str, dict[str, set[str]]] = {"LIB": {}, "BINARY": {}}
    for entry in entries if isinstance(entries, list) else ():
        match entry:
            case {"name": str(name), "type": ("LIB" | "BINARY") as kind, "category": [*categories]}:
                file = name.rpartition("/")[2]
                if file.isprintable() and any(fnmatchcase(file, pattern) for pattern in names):
                    capabilities = named[kind].setdefault(file, set())
                    capabilities.update(word for each in categories for word in CATEGORIES.get(str(each), ()))
    if not named["LIB"]:
        raise ValueError("the list contains no library in a known format")
    files = sum(map(len, named.values()))
    if files > MAX_FILES:
        raise ValueError(f"the list contains {files} files, more than {MAX_FILES}")
    return FileList(libraries=_sorted(named["LIB"]), binaries=_sorted(named["BINARY"]))


def _sorted(named: dict[str, set[str]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(sorted(words)) or EVERY for name, words in sorted(named.items())}
