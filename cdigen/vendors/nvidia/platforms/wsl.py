"""Read a WSL2 host (``discover``). Windows drives the GPUs, and programs use the GPUs through /dev/dxg.

Windows shares two folders with WSL. /usr/lib/wsl/lib contains libdxcore and the small libraries that programs
load (libcuda.so.1). /usr/lib/wsl/drivers is the driver store of Windows. The store has a folder for each
driver package. This folder contains the large libraries. The small libraries get the path of this folder on
the host from dxcore. Therefore, the files of the store must have the same path in the container.

The sources are libnvidia-container, src/dxcore.c, and nvidia-container-toolkit 1.20,
pkg/nvcdi/driver-wsl.go.
"""

from __future__ import annotations

import os
import re

from cdigen.binfmt import elf
from cdigen.host.procfs import kernel_release
from cdigen.host.root import is_plain, reason, shown
from cdigen.model.errors import HostError
from cdigen.model.findings import FindingCollector
from cdigen.model.inventory import Driver, DriverFile, Group, GroupDevice, Inventory, ProbeResult
from cdigen.model.loader import MULTIARCH
from cdigen.value import frozen
from cdigen.vendors.nvidia.devices.nodes import NvidiaNodeReader
from cdigen.vendors.nvidia.files.tables import CARRIED_BY_IMAGES, LIBRARY_FOLDERS
from cdigen.vendors.nvidia.kernel_module import is_version
from cdigen.vendors.nvidia.platforms import DXCORE, WSL_LIBRARIES, WSL_NODE, listed_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.inventory import FileKind, HostNode, Weight
    from cdigen.vendors.context import DiscoveryContext
    from cdigen.vendors.nvidia.platforms.listed_files import ListedFile

STORES = "/usr/lib/wsl/drivers"
LIBCUDA = "libcuda.so.1.1"
LOADER = "libcuda_loader.so"
PROGRAM = "nvidia-smi"
PROGRAM_TARGET = "/usr/bin/nvidia-smi"

# The files of the store that NVIDIA's tools mount by name. Drivers before 2023 do not have the last two.
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
# Containers also need the store's files with these name endings (nvidia-container-toolkit pull request 1890).
STORE_ENDINGS = (".bin", ".dll")

# CUDA on WSL User Guide, "Getting Started with CUDA on WSL 2".
_UPDATE = (
    "in Windows (11, or 10 from 21H2), update NVIDIA's driver and WSL ('wsl --update'), then run 'wsl "
    "--shutdown'; install no driver in Linux"
)
_WSL_1 = "-Microsoft"  # in the releases of WSL 1's kernel; those of WSL 2 have "-microsoft-standard"
REINSTALL = "install NVIDIA's driver in Windows again"
ARCHITECTURES = {elf.EM_X86_64: "x86_64", elf.EM_AARCH64: "aarch64"}

# In bytes. cdigen compares the whole content of libcuda_loader.so, which has about 200 KB.
MAX_LOADER = 8 << 20
# In bytes. The version is in the first section of an INF file. The whole file has several megabytes.
INF_HEAD = 1 << 16


@frozen
class DriverStore:
    """A folder of the driver store with NVIDIA's CUDA driver."""

    folder: str
    libcuda: ListedFile


def discover(context: DiscoveryContext) -> Inventory:
    """Return the inventory with the device ``all``, or raise HostError.

    There is only one device, because dxcore cannot offer single GPUs. The kinds of the HostError are
    no-nodes, driver-not-found, driver-broken and driver-not-loaded.
    """
    node = _read_node(context)
    reader = _Reader(context.driver)
    reader.require_dxcore()
    store = reader.choose_store()
    files = reader.files(store)
    version = reader.version(store)
    architecture = ARCHITECTURES.get(store.libcuda.machine or 0, os.uname().machine)
    reader.report_linux_driver(architecture)
    return Inventory(
        vendor="nvidia",
        driver=Driver(version=version, flavour="wsl", architecture=architecture),
        searched=reader.probes(store, files),
        findings=tuple(reader.collector.findings),
        mode="wsl",
        groups=(Group(device_class="gpu", devices=(GroupDevice(name="all", nodes=(node,)),), files=files),),
    )


def _read_node(context: DiscoveryContext) -> HostNode:
    node, problem = NvidiaNodeReader(context).read(WSL_NODE, role="dxg")
    if node is None:
        is_first = _WSL_1 in kernel_release(context.host)
        raise HostError(
            f"{'WSL 1 has no GPUs' if is_first else 'WSL has no GPU of Windows'}: {problem}",
            hint="convert the distribution in Windows: 'wsl --set-version NAME 2'" if is_first else _UPDATE,
            kind="no-nodes",
        )
    return node


