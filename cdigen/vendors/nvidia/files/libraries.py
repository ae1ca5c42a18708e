"""Find the libraries of the running driver's version, in the folders of any distribution.

A library belongs to the driver if its file name contains the driver's version (``libcuda.so.550.163.01``). A
library without this version in its file name must be in the table ``LIBRARIES`` or in the driver's own list.
Its content must then contain the version. Libraries with their own version are an exception. In the
container, a library has its SONAME as the file name, because the dynamic loader searches for the SONAME.
"""

from __future__ import annotations

from cdigen.binfmt import elf, ldcache
from cdigen.host.root import is_plain, reason, shown
from cdigen.model.findings import FindingCollector
from cdigen.model.inventory import DriverFile, ProbeResult
from cdigen.model.loader import MULTIARCH
from cdigen.vendors.nvidia.files.library_names import add_links
from cdigen.vendors.nvidia.files.tables import (
    EVERY,
    LIBRARIES,
    LIBRARY32_FOLDERS,
    LIBRARY_FOLDERS,
    LIBRARY_SUBFOLDERS,
    NEUTRAL,
    XORG_MODULES,
    lib,
)
from cdigen.vendors.nvidia.kernel_module import is_version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.host.root import OpenFile, Root
    from cdigen.model.findings import Severity
    from cdigen.model.inventory import Driver, FileKind
    from cdigen.vendors.context import DiscoveryContext
    from cdigen.vendors.nvidia.files.tables import Library

LD_SO_CACHE = "/etc/ld.so.cache"
MACHINES = {
    "x86_64": (elf.EM_X86_64, ldcache.FLAGS_X86_64),
    "aarch64": (elf.EM_AARCH64, ldcache.FLAGS_AARCH64),
}

NONE_LISTED: Mapping[str, tuple[str, ...]] = {}

_BY_STEM = {library.stem: library for library in LIBRARIES}
# X.Org modules are in the same folders as libraries, but only the X server loads them. files.py finds them.
_XORG_STEMS = frozenset(file.partition(".so")[0] for file, _, _ in XORG_MODULES)


class LibrarySearch(FindingCollector):
    """The results of a search for libraries, and the problems of the search.

    ``found`` maps a SONAME to the file, the library's row in ``LIBRARIES``, and the needed SONAMEs.
    ``folders`` are the folders with found libraries. A stem is the part of a file name before ``.so``.
    """

    def __init__(
        self,
        root: Root,
        driver: Driver,
        *,
        bits: int = 64,
        listed: Mapping[str, tuple[str, ...]] = NONE_LISTED,
    ) -> None:
        super().__init__()
        self.root = root
        self.driver = driver
        self.bits = bits
        self.listed = listed
        self.kind: FileKind = "library" if bits == 64 else "library32"
        abi = MACHINES.get(driver.architecture) if bits == 64 else (elf.EM_386, ldcache.FLAGS_I386)
        # None if the architecture is not known. In this case, libraries for any machine are accepted.
        self.machine: int | None = abi[0] if abi else None
        self.cache_flags: int | None = abi[1] if abi else None
        self.found: dict[str, tuple[DriverFile, Library, tuple[str, ...]]] = {}
        self.folders: list[str] = []
        # canonical paths of the files that were read; each file is read only once
        self.read_paths: set[str] = set()
        # stem -> reason why a file was rejected
        self.refused: dict[str, str] = {}
        # (stem, path, reason) of broken files
        self.broken: list[tuple[str, str, str]] = []
        # stem -> installed versions other than the running version
        self.other_versions: dict[str, set[str]] = {}
        # existing folder that cannot be read -> reason
        self.closed: dict[str, str] = {}

    def names(self, folder: str) -> list[str]:
        """Return the names in FOLDER, or an empty list if FOLDER does not exist or cannot be read.

        The function records a folder that exists and cannot be read.
        """
        try:
            return self.root.listdir(folder)
        except OSError as error:
            self.close(folder, error)
            return []

    def close(self, folder: str, error: OSError) -> None:
        """Record that FOLDER cannot be read. Ignore errors for a path that is missing or is not a folder."""
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            self.closed.setdefault(folder, reason(error))

    def pass_over(self, stem: str, version: str) -> None:
        """Record that the library STEM is installed in VERSION, which is not the running version."""
        self.other_versions.setdefault(stem, set()).add(version)
        self.refused.setdefault(stem, f"installed only as version {version}")

    def reject(self, stem: str, path: str, message: str) -> None:
        """Record MESSAGE as the reason why the file at PATH cannot be used as the library STEM."""
        self.refused.setdefault(stem, message)
        self.broken.append((stem, path, message))


