"""Find the driver's files other than libraries: binaries, firmware, data files, X modules, sockets.

Each function goes through one table and returns what it found together with what it looked for.
"""

from __future__ import annotations

import os
import stat
from fnmatch import fnmatchcase

from cdigen.host.root import is_plain, reason, shown
from cdigen.model.findings import FindingCollector
from cdigen.model.inventory import DriverFile, ProbeResult
from cdigen.model.loader import MULTIARCH
from cdigen.vendors.kernel.modules import firmware_folders
from cdigen.vendors.nvidia.libraries import NONE_LISTED
from cdigen.vendors.nvidia.tables import (
    BINARIES,
    BINARY_FOLDERS,
    COMPUTE,
    CONFIG_FOLDERS,
    CONFIGS,
    DISPLAY,
    EVERY,
    NIXOS_BINARIES,
    NIXOS_FIRMWARE,
    NO_BINARY,
    SOCKETS,
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
    from cdigen.vendors.base import DiscoveryContext


def find_files(
    context: DiscoveryContext,
    driver: Driver,
    library_folders: tuple[str, ...],
    listed: Mapping[str, tuple[str, ...]] = NONE_LISTED,
) -> tuple[list[DriverFile], list[ProbeResult], list[Finding]]:
    """Look for everything but libraries.

    LIBRARY_FOLDERS are those in which libraries were found: a driver that was put into a folder
    of its own (``/opt/nvidia/lib64``) has its binaries and data beside them. LISTED are programs that the
    driver itself says are its own, with the capabilities that they serve.
    """
    prefixes = _own_prefixes(library_folders)
    searches = (
        _find_binaries(context, prefixes, listed),
        _find_firmware(context, driver),
        _find_configs(context, driver, prefixes),
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
    """Return the prefixes of library folders outside the system's: ``/opt/nvidia`` of its lib64."""
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
            # Arch and Fedora have made /usr/sbin a link to bin.
            folder = context.driver.resolve(hit[0].rpartition("/")[0])
            target = "/usr/sbin" if folder.endswith("sbin") else "/usr/bin"
            search.take(hit[1], capabilities, (f"{target}/{name}",))
    return search


def _program_paths(root: Root, folders: tuple[str, ...], name: str) -> Iterable[str]:
    """Yield where the program NAME may be.

    NixOS makes its programs load libraries from its store, which a container lacks; the unchanged
    one is kept beside (nixpkgs, nvidia-x11/builder.sh).
    """
    for folder in folders:
        path = f"{folder}/{name}"
        if folder == NIXOS_BINARIES and root.exists(path):
            yield root.resolve(path).replace("/bin/", "/origBin/")
        yield path


def _find_firmware(context: DiscoveryContext, driver: Driver) -> FileSearch:
    search = FileSearch(context.driver, "firmware")
    wanted = f"nvidia/{driver.version}/gsp*.bin"
    found = []
    for folder in (*firmware_folders(context.host), NIXOS_FIRMWARE):
        for name in context.driver.names(f"{folder}/nvidia/{driver.version}"):
            path = f"{folder}/nvidia/{driver.version}/{name}"
            if fnmatchcase(name, "gsp*.bin") and (real := search.check(path, stat.S_ISREG)):
                search.take(real, EVERY, (f"/lib/firmware/nvidia/{driver.version}/{name}",))
                found.append(context.driver.host_path(real))
        if found:
            break
    search.sought(wanted, EVERY, found)
    return search


def _find_configs(context: DiscoveryContext, driver: Driver, prefixes: tuple[str, ...]) -> FileSearch:
    root = context.driver
    folders = context.config_search_paths or (
        *CONFIG_FOLDERS,
        *(f"{prefix}{below}" for prefix in prefixes for below in ("/share", "/etc", "")),
    )
    search = FileSearch(root, "config")
    for path, target, capabilities in CONFIGS:
        wanted = path.format(version=driver.version, architecture=driver.architecture)
        below, _, pattern = wanted.rpartition("/")
        taken: dict[str, str] = {}
        for folder in folders:
            names = root.names(f"{folder}/{below}") if "*" in pattern else [pattern]
            for name in names:
                if name in taken or (name != pattern and not fnmatchcase(name, pattern)):
                    continue
                real = search.check(f"{folder}/{below}/{name}", stat.S_ISREG)
                if real:
                    taken[name] = root.host_path(real)
                    search.take(real, capabilities, (f"{target}/{name}",))
        search.sought(wanted, capabilities, taken.values())
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
            names = (name, link) if link else (name,)
            search.take(
                hit[1], DISPLAY, tuple(f"{top}/{below}/{each}" for top in XORG_TARGETS for each in names)
            )
    return search


def _links_to(root: Root, paths: list[str], name: str) -> list[str]:
    """Return those of PATHS that are files of their own, or links to a file NAME.

    Debian's link without a version may lead to another driver's file.
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
    """Look at the pipe directory of the Multi-Process Service, if one is configured.

    Anyone can plant a folder in /tmp: it counts only if no link leads there and root or the
    configured user owns it.
    """
    path = context.mps_pipe_dir
    search = FileSearch(context.driver, "pipe")
    if not path:
        return search
    if real := search.check(path, stat.S_ISDIR):
        owner = context.driver.stat(path).st_uid
        if real != path.rstrip("/"):
            search.broken(path, "is reached through a link")
        elif owner not in {0, context.mps_uid}:
            search.broken(path, f"belongs to the user {owner}, not to root or mps_uid")
        else:
            search.take(real, COMPUTE, (real,))
            search.sought(path, COMPUTE, [context.driver.host_path(real)])
            return search
    search.sought(path, COMPUTE, [])
    return search


class FileSearch(FindingCollector):
    """One table's search: what was taken, what was looked for, what was wrong, with CONSEQUENCE and HINT."""

    def __init__(
        self,
        root: Root,
        kind: FileKind,
        consequence: str = "it is left out",
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

    def take(self, real: str, capabilities: tuple[str, ...], targets: tuple[str, ...]) -> None:
        """Record the file REAL for the container paths TARGETS."""
        host_path = self._root.host_path(real)
        self.files.append(
            DriverFile(kind=self._kind, host_path=host_path, capabilities=capabilities, targets=targets)
        )

    def sought(self, name: str, capabilities: tuple[str, ...], found: Iterable[str]) -> None:
        """Record that NAME was looked for, and the host paths where it was found."""
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
        self,
        name: str,
        capabilities: tuple[str, ...],
        paths: Iterable[str],
        is_right: Callable[[int], bool],
    ) -> tuple[str, str] | None:
        """Return the first of PATHS that is right, and where it leads; record the search for NAME."""
        for path in paths:
            real = self.check(path, is_right)
            if real:
                self.sought(name, capabilities, [self._root.host_path(real)])
                return path, real
        self.sought(name, capabilities, [])
        return None

    def check(self, path: str, is_right: Callable[[int], bool]) -> str | None:
        """Return where PATH leads if that is right; else None, with a finding where it is broken."""
        try:
            real, status = self._root.located(path)
        except (FileNotFoundError, NotADirectoryError):
            if self._is_link(path):
                self.broken(path, "is a link that leads nowhere")
            return None
        except OSError as error:
            self.broken(path, f"cannot be read: {reason(error)}")
            return None
        if not is_right(status.st_mode):
            self.broken(path, f"is not what it should be (mode {status.st_mode:o})")
            return None
        if stat.S_ISREG(status.st_mode) and not status.st_size:
            self.broken(path, "is empty")
            return None
        if not is_plain(self._root.host_path(real)) or not is_plain(path):
            self.broken(path, "has or leads to a path that a spec cannot hold")
            return None
        return real

    def _is_link(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        try:
            return stat.S_ISLNK(
                os.lstat(self._root.outer_path(self._root.directory(folder)) + f"/{name}").st_mode
            )
        except OSError:
            return False

    def broken(self, path: str, problem: str) -> None:
        """Record that what is at PATH cannot be used."""
        where = shown(self._root.host_path(path))
        self._refused = f"{where} {problem}"
        message = f"{where} {problem}; {self._consequence}"
        self.add("warning", "file-unusable", where, message, self._hint)


def _is_executable(mode: int) -> bool:
    return stat.S_ISREG(mode) and bool(mode & 0o111)
