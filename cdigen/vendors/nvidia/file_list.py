"""Read the driver's own list of its files for containers, ``sandboxutils-filelist.json``: ``read``.

NVIDIA's README of the driver names it ("Installed Components"), and not its form. That is taken from those
who read real ones (kata-containers pull request 13427, and VM runtimes that share a host's driver): a list of
objects with ``name`` (a file's name, perhaps below a folder), ``type`` (LIB, BINARY, FIRMWARE, ...) and
``category`` (cuda, egl, ...); one file may be named more than once. It only adds to the tables, which have
the last word on what they know; what is not of this form is passed over, and so is what is not named as
NVIDIA names its own: no list makes the host's libc or shell the driver's.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from cdigen.host.root import reason, shown
from cdigen.model.findings import Finding
from cdigen.value import frozen
from cdigen.vendors.nvidia.tables import CATEGORIES, CONFIG_FOLDERS, EVERY, LIBRARY_NAMES, PROGRAM_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.vendors.base import DiscoveryContext

PATH = "nvidia/files.d/sandboxutils-filelist.json"
# Bounds of ours: drivers have under 200 files.
MAX_SIZE = 1 << 20
MAX_FILES = 2000


@frozen
class FileList:
    """Names of files, each with the capabilities that it serves; ``findings`` say why there are none."""

    libraries: dict[str, tuple[str, ...]]
    binaries: dict[str, tuple[str, ...]]
    findings: tuple[Finding, ...] = ()


def read(context: DiscoveryContext) -> FileList:
    """Read the list; a host without one has an empty one."""
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
                message=f"{where}, the driver's list of its files, cannot be used: {reason(error)}; what "
                "cdigen knows of the driver has to do",
            )
            return FileList(libraries={}, binaries={}, findings=(finding,))
    return FileList(libraries={}, binaries={})


def parse(data: bytes) -> FileList:
    """Return what the list DATA names; raises ValueError where it is of another form."""
    import json  # noqa: PLC0415 - drivers before 570 have no such list

    try:
        entries = json.loads(data)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    named: dict[str, dict[str, set[str]]] = {"LIB": {}, "BINARY": {}}
    for entry in entries if isinstance(entries, list) else ():
        match entry:
            case {"name": str(name), "type": ("LIB" | "BINARY") as kind, "category": [*categories]}:
                file = name.rpartition("/")[2]
                if file.isprintable() and _is_named_as_nvidias(file):
                    wanted = named[kind].setdefault(file, set())
                    wanted.update(word for each in categories for word in CATEGORIES.get(str(each), ()))
    if not named["LIB"]:
        raise ValueError("it names no library in a form that is known")
    files = sum(map(len, named.values()))
    if files > MAX_FILES:
        raise ValueError(f"it names {files} files, more than {MAX_FILES}")
    return FileList(libraries=_sorted(named["LIB"]), binaries=_sorted(named["BINARY"]))


def _is_named_as_nvidias(file: str) -> bool:
    return any(fnmatchcase(file, pattern) for pattern in (*LIBRARY_NAMES, *PROGRAM_NAMES))


def _sorted(named: dict[str, set[str]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(sorted(words)) or EVERY for name, words in sorted(named.items())}