def find_libraries(
    context: DiscoveryContext,
    driver: Driver,
    *,
    bits: int = 64,
    listed: Mapping[str, tuple[str, ...]] = NONE_LISTED,
) -> LibrarySearch:
    """Return the libraries of DRIVER in the library folders.

    If several files have the same SONAME, the result contains the first file in the order of the folders. On
    x86-64, BITS can be 32 for the libraries of 32-bit programs. LISTED maps the file names in the driver's
    own list to their capabilities.
    """
    search = LibrarySearch(context.driver, driver, bits=bits, listed=listed)
    listings: list[tuple[str, list[str]]] = []
    for folder in _folders(context, search):
        names = search.names(folder)
        listings.append((folder, names))
        before = len(search.found)
        for name in names:
            _read_candidate(search, folder, name)
        if len(search.found) > before:
            search.folders.append(folder)
    for folder, names in listings:
        add_links(search, folder, names)
    _report_rejected(search)
    _report_other_versions(search)
    _report_missing_needs(search)
    return search


def searched_folders(context: DiscoveryContext, search: LibrarySearch) -> list[str]:
    """Return the existing folders that SEARCH has read, as paths on the host."""
    return [search.root.host_path(folder) for folder in _folders(context, search)]


def stale_versions(search: LibrarySearch) -> tuple[str, ...]:
    """Return the installed versions of required libraries that are not installed in the running version."""
    served = {library.stem for _, library, _ in search.found.values()}
    stale: set[str] = set()
    for library in LIBRARIES:
        if library.weight == "required" and library.stem not in served:
            stale |= search.other_versions.get(library.stem, set())
    return tuple(sorted(stale))


def library_files(search: LibrarySearch) -> tuple[DriverFile, ...]:
    """Return the files of the found libraries, sorted by path on the host."""
    return tuple(sorted((file for file, _, _ in search.found.values()), key=lambda file: file.host_path))


def library_probes(search: LibrarySearch) -> tuple[ProbeResult, ...]:
    """Return one result per library: the found files, or the reason why no file was found.

    The result contains each row of the table, and the found libraries that are not in the table.
    """
    by_stem: dict[str, list[str]] = {}
    for file, library, _ in search.found.values():
        by_stem.setdefault(library.stem, []).append(file.host_path)
    rows = [*LIBRARIES, *(lib(stem, EVERY) for stem in sorted(by_stem.keys() - _BY_STEM.keys()))]
    return tuple(
        ProbeResult(
            name=row.stem,
            kind="library",
            capabilities=row.capabilities,
            weight=row.weight,
            found=tuple(sorted(by_stem.get(row.stem, ()))),
            reason="" if row.stem in by_stem else search.refused.get(row.stem, "no such file"),
        )
        for row in rows
    )


def _folders(context: DiscoveryContext, search: LibrarySearch) -> Iterable[str]:
    """Yield the folders to search. If several paths lead to the same folder, only the first is yielded."""
    root = context.driver
    folders_to_search: list[str] = list(context.library_search_paths)
    if not folders_to_search:
        multiarch = MULTIARCH.get(search.driver.architecture, search.driver.architecture)
        folders = LIBRARY_FOLDERS if search.bits == 64 else LIBRARY32_FOLDERS
        folders_to_search = [folder.format(multiarch=multiarch) for folder in folders]
        folders_to_search.extend(_cache_folders(root, search))
    done: set[str] = set()
    for folder in folders_to_search:
        for place in (folder, *_subfolders(search, folder)):
            try:
                real = root.resolve(place)
            except OSError as error:
                search.close(place, error)
                continue
            if real not in done:
                done.add(real)
                yield place


