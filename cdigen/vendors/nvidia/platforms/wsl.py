"""Read a WSL2 host, where Windows drives the GPUs and programs reach them by /dev/dxg: ``discover``.

Windows shows WSL two folders: /usr/lib/wsl/lib, with
libdxcore and small libraries that programs load (libcuda.so.1), and below /usr/lib/wsl/drivers its
driver store, a folder per driver package, with the libraries that do the work. The small ones ask
dxcore for the store's folder, which is the host's: so its files have to be at the same path.

Sources: libnvidia-container, src/dxcore.c; nvidia-container-toolkit 1.20, pkg/nvcdi/driver-wsl.go.
"""

from __future__ import annotations

import os
import re

from cdigen.binfmt import elf
from cdigen.host.root import is_plain, reason, shown
from cdigen.model.errors import HostError
from cdigen.model.findings import FindingCollector
from cdigen.model.inventory import Driver, DriverFile, Group, GroupDevice, Inventory, ProbeResult
from cdigen.value import frozen
from cdigen.vendors.nvidia.kernel_module import is_version
from cdigen.vendors.nvidia.nodes import NvidiaNodeReader
from cdigen.vendors.nvidia.platforms import DXCORE, WSL_LIBRARIES, WSL_NODE, listed_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.inventory import FileKind, HostNode, Weight
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.vendors.nvidia.platforms.listed_files import ListedFile

STORES = "/usr/lib/wsl/drivers"
LIBCUDA = "libcuda.so.1.1"
LOADER = "libcuda_loader.so"
PROGRAM = "nvidia-smi"
PROGRAM_TARGET = "/usr/bin/nvidia-smi"

# What NVIDIA's tools mount of the store by name; the last two came with drivers of 2023.
STORE_FILES: tuple[tuple[str, Weight], ...] = (
    (LIBCUDA, "required"),
    (LOADER, "core"),
    ("libnvidia-ptxjitcompiler.so.1", "core"),
    ("libnvidia-ml.so.1", "core"),
    ("libnvidia-ml_loader.so", "core"),
    (PROGRAM, "core"),
    ("libnvdxgdmal.so.1", "optional"),
    ("nvcubins.bin", "optional"),
)
# The rest of it by kind: nvidia-container-toolkit pull request 1890.
STORE_ENDINGS = (".bin", ".dll")

ARCHITECTURES = {elf.EM_X86_64: "x86_64", elf.EM_AARCH64: "aarch64"}

# libcuda_loader.so, which is compared as a whole, has some 200 KB.
MAX_LOADER = 8 << 20
# The version stands in the first section of an INF file; the whole of it has megabytes.
INF_HEAD = 1 << 16


@frozen
class DriverStore:
    """A folder of the driver store that holds NVIDIA's CUDA driver."""

    folder: str
    libcuda: ListedFile


def discover(context: DiscoveryContext) -> Inventory:
    """Read what Windows shows: there is one device, ``all``, since dxcore offers no part of the GPUs.

    Raises HostError with the kinds no-nodes, driver-not-found and driver-broken.
    """
    node = _read_node(context)
    reader = _Reader(context.driver)
    reader.require_dxcore()
    store = reader.choose_store()
    files = reader.files(store)
    version = reader.version(store)
    architecture = ARCHITECTURES.get(store.libcuda.machine or 0, os.uname().machine)
    return Inventory(
        vendor="nvidia",
        driver=Driver(version=version, flavour="wsl", architecture=architecture),
        accelerators=(),
        nodes=(),
        files=(),
        sought=reader.sought(store, files),
        findings=tuple(reader.collector.findings),
        mode="wsl",
        groups=(Group(device_class="gpu", devices=(GroupDevice(name="all", nodes=(node,)),), files=files),),
    )


def _read_node(context: DiscoveryContext) -> HostNode:
    node, problem = NvidiaNodeReader(context).read(WSL_NODE, role="dxg")
    if node is None:
        raise HostError(
            f"Windows shows WSL no GPU: {problem}",
            hint="update NVIDIA's driver for Windows and WSL itself ('wsl --update'), then 'wsl --shutdown'",
            kind="no-nodes",
        )
    return node


