"""Find the driver's files other than libraries: programs, firmware, data files, X modules and sockets.

Each ``_find`` function searches for the files of one table. It returns a ``FileSearch`` with the found files
and the result of each search.
"""

from __future__ import annotations

import stat
from fnmatch import fnmatchcase

from cdigen.host.root import is_plain, reason, shown
from cdigen.model.findings import FindingCollector
from cdigen.model.inventory import DriverFile, ProbeResult
from cdigen.model.loader import MULTIARCH
from cdigen.vendors.kernel.modules import firmware_folders
from cdigen.vendors.nvidia.files.libraries import NONE_LISTED
from cdigen.vendors.nvidia.files.tables import (
    BINARIES,
    BINARY_FOLDERS,
    COMPUTE,
    CONFIG_FOLDERS,
    CONFIGS,
    CONFIGS32,
    DISPLAY,
    EVERY,
    NGX,
    NIXOS_BINARIES,
    NIXOS_FIRMWARE,
    NO_BINARY,
    SOCKETS,
    WINE_FOLDER,
    XORG_FOLDERS,
    XORG_MODULES,
    XORG_TARGETS,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Driver, FileKind
    from cdigen.vendors.context import DiscoveryContext


def find_files(
    context: DiscoveryContext,
    driver: Driver,
    library_folders: tuple[str, ...],
    listed: Mapping[str, tuple[str, ...]] = NONE_LISTED,
) -> tuple[list[DriverFile], list[ProbeResult], list[Finding]]:
    """Return the driver's files except libraries, the search results and the findings.

    LIBRARY_FOLDERS are the folders in which libraries were found. If such a folder belongs only to the driver
    (``/opt/nvidia/lib64``), the function also searches the folders next to it. LISTED maps the programs in
    the driver's own list to their capabilities.
    """
    prefixes = _own_prefixes(library_folders)
    searches = (
        _find_binaries(context, prefixes, listed),
        _find_firmware(context, driver),
        _find_configs(context, driver, prefixes, FileSearch(context.driver, "config"), CONFIGS),
        *(
            [_find_configs(context, driver, prefixes, FileSearch(context.driver, "config32"), CONFIGS32)]
            if context.compat32
            else []
        ),
        _find_wine_libraries(context, library_folders),
        _find_xorg_modules(context, driver),
        _find_sockets(context),
        _find_mps(context),
    )
    return (
        [file for search in searches for file in search.files],
        [thing for search in searches for thing in search.probes],
        [finding for search in searches for finding in search.findings],
    )


def _own_prefixes(library_folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return the parent folders of LIBRARY_FOLDERS, except the system folders / and /usr.

    Library folders with other names than lib and lib64 are ignored. For example, the result for
    ``/opt/nvidia/lib64`` is ``/opt/nvidia``.
    """
    prefixes = []
    for folder in library_folders:
        prefix, _, name = folder.rpartition("/")
        if name in {"lib", "lib64"} and prefix not in {"", "/usr"}:
            prefixes.append(prefix)
    return tuple(dict.fromkeys(prefixes))


def _find_binaries(
    context: DiscoveryContext, prefixes: tuple[str, ...], listed: Mapping[str, tuple[str, ...]]
) -> FileSearch:
    folders = context.binary_search_paths or (*BINARY_FOLDERS, *(f"{prefix}/bin" for prefix in prefixes))
    search = FileSearch(context.driver, "binary")
    known = {NO_BINARY, *(name for name, _ in BINARIES)}
    for name, capabilities in (*BINARIES, *(pair for pair in listed.items() if pair[0] not in known)):
        paths = _program_paths(context.driver, folders, name)
        hit = search.first(name, capabilities, paths, _is_executable)
        if hit:
            # In Arch and Fedora, /usr/sbin is a symbolic link to bin.
            folder = context.driver.resolve(hit[0].rpartition("/")[0])
            target = "/usr/sbin" if folder.endswith("sbin") else "/usr/bin"
            search.take(hit[1], capabilities, (f"{target}/{name}",))
    return search


def _program_paths(root: Root, folders: tuple[str, ...], name: str) -> Iterable[str]:
    """Yield the possible paths of the program NAME.

    NixOS patches the programs so that they load libraries from the store of NixOS. Containers do not have
    this store. The unpatched program is in the folder ``origBin`` next to ``bin`` (nixpkgs,
    nvidia-x11/builder.sh).
    """
    for folder in folders:
        path = f"{folder}/{name}"
        if folder == NIXOS_BINARIES and root.exists(path):
            yield root.resolve(path).replace("/bin/", "/origBin/")
        yield path


def _find_firmware(context: DiscoveryContext, driver: Driver) -> FileSearch:
    search = FileSearch(context.driver, "firmware")
    pattern = f"nvidia/{driver.version}/gsp*.bin"
    found = []
    for folder in (*firmware_folders(context.host), NIXOS_FIRMWARE):
        for name in context.driver.names(f"{folder}/nvidia/{driver.version}"):
            path = f"{folder}/nvidia/{driver.version}/{name}"
            if fnmatchcase(name, "gsp*.bin") and (real := search.check(path, stat.S_ISREG)):
                search.take(real, EVERY, (f"/lib/firmware/nvidia/{driver.version}/{name}",))
                found.append(context.driver.host_path(real))
        if found:
            break
    search.record_search(pattern, EVERY, found)
    return search


def _find_configs(
    context: DiscoveryContext,
    driver: Driver,
    prefixes: tuple[str, ...],
    search: FileSearch,
    table: tuple[tuple[str, str, tuple[str, ...]], ...],
) -> FileSearch:
    root = context.driver
    folders = context.config_search_paths or (
        *CONFIG_FOLDERS,
        *(f"{prefix}{below}" for prefix in prefixes for below in ("/share", "/etc", "")),
    )
    for path, target, capabilities in table:
        pattern_path = path.format(version=driver.version, architecture=driver.architecture)
        below, _, pattern = pattern_path.rpartition("/")
        files_by_name: dict[str, str] = {}
        for folder in folders:
            names = root.names(f"{folder}/{below}") if "*" in pattern else [pattern]
            for name in names:
                if name in files_by_name or (name != pattern and not fnmatchcase(name, pattern)):
                    continue
                real = search.check(f"{folder}/{below}/{name}", stat.S_ISREG)
                if real:
                    files_by_name[name] = root.host_path(real)
                    search.take(real, capabilities, (f"{target}/{name}",))
        search.record_search(pattern_path, capabilities, files_by_name.values())
    return search


def _find_wine_libraries(context: DiscoveryContext, library_folders: tuple[str, ...]) -> FileSearch:
    """Return the search for NGX's libraries for Wine, in the first of LIBRARY_FOLDERS that has them."""
    search = FileSearch(context.driver, "library")
    found: list[str] = []
    for folder in library_folders:
        for name in context.driver.names(f"{folder}/{WINE_FOLDER}"):
            path = f"{folder}/{WINE_FOLDER}/{name}"
            if name.endswith(".dll") and (real := search.check(path, stat.S_ISREG)):
                search.take(real, NGX, (), names=(f"{WINE_FOLDER}/{name}",))
                found.append(context.driver.host_path(real))
        if found:
            break
    search.record_search(f"{WINE_FOLDER}/*.dll", NGX, found)
    return search


def _find_xorg_modules(context: DiscoveryContext, driver: Driver) -> FileSearch:
    search = FileSearch(context.driver, "module")
    multiarch = MULTIARCH.get(driver.architecture, driver.architecture)
    for file, below, link in XORG_MODULES:
        name = file.format(version=driver.version)
        folders = [folder.format(multiarch=multiarch) for folder in XORG_FOLDERS]
        paths = [path for folder in folders for path in (f"{folder}/{name}", f"{folder}/{below}/{name}")]
        if link:
            paths.extend(_links_to(context.driver, [f"{folder}/{below}/{link}" for folder in folders], name))
        hit = search.first(name, DISPLAY, paths, stat.S_ISREG)
        if hit:
            path, real = hit
            names = (name, link) if link else (name,)
            targets = [f"{top}/{below}/{each}" for top in XORG_TARGETS for each in names]
            own = [f"{path.rpartition('/')[0]}/{each}" for each in names]
            search.take(real, DISPLAY, tuple(dict.fromkeys([*targets, *own])))
    return search


def _links_to(root: Root, paths: list[str], name: str) -> list[str]:
    """Return the existing paths in PATHS, except symbolic links to a file with another name than NAME.

    For example, Debian's link without a version may lead to a file of another driver.
    """
    found = [(path, root.resolve(path).rpartition("/")[2]) for path in paths if root.exists(path)]
    return [path for path, real in found if real in {name, path.rpartition("/")[2]}]


def _find_sockets(context: DiscoveryContext) -> FileSearch:
    search = FileSearch(context.driver, "socket")
    for name, capabilities in SOCKETS:
        paths = (f"{folder}/{name}" for folder in ("/run", "/var/run"))
        hit = search.first(name, capabilities, paths, stat.S_ISSOCK)
        if hit:
            search.take(hit[1], capabilities, (f"/run/{name}",))
    return search


def _find_mps(context: DiscoveryContext) -> FileSearch:
    """Return the search for the configured pipe directory of MPS, or an empty search if none is configured.

    The folder is used only if its path contains no symbolic link, and its owner is root or the configured
    user. The reason for this check is that any user can create a folder in /tmp.
    """
    path = context.mps_pipe_dir
    search = FileSearch(context.driver, "pipe")
    if not path:
        return search
    if real := search.check(path, stat.S_ISDIR):
        owner = context.driver.stat(path).st_uid
        if real != path.rstrip("/"):
            search.broken(path, "has a symbolic link in its path")
        elif owner not in {0, context.mps_uid}:
            search.broken(path, f"belongs to the user {owner}, not to root or mps_uid")
        else:
            search.take(real, COMPUTE, (real,))
            search.record_search(path, COMPUTE, [context.driver.host_path(real)])
            return search
    search.record_search(path, COMPUTE, [])
    return search


class FileSearch(FindingCollector):
    """The search for the files of one table.

    ``files`` are the found files. ``probes`` has one result for each searched name. Each finding has
    CONSEQUENCE in its message, and HINT as its hint.
    """

    def __init__(
        self,
        root: Root,
        kind: FileKind,
        consequence: str = "the file is left out",
        hint: str = "reinstall the driver's packages",
    ) -> None:
        super().__init__()
        self._root = root
        self._kind = kind
        self._consequence = consequence
        self._hint = hint
        self.files: list[DriverFile] = []
        self.probes: list[ProbeResult] = []
        self._refused = ""

    def take(
        self,
        real: str,
        capabilities: tuple[str, ...],
        targets: tuple[str, ...],
        names: tuple[str, ...] = (),
    ) -> None:
        """Record the file REAL as a found file, with the paths TARGETS in the container.

        NAMES are paths below a library folder of the container.
        """
        self.files.append(
            DriverFile(
                kind=self._kind,
                host_path=self._root.host_path(real),
                capabilities=capabilities,
                names=names,
                targets=targets,
            )
        )

    def record_search(self, name: str, capabilities: tuple[str, ...], found: Iterable[str]) -> None:
        """Record the result of the search for NAME. FOUND are the host paths of the found files."""
        paths = tuple(found)
        self.probes.append(
            ProbeResult(
                name=name,
                kind=self._kind,
                capabilities=capabilities,
                weight="optional",
                found=paths,
                reason="" if paths else self._refused or "no such file",
            )
        )
        self._refused = ""

    def first(
        self, name: str, capabilities: tuple[str, ...], paths: Iterable[str], is_right: Callable[[int], bool]
    ) -> tuple[str, str] | None:
        """Return the first path in PATHS with a usable file, and the real path of the file.

        IS_RIGHT checks the file's type. If no file is usable, the result is None. The function records the
        result of the search for NAME.
        """
        for path in paths:
            real = self.check(path, is_right)
            if real:
                self.record_search(name, capabilities, [self._root.host_path(real)])
                return path, real
        self.record_search(name, capabilities, [])
        return None

    def check(self, path: str, is_right: Callable[[int], bool]) -> str | None:
        """Return the real path of PATH (all links resolved) if its file is usable, else None.

        If the file exists and is not usable, the function adds a finding.
        """
        try:
            real, status = self._root.located(path)
        except (FileNotFoundError, NotADirectoryError):
            if self._root.is_link(path):
                self.broken(path, "is a link without an existing target")
            return None
        except OSError as error:
            self.broken(path, f"cannot be read: {reason(error)}")
            return None
        if not is_right(status.st_mode):
            self.broken(path, f"has the wrong type or permissions (mode {status.st_mode:o})")
            return None
        if stat.S_ISREG(status.st_mode) and not status.st_size:
            self.broken(path, "is empty")
            return None
        if not is_plain(self._root.host_path(real)) or not is_plain(path):
            self.broken(path, "has or leads to a path with unprintable characters")
            return None
        return real

    def broken(self, path: str, problem: str) -> None:
        """Add a finding that the file at PATH cannot be used because of PROBLEM."""
        where = shown(self._root.host_path(path))
        self._refused = f"{where} {problem}"
        message = f"{where} {problem}; {self._consequence}"
        self.add("warning", "file-unusable", where, message, self._hint)


def _is_executable(mode: int) -> bool:
    return stat.S_ISREG(mode) and bool(mode & 0o111)