def _subfolders(search: LibrarySearch, folder: str) -> list[str]:
    """Return NVIDIA's folders below the library folder FOLDER.

    Examples are nvidia/current, nvidia/tesla-470 and vdpau.
    """
    below: list[str] = []
    if not search.root.exists(folder):
        return below
    for name in LIBRARY_SUBFOLDERS:
        inner = f"{folder}/{name}"
        names = search.names(inner)
        if names:
            below.append(inner)
            below.extend(f"{inner}/{entry}" for entry in names if ".so" not in entry)
    return below


def _cache_folders(root: Root, search: LibrarySearch) -> list[str]:
    """Return the folders in ld.so.cache with libraries that may belong to the driver."""
    try:
        data = root.read(LD_SO_CACHE, limit=ldcache.MAX_SIZE)
        entries = ldcache.parse(data, flags=search.cache_flags)
    except FileNotFoundError:
        return []
    except (OSError, ldcache.CacheError) as error:
        where = root.host_path(LD_SO_CACHE)
        message = (
            f"{where} cannot be used: {reason(error)}; libraries that only this file lists are not found"
        )
        search.add("warning", "ld-cache-unreadable", where, message, "run 'ldconfig'")
        return []
    known = (entry.path for entry in entries if _may_be_of_driver(entry.soname))
    return list(dict.fromkeys(path.rpartition("/")[0] for path in known if path.startswith("/")))


def _may_be_of_driver(soname: str) -> bool:
    return soname.startswith("libnvidia-") or soname.partition(".so")[0] in _BY_STEM


def _read_candidate(search: LibrarySearch, folder: str, name: str) -> None:
    """Add the file NAME in FOLDER to SEARCH if the file is a library of the running driver."""
    stem, dot_so, suffix = name.partition(".so")
    if not dot_so or not stem.startswith("lib") or stem in _XORG_STEMS:
        return
    row = _BY_STEM.get(stem)
    if row is None and name in search.listed:
        row = lib(stem, search.listed[name], own_version=True)
    if suffix != f".{search.driver.version}":
        if row is None:
            return
        if is_version(suffix[1:]):
            search.pass_over(stem, suffix[1:])
            return
    path = f"{folder}/{name}"
    try:
        # Most names are symbolic links to a file that the search has already read.
        real = search.root.resolve(path)
        if real not in search.read_paths:
            with search.root.open(real) as file:
                search.read_paths.add(real)
                _read(search, file, stem, row)
    except OSError as error:
        search.reject(stem, path, f"{shown(search.root.host_path(path))} cannot be read: {reason(error)}")


def _read(search: LibrarySearch, file: OpenFile, stem: str, row: Library | None) -> None:
    """Read the library FILE, and record the library or the reason why the library cannot be used.

    ROW is the library's row of the table, or a row from the driver's list. If the library is not in the table
    and not in the list, ROW is None.
    """
    shown_path = shown(search.root.host_path(file.path))
    if not is_plain(search.root.host_path(file.path)):
        search.reject(stem, file.path, f"{shown_path} has a path with unprintable characters")
        return
    try:
        library = elf.read_shared_object(file.read_at, file.size)
    except elf.ElfError as error:
        search.reject(stem, file.path, f"{shown_path} is not a shared library: {error}")
        return
    if library.machine != (search.machine or library.machine) or library.bits != search.bits:
        # Some searched folders have libraries for other machines, such as Red Hat's 32-bit /usr/lib.
        search.refused.setdefault(stem, f"{shown_path} is for another machine")
        return
    real_name = file.path.rpartition("/")[2]
    if not _is_of_driver(search, file, real_name, stem, row):
        return
    soname = library.soname if library.soname is not None and "/" not in library.soname else real_name
    if not is_plain(soname) or soname in {"", ".", ".."}:
        search.reject(stem, file.path, f"{shown_path} has the SONAME {soname!a}, which is not a file name")
        return
    if soname.partition(".so")[0] in NEUTRAL:
        return
    row = row or _BY_STEM.get(stem) or lib(stem, EVERY)
    if soname not in search.found:
        search.found[soname] = (_driver_file(search, file, soname, row), row, library.needed)