class _Reader:
    """Reads the two folders of one host; ``collector`` gathers the findings."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self.collector = FindingCollector()

    def require_dxcore(self) -> None:
        """Raise HostError where libdxcore is missing or broken: every library asks it first."""
        path = f"{WSL_LIBRARIES}/{DXCORE}"
        try:
            listed_files.read_listed_file(self._root, path)
        except (OSError, listed_files.UnusableFile) as error:
            raise HostError(
                f"{self._root.host_path(path)} cannot be used: {reason(error)}",
                hint="'wsl --update' brings it anew",
                kind="driver-broken",
            ) from None

    def choose_store(self) -> DriverStore:
        """Return the store of the driver that runs, of which Windows keeps older ones.

        Only dxcore knows it for certain. A store whose loader is the very one in /usr/lib/wsl/lib
        was installed together with that; where several are, or none, the newest libcuda is taken.
        """
        stores = self._stores()
        if len(stores) == 1:
            return stores[0]
        loader = self._content(f"{WSL_LIBRARIES}/{LIBCUDA}")
        same = [store for store in stores if loader and self._content(f"{store.folder}/{LOADER}") == loader]
        chosen = max(same or stores, key=lambda store: (store.libcuda.modified_ns, store.folder))
        others = ", ".join(store.folder for store in stores if store is not chosen)
        certain = len(same) == 1
        self.collector.add(
            "info" if certain else "warning",
            "wsl-several-stores",
            chosen.folder,
            f"{chosen.folder} is taken as the driver that runs, and not {others}: "
            + (f"its loader is that in {WSL_LIBRARIES}" if certain else "its libcuda is the newest"),
            "" if certain else "'pnputil' in Windows removes old driver packages",
        )
        return chosen

    def _stores(self) -> list[DriverStore]:
        """Return the folders with a libcuda; raises HostError where there is none that can be used.

        The store holds Windows' other drivers as well, a thousand of them: NVIDIA's come first.
        """
        folders = [name for name in self._root.names(STORES) if is_plain(name)]
        ours = [name for name in folders if name.lower().startswith("nv")]
        problem = ""
        for names in (ours, [name for name in folders if name not in set(ours)]):
            stores = []
            for name in names:
                path = f"{STORES}/{name}/{LIBCUDA}"
                try:
                    libcuda = listed_files.read_listed_file(self._root, path)
                except OSError:
                    continue
                except listed_files.UnusableFile as error:
                    problem = f"{self._root.host_path(path)}: {error}"
                    continue
                stores.append(DriverStore(folder=f"{STORES}/{name}", libcuda=libcuda))
            if stores:
                return stores
        raise HostError(
            f"NVIDIA's driver for Windows cannot be used: {problem}"
            if problem
            else f"no folder of {self._root.host_path(STORES)} holds {LIBCUDA}",
            hint="install NVIDIA's driver in Windows (none in Linux), then 'wsl --shutdown'",
            kind="driver-broken" if problem else "driver-not-found",
        )

    def _content(self, path: str) -> bytes:
        try:
            return self._root.read(path, limit=MAX_LOADER)
        except OSError:
            return b""

    def files(self, store: DriverStore) -> tuple[DriverFile, ...]:
        """Return the small libraries, the store's files, and nvidia-smi under its usual name."""
        small = self._small_libraries()
        taken = {name for file in small for name in file.names}
        files = [*small, *self._stored_files(store, taken)]
        for folder in (store.folder, WSL_LIBRARIES):
            path = f"{folder}/{PROGRAM}"
            given = self._look(path) if self._root.exists(path) else None
            if given is not None:
                files.append(_driver_file("binary", given, (path, PROGRAM_TARGET)))
                break
        return tuple(files)

    def _small_libraries(self) -> list[DriverFile]:
        """Return the libraries of /usr/lib/wsl/lib, which programs load by their names.

        The host's loader finds them by SONAME, which is not always the file's name (libnvoptix.so.1
        has libnvoptix_loader.so.1); a file of that name goes before.
        """
        files = []
        names = [name for name in self._root.names(WSL_LIBRARIES) if listed_files.is_library_name(name)]
        for name in names:
            path = f"{WSL_LIBRARIES}/{name}"
            given = self._look(path)
            if given is not None:
                own = (name, given.soname) if given.soname and given.soname not in names else (name,)
                files.append(_driver_file("library", given, (path,), own))
        return files

    def _stored_files(self, store: DriverStore, taken: set[str]) -> list[DriverFile]:
        """Return the store's files, each at its own path.

        Libraries are loaded by SONAME as well (libnvidia-ptxjitcompiler.so.1) unless that is TAKEN; but
        never those that have a loader beside them: programs shall get that one.
        """
        files = []
        names = self._root.names(store.folder)
        for name in names:
            if not listed_files.is_library_name(name) and not name.endswith(STORE_ENDINGS):
                continue
            path = f"{store.folder}/{name}"
            given = self._look(path)
            if given is None:
                continue
            is_hidden = f"{name.partition('.so')[0]}_loader.so" in names
            own = (given.soname,) if given.soname and given.soname not in taken and not is_hidden else ()
            kind: FileKind = "config" if name.endswith(".bin") else "library"
            files.append(_driver_file(kind, given, (path,), own))
        return files

    def _look(self, path: str) -> ListedFile | None:
        where = shown(self._root.host_path(path))
        problem = ""
        try:
            given = listed_files.read_listed_file(self._root, path)
            if given.is_folder or not is_plain(path):
                problem = "it is a folder" if given.is_folder else "a spec cannot hold its name"
        except FileNotFoundError:
            problem = "it is a link that leads nowhere"
        except OSError as error:
            problem = f"it cannot be read: {reason(error)}"
        except listed_files.UnusableFile as error:
            problem = str(error)
        if not problem:
            return given
        rule = (
            "library-unusable" if listed_files.is_library_name(path.rpartition("/")[2]) else "file-unusable"
        )
        message = f"{where} is left out: {problem}"
        self.collector.add("warning", rule, where, message, "install NVIDIA's driver in Windows again")
        return None

    def sought(self, store: DriverStore, files: tuple[DriverFile, ...]) -> tuple[ProbeResult, ...]:
        """Return what was found of the files that NVIDIA names; a missing one that matters is a finding."""
        found = {target: file.host_path for file in files for target in file.targets}
        sought = []
        for name, weight in STORE_FILES:
            host_path = found.get(f"{store.folder}/{name}")
            if name == PROGRAM:
                host_path = found.get(PROGRAM_TARGET)
            sought.append(
                ProbeResult(
                    name=name,
                    kind="library" if listed_files.is_library_name(name) else "binary",
                    capabilities=(),
                    weight=weight,
                    found=(host_path,) if host_path else (),
                    reason="" if host_path else "no usable file",
                )
            )
            if not host_path and weight != "optional" and not self._root.exists(f"{store.folder}/{name}"):
                self.collector.add(
                    "warning",
                    "library-missing",
                    name,
                    f"{name} was not found in {store.folder}: what needs it will not work",
                    "install NVIDIA's driver in Windows again",
                )
        return tuple(sought)

    def version(self, store: DriverStore) -> str:
        """Return the driver's version (581.15) as its package's INF file tells it, or an empty text."""
        name = store.folder.rpartition("/")[2].partition(".inf")[0]
        path = f"{store.folder}/{name}.inf"
        try:
            with self._root.open(path) as file:
                version = parse_inf(file.read_at(0, INF_HEAD))
            problem = "it names no version"
        except OSError as error:
            version, problem = "", reason(error)
        if not version:
            message = f"the driver's version is unknown: {shown(path)}: {problem}"
            self.collector.add("info", "wsl-version-unknown", shown(path), message)
        return version


def parse_inf(head: bytes) -> str:
    """Return NVIDIA's version in the first bytes of a driver package's INF file, or an empty text.

    ``DriverVer = 08/14/2025, 32.0.15.8115`` is 581.15: the last five digits of Windows' version, as
    Chromium reads it from the registry (crrev.com/1241aea). The file is UTF-16 with a mark, or ASCII.
    """
    text = head.decode("utf-16-le" if head.startswith(b"\xff\xfe") else "utf-8", "replace")
    # No white space of these is a line's end: with \s, a file of empty lines takes seconds.
    found = re.search(
        r"(?im)^[ \t]*DriverVer[ \t]*=[^,\n]*,[ \t]*[0-9]+\.[0-9]+\.([0-9.]+)[ \t\r]*(?:;|$)", text
    )
    digits = found[1].replace(".", "")[-5:] if found else ""
    version = f"{digits[:-2]}.{digits[-2:]}"
    return version if is_version(version) else ""


def _driver_file(
    kind: FileKind, given: ListedFile, targets: tuple[str, ...], names: tuple[str, ...] = ()
) -> DriverFile:
    return DriverFile(kind=kind, host_path=given.host_path, capabilities=(), names=names, targets=targets)