class _Reader:
    """Reads the two folders of one host. ``collector`` has the findings."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self.collector = FindingCollector()

    def require_dxcore(self) -> None:
        """Raise HostError if libdxcore is missing or broken, because every library needs it."""
        path = f"{WSL_LIBRARIES}/{DXCORE}"
        try:
            listed_files.read_listed_file(self._root, path)
        except (OSError, listed_files.UnusableFile) as error:
            raise HostError(
                f"{self._root.host_path(path)} cannot be used: {reason(error)}",
                hint="run 'wsl --update' in Windows",
                kind="driver-broken",
            ) from None

    def choose_store(self) -> DriverStore:
        """Return the folder of the running driver in the driver store.

        Windows also keeps the folders of older drivers. Only dxcore can report the correct folder with
        certainty. If libcuda_loader.so in a folder is identical to libcuda.so.1.1 in /usr/lib/wsl/lib, both
        were installed together. Among several such folders, the function returns the folder with the newest
        libcuda. If there is no such folder, it returns the folder with the newest libcuda in the whole store.
        """
        stores = self._stores()
        if len(stores) == 1:
            return stores[0]
        loader = self._content(f"{WSL_LIBRARIES}/{LIBCUDA}")
        same = [store for store in stores if loader and self._content(f"{store.folder}/{LOADER}") == loader]
        chosen = max(same or stores, key=lambda store: (store.libcuda.modified_ns, store.folder))
        others = ", ".join(store.folder for store in stores if store is not chosen)
        message = f"cdigen uses {chosen.folder} as the running driver, not {others}: the used folder has the "
        if len(same) == 1:
            message += f"same loader as {WSL_LIBRARIES}"
            self.collector.add("info", "wsl-several-stores", chosen.folder, message)
        else:
            hint = "remove old driver packages with 'pnputil' in Windows"
            message += "newest libcuda"
            self.collector.add("warning", "wsl-several-stores", chosen.folder, message, hint)
        return chosen

    def _stores(self) -> list[DriverStore]:
        """Return the folders with a libcuda; raise HostError if no folder can be used.

        The kind of the HostError is driver-not-loaded if Windows has only drivers of other vendors.
        The store contains about a thousand other drivers of Windows. Therefore, the function reads folders
        with NVIDIA's names first.
        """
        folders = [name for name in self._root.names(STORES) if is_plain(name)]
        nvidias = [name for name in folders if name.lower().startswith("nv")]
        problem = ""
        for names in (nvidias, [name for name in folders if name not in set(nvidias)]):
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
        if not nvidias and folders and not any(name.startswith("libcuda") for name in self._small_names()):
            raise HostError(
                f"Windows has no driver of NVIDIA: no folder in {self._root.host_path(STORES)} is of NVIDIA",
                hint="install NVIDIA's driver in Windows, not in Linux, then run 'wsl --shutdown'",
                kind="driver-not-loaded",
            )
        raise HostError(
            f"NVIDIA's driver for Windows cannot be used: {problem}"
            if problem
            else f"no folder of {self._root.host_path(STORES)} contains {LIBCUDA}",
            hint="install NVIDIA's driver in Windows, not in Linux, then run 'wsl --shutdown'",
            kind="driver-broken" if problem else "driver-not-found",
        )

    def _small_names(self) -> list[str]:
        return [name for name in self._root.names(WSL_LIBRARIES) if listed_files.is_library_name(name)]

    def _content(self, path: str) -> bytes:
        try:
            return self._root.read(path, limit=MAX_LOADER)
        except OSError:
            return b""

    def files(self, store: DriverStore) -> tuple[DriverFile, ...]:
        """Return the small libraries, the files of STORE, and nvidia-smi with its usual path."""
        small = self._small_libraries()
        used_names = {name for file in small for name in file.names}
        files = [*small, *self._stored_files(store, used_names)]
        for folder in (store.folder, WSL_LIBRARIES):
            path = f"{folder}/{PROGRAM}"
            file = self._read_file(path) if self._root.exists(path) else None
            if file is not None:
                files.append(_driver_file("binary", file, (path, PROGRAM_TARGET)))
                break
        return tuple(files)

    def _small_libraries(self) -> list[DriverFile]:
        """Return the libraries in /usr/lib/wsl/lib.

        Programs load these libraries by the file name or the SONAME. The SONAME may differ from the file
        name. For example, libnvoptix.so.1 has the SONAME libnvoptix_loader.so.1. If another file has the
        SONAME as its file name, that file takes precedence.
        """
        files = []
        names = self._small_names()
        for name in names:
            path = f"{WSL_LIBRARIES}/{name}"
            file = self._read_file(path)
            if file is not None:
                own = (name, file.soname) if file.soname and file.soname not in names else (name,)
                files.append(_driver_file("library", file, (path,), own))
        return files

    def _stored_files(self, store: DriverStore, used_names: set[str]) -> list[DriverFile]:
        """Return the files of STORE. In the container, each file has the same path as on the host.

        A library also has its SONAME as a name (libnvidia-ptxjitcompiler.so.1), with two exceptions: the
        SONAME is in USED_NAMES, or the folder also has a loader for the library. In the second case, programs
        must load the loader.
        """
        files = []
        names = self._root.names(store.folder)
        for name in names:
            if not listed_files.is_library_name(name) and not name.endswith(STORE_ENDINGS):
                continue
            path = f"{store.folder}/{name}"
            file = self._read_file(path)
            if file is None:
                continue
            is_hidden = f"{name.partition('.so')[0]}_loader.so" in names
            own = (file.soname,) if file.soname and file.soname not in used_names and not is_hidden else ()
            kind: FileKind = "config" if name.endswith(".bin") else "library"
            files.append(_driver_file(kind, file, (path,), own))
        return files

    def _read_file(self, path: str) -> ListedFile | None:
        where = shown(self._root.host_path(path))
        problem = ""
        try:
            file = listed_files.read_listed_file(self._root, path)
            if file.is_folder or not is_plain(path):
                problem = "the file is a folder" if file.is_folder else "its name has unprintable characters"
        except FileNotFoundError:
            problem = "the link has no existing target"
        except OSError as error:
            problem = f"the file cannot be read: {reason(error)}"
        except listed_files.UnusableFile as error:
            problem = str(error)
        if not problem:
            return file
        rule = (
            "library-unusable" if listed_files.is_library_name(path.rpartition("/")[2]) else "file-unusable"
        )
        message = f"{where} is left out: {problem}"
        self.collector.add("warning", rule, where, message, REINSTALL)
        return None

    def report_linux_driver(self, architecture: str) -> None:
        """Add a finding if the distribution has libraries of NVIDIA's driver for Linux.

        The CUDA on WSL User Guide forbids this driver. Its libraries have the names of those of Windows.
        """
        for template in LIBRARY_FOLDERS:
            folder = template.format(multiarch=MULTIARCH.get(architecture, architecture))
            for name in self._root.names(folder):
                stem, _, version = name.partition(".so.")
                if f"{stem}.so.1" in CARRIED_BY_IMAGES and is_version(version):
                    path = f"{folder}/{name}"
                    message = (
                        f"{shown(self._root.host_path(path))}: library of NVIDIA's driver for Linux, which "
                        "finds no GPU in WSL; containers get the libraries of Windows' driver"
                    )
                    hint = "remove the packages of NVIDIA's driver for Linux"
                    self.collector.add("warning", "wsl-linux-driver", path, message, hint)
                    return

    def probes(self, store: DriverStore, files: tuple[DriverFile, ...]) -> tuple[ProbeResult, ...]:
        """Return the search results for STORE_FILES; add a finding for each missing file.

        A missing file of the weight ``optional`` has no finding.
        """
        found = {target: file.host_path for file in files for target in file.targets}
        probes = []
        for name, weight in STORE_FILES:
            host_path = found.get(f"{store.folder}/{name}")
            if name == PROGRAM:
                host_path = found.get(PROGRAM_TARGET)
            probes.append(
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
                message = f"{name} was not found in {store.folder}: programs that need this file do not work"
                self.collector.add("warning", "library-missing", name, message, REINSTALL)
        return tuple(probes)

    def version(self, store: DriverStore) -> str:
        """Return the driver's version (581.15) in the package's INF file, or an empty string."""
        name = store.folder.rpartition("/")[2].partition(".inf")[0]
        path = f"{store.folder}/{name}.inf"
        try:
            with self._root.open(path) as file:
                version = parse_inf(file.read_at(0, INF_HEAD))
            problem = "the file contains no version"
        except OSError as error:
            version, problem = "", reason(error)
        if not version:
            message = f"the driver's version is unknown: {shown(path)}: {problem}"
            self.collector.add("info", "wsl-version-unknown", shown(path), message)
        return version


def parse_inf(head: bytes) -> str:
    """Return NVIDIA's version in HEAD, the first bytes of an INF file, or an empty string.

    NVIDIA's version is the last five digits of Windows' version. For example, the line
    ``DriverVer = 08/14/2025, 32.0.15.8115`` means 581.15. Chromium reads the version in the registry in the
    same way (crrev.com/1241aea). An INF file is UTF-16 with a byte order mark, or ASCII.
    """
    text = head.decode("utf-16-le" if head.startswith(b"\xff\xfe") else "utf-8", "replace")
    # The pattern has [ \t] instead of \s, because \s also matches line ends. With \s, a file of empty lines
    # would take seconds.
    found = re.search(
        r"(?im)^[ \t]*DriverVer[ \t]*=[^,\n]*,[ \t]*[0-9]+\.[0-9]+\.([0-9.]+)[ \t\r]*(?:;|$)", text
    )
    digits = found[1].replace(".", "")[-5:] if found else ""
    version = f"{digits[:-2]}.{digits[-2:]}"
    return version if is_version(version) else ""


def _driver_file(
    kind: FileKind, file: ListedFile, targets: tuple[str, ...], names: tuple[str, ...] = ()
) -> DriverFile:
    return DriverFile(kind=kind, host_path=file.host_path, capabilities=(), names=names, targets=targets)