def _is_of_driver(
    search: LibrarySearch, file: OpenFile, real_name: str, stem: str, row: Library | None
) -> bool:
    """Return whether FILE belongs to the running version of the driver.

    The file name or the content of FILE must contain the version. If ROW has ``own_version``, this is not
    necessary. A file name must not contain the version of another driver.
    """
    version = search.driver.version
    if real_name.endswith(f".so.{version}"):
        return True
    suffix = real_name.partition(".so.")[2]
    if is_version(suffix):
        search.pass_over(stem, suffix)
        return False
    # Some packages remove the version from the file name (negativo17/nvidia-driver issue 195).
    if (row is not None and row.own_version) or _contains(file, version.encode()):
        return True
    search.reject(
        stem,
        file.path,
        f"{search.root.host_path(file.path)} has no version in its name and does not contain {version}",
    )
    return False


def _contains(file: OpenFile, needle: bytes) -> bool:
    """Return whether FILE contains NEEDLE. The function reads FILE in pieces of 1 MiB."""
    offset, piece, tail = 0, 1 << 20, b""
    while block := file.read_at(offset, piece):
        if needle in tail + block:
            return True
        tail = block[-len(needle) :]
        offset += len(block)
    return False


def _driver_file(search: LibrarySearch, file: OpenFile, soname: str, row: Library) -> DriverFile:
    also = [name.format(version=search.driver.version) for name in row.also]
    return DriverFile(
        kind=search.kind,
        host_path=search.root.host_path(file.path),
        capabilities=row.capabilities,
        names=tuple(dict.fromkeys([soname, *also])),
    )


def _report_rejected(search: LibrarySearch) -> None:
    """Add findings for broken files and for folders that cannot be read.

    A broken file of a required library is an error if no usable file of this library was found. A folder that
    cannot be read is an error if no required library was found. All other findings, and all findings about
    32-bit libraries, are warnings.
    """
    served = {library.stem for _, library, _ in search.found.values()}
    required = {library.stem for library in LIBRARIES if library.weight == "required"}
    for folder, why in search.closed.items():
        where = shown(search.root.host_path(folder))
        severity: Severity = "error" if search.bits == 64 and not required & served else "warning"
        message = f"the folder {where} cannot be read: {why}"
        search.add(severity, "library-unusable", where, message, "run as root")
    for stem, path, message in search.broken:
        severity = "error" if search.bits == 64 and stem in required - served else "warning"
        where = shown(search.root.host_path(path))
        search.add(severity, "library-unusable", where, message, "reinstall the driver's packages")


def _report_other_versions(search: LibrarySearch) -> None:
    others = sorted(set().union(*search.other_versions.values()))
    if others and search.found:
        message = (
            f"libraries of driver {', '.join(others)} are installed in addition to the running driver "
            f"{search.driver.version}; cdigen ignores them"
        )
        search.add("info", "other-driver-version", shown(", ".join(search.folders)), message)


def _report_missing_needs(search: LibrarySearch) -> None:
    """Add a finding for each found library that needs a missing library of the driver."""
    served = {name for file, _, _ in search.found.values() for name in file.names}
    hint = "install the driver's package with the missing library"
    for soname, (file, _, needed) in sorted(search.found.items()):
        for name in needed:
            if name not in served and _may_be_of_driver(name):
                message = (
                    f"{soname} needs {shown(name)}, which is not installed; programs cannot load {soname}"
                )
                search.add("warning", "library-incomplete", file.host_path, message, hint)
