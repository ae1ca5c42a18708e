"""Read a Tegra board (Jetson, IGX, DRIVE) with the board's lists of files for containers (``discover``).

The integrated GPU of Orin is not a PCI device. The integrated GPU of Thor needs nodes and libraries that the
nvidia module does not list. Therefore, cdigen reads the board's lists. NVIDIA's tools read the same lists
("csv mode").

The sources are Jetson Linux 35 to 39, and nvidia-container-toolkit 1.20 (internal/platform-support/tegra)
with its test data of an Orin and a Thor. On Jetson Linux 39, libcuda is in the folder openrm or nvgpu below
/opt/nvidia/l4t-gpu-libs. Only l4t.csv contains this path. The board writes l4t.csv when it starts.
"""

from __future__ import annotations

import re
from contextlib import suppress
from fnmatch import fnmatchcase

from cdigen.host.procfs import read_text
from cdigen.host.root import reason, shown
from cdigen.model.errors import HostError
from cdigen.model.findings import FindingCollector
from cdigen.model.inventory import Driver, DriverFile, Group, GroupDevice, Inventory
from cdigen.model.loader import library_folders
from cdigen.vendors.nvidia import kernel_module
from cdigen.vendors.nvidia.devices.gpus import GPUS
from cdigen.vendors.nvidia.devices.nodes import NvidiaNodeReader
from cdigen.vendors.nvidia.files.tables import LIBRARIES
from cdigen.vendors.nvidia.platforms import TEGRA_RELEASE, csv_lines, listed_files, listed_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.inventory import FileKind, HostNode
    from cdigen.vendors.context import DiscoveryContext
    from cdigen.vendors.nvidia.platforms.csv_lines import CsvEntry
    from cdigen.vendors.nvidia.platforms.listed_files import ListedFile

FOLDER = "/etc/nvidia-container-runtime/host-files-for-container.d"
# The lists that NVIDIA's tools read by default. Jetson Linux 32 to 35 has only l4t.csv. Jetson Linux 36 has
# the first two lists. Jetson Linux 39 has all three. cdigen does not read other lists, such as cuda.csv and
# cudnn.csv, because their files replace the toolkits of the image.
LISTS = ("devices.csv", "drivers.csv", "l4t.csv")
# In bytes. The largest known list has 18 KB (drivers.csv of Jetson Linux 38).
MAX_LIST = 1 << 20

# cdigen's limit for the matches of one wildcard pattern. /dev/dri/card* has 4 matches.
MAX_MATCHES = 1024
ARCHITECTURE = "aarch64"

# Programs load the libraries in these folders by path. The dynamic loader must not find these libraries.
PLUGIN_FOLDERS = ("gbm", "gstreamer-1.0", "nvsipl_drv", "nvsipl_uddf", "plugins", "weston*")

_BY_STEM = {library.stem: library for library in LIBRARIES}


def discover(context: DiscoveryContext) -> Inventory:
    """Return the inventory with the files in the board's lists, or raise HostError.

    The HostError has the kind driver-not-found if there is no list with files, or no-nodes if no device node
    can be used.
    """
    reader = _Reader(context)
    entries = reader.read_lists()
    if not entries:
        why = f": {reader.collector.findings[0].message}" if reader.collector.findings else ""
        raise HostError(
            f"no list in {context.host.host_path(FOLDER)} contains a file of the driver{why}",
            hint="install the board's nvidia-l4t-init package, which contains devices.csv and drivers.csv",
            kind="driver-not-found",
        )
    before = len(reader.collector.findings)
    nodes = reader.nodes(entries)
    if not nodes:
        why = next(
            (finding.message for finding in reader.collector.findings[before:]), "the lists have no dev line"
        )
        raise HostError(
            f"none of the device nodes in the lists can be used: {why}",
            hint="check that the GPU's driver is loaded: 'dmesg | grep -i -e nvgpu -e NVRM'",
            kind="no-nodes",
        )
    driver = Driver(version=reader.version(), flavour="tegra", architecture=ARCHITECTURE)
    files = reader.files(entries, driver.version)
    reader.report_discrete()
    devices = tuple(GroupDevice(name=name, nodes=nodes) for name in ("0", "all"))
    return Inventory(
        vendor="nvidia",
        driver=driver,
        findings=tuple(reader.collector.findings),
        mode="csv",
        groups=(Group(device_class="gpu", devices=devices, files=files),),
    )


class _Reader:
    """Reads the lists of one host, and the files in the lists. ``collector`` has the findings."""

    def __init__(self, context: DiscoveryContext) -> None:
        self._context = context
        self._nodes = NvidiaNodeReader(context)
        self.collector = FindingCollector()

    def read_lists(self) -> list[CsvEntry]:
        """Return the entries of all existing lists; add a finding for each unreadable or empty list."""
        entries: list[CsvEntry] = []
        for name in LISTS:
            path = f"{FOLDER}/{name}"
            try:
                text = self._context.host.read(path, limit=MAX_LIST).decode("utf-8", "replace")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self._report_list(path, f"cannot be read: {reason(error)}")
                continue
            found, findings = csv_lines.parse(text, self._context.host.host_path(path))
            entries.extend(found)
            self.collector.findings.extend(findings)
            if not found:
                self._report_list(path, "contains no entry")
        return entries

    def version(self) -> str:
        """Return the version of the kernel module, or the release of Jetson Linux if there is no module."""
        host = self._context.host
        with suppress(OSError):
            if driver := kernel_module.parse_version(read_text(host, kernel_module.VERSION_FILE)):
                return driver.version
        release, problem = "", "the file contains no release"
        try:
            release = parse_release(read_text(host, TEGRA_RELEASE))
        except OSError as error:
            problem = reason(error)
        if not release:
            message = f"the driver's version is unknown: {TEGRA_RELEASE} cannot be used: {problem}"
            self.collector.add("info", "tegra-release-unknown", TEGRA_RELEASE, message)
        return release

    def nodes(self, entries: list[CsvEntry]) -> tuple[HostNode, ...]:
        """Return the usable nodes in the ``dev`` lines."""
        found: dict[str, HostNode] = {}
        for entry in entries:
            for path in self._paths(self._context.dev, entry) if entry.kind == "dev" else ():
                node, problem = self._nodes.read(path, role="csv")
                if node is not None:
                    found.setdefault(path, node)
                else:
                    self._unusable(entry, path, problem)
        return tuple(found.values())

    def files(self, entries: list[CsvEntry], version: str) -> tuple[DriverFile, ...]:
        """Return the files in the ``dir``, ``lib`` and ``sym`` lines, and the release file.

        In the container, a file has the same path as in its line. A library also has a name for the dynamic
        loader. For a symbolic link (``sym``), the container gets a mount of the link's target, so that no
        hook has to create the link.
        """
        files: dict[str, ListedFile] = {}
        targets: dict[str, str] = {}
        for entry in [*entries, *self._release_entry()]:
            for path in self._paths(self._context.driver, entry) if entry.kind != "dev" else ():
                file = self._read_file(entry, path)
                if file is not None:
                    files.setdefault(file.host_path, file)
                    targets.setdefault(path, file.host_path)
        names = _loader_names(files, targets, version)
        paths: dict[str, list[str]] = {}
        for path, host_path in targets.items():
            paths.setdefault(host_path, []).append(path)
        if files and "libcuda.so.1" not in {name for every in names.values() for name in every}:
            self.collector.add(
                "warning",
                "library-missing",
                "libcuda",
                f"no list in {FOLDER} contains libcuda.so.1: CUDA uses the image's library, or does not work",
                "Jetson Linux 39 writes l4t.csv at boot: see 'systemctl status nv-load-gpu-libs'",
            )
        return tuple(
            DriverFile(
                kind=_kind(file),
                host_path=host_path,
                capabilities=(),
                names=names.get(host_path, ()),
                targets=tuple(paths.get(host_path, ())),
            )
            for host_path, file in files.items()
        )

    def report_discrete(self) -> None:
        """Add a finding if the board also has a discrete GPU, which gets no separate CDI device."""
        _, discrete = listed_gpus(self._context.host)
        if discrete:
            names = shown(", ".join(discrete))
            message = (
                f"{names}: discrete GPU without a separate CDI device; if a list in {FOLDER} "
                "contains its node, the node is in the devices '0' and 'all'"
            )
            self.collector.add("info", "csv-discrete-gpu", GPUS, message)

    def _release_entry(self) -> list[CsvEntry]:
        """Return an entry for the release file. Programs in the container use it to detect the board."""
        if not self._context.driver.exists(TEGRA_RELEASE):
            return []
        return [csv_lines.CsvEntry(kind="lib", path=TEGRA_RELEASE, where=TEGRA_RELEASE)]

    def _paths(self, root: Root, entry: CsvEntry) -> list[str]:
        """Return the existing paths that match ENTRY.

        If no path exists, the function adds a finding of the severity info, because the lists also contain
        files of other boards.
        """
        paths = [path for path in expand(root, entry.path) if root.exists(path)]
        if not paths:
            where = shown(root.host_path(entry.path))
            message = f"{where} does not exist ({entry.where}); containers do not get this file"
            self.collector.add("info", "csv-path-missing", where, message)
        return paths

    def _read_file(self, entry: CsvEntry, path: str) -> ListedFile | None:
        try:
            file = listed_files.read_listed_file(self._context.driver, path)
        except listed_files.NotALibrary as problem:
            where = shown(self._context.driver.host_path(path))
            message = f"{where} is left out ({entry.where}): {problem}"
            self.collector.add(
                "warning", "library-unusable", where, message, "reinstall the board's packages"
            )
            return None
        except (OSError, listed_files.UnusableFile) as problem:
            self._unusable(entry, path, str(problem))
            return None
        if entry.kind != "sym" and file.is_folder != (entry.kind == "dir"):
            self._unusable(
                entry, path, "the file is a folder" if file.is_folder else "the file is not a folder"
            )
            return None
        return file

    def _unusable(self, entry: CsvEntry, path: str, problem: str) -> None:
        where = shown(path)
        message = f"{where} is left out ({entry.kind} line, {entry.where}): {problem}"
        self.collector.add("warning", "csv-path-unusable", where, message, "reinstall the board's packages")

    def _report_list(self, path: str, problem: str) -> None:
        where = self._context.host.host_path(path)
        hint = "reinstall the board's nvidia-l4t-init package"
        self.collector.add(
            "warning", "csv-unreadable", where, f"{where} {problem}; the list is ignored", hint
        )


def parse_release(text: str) -> str:
    """Return the release in TEXT of /etc/nv_tegra_release, such as ``36.4.3``, or an empty string.

    An example of the first line is ``# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, ...``.
    """
    found = re.match(
        r"#\s*R(\d{1,4})\b.*?,\s*REVISION:\s*(\d{1,4}(?:\.\d{1,4})*)\s*(?:,|$)", text, re.ASCII | re.MULTILINE
    )
    return f"{found[1]}.{found[2]}" if found else ""


def expand(root: Root, path: str) -> list[str]:
    """Return the paths that match PATH. If PATH has no wildcard (``* ? [``), the result is PATH.

    As in Go's filepath.Glob, any name in PATH may have wildcards, and wildcards do not match a slash. The
    result has at most MAX_MATCHES paths.
    """
    paths = [""]
    for part in path.split("/")[1:]:
        if not any(character in part for character in "*?["):
            paths = [f"{folder}/{part}" for folder in paths]
            continue
        paths = [
            f"{folder}/{name}"
            for folder in paths
            for name in root.names(folder or "/")
            if fnmatchcase(name, part)
        ][:MAX_MATCHES]
    return paths


def _loader_names(
    files: dict[str, ListedFile], targets: dict[str, str], version: str
) -> dict[str, tuple[str, ...]]:
    """Return the names under which the dynamic loader finds each library in the container.

    NVIDIA's tools run ldconfig on the libraries' folders in a hook instead. A name is left out if a list has
    another file with this name in a folder of the loader, or if an earlier library has the same name.
    """
    folders = library_folders(ARCHITECTURE)
    paths_by_name: dict[str, str] = {}
    names: dict[str, tuple[str, ...]] = {}
    for host_path, file in files.items():
        if not file.is_library or _is_plugin(file.path):
            continue
        row = _BY_STEM.get(file.path.rpartition("/")[2].partition(".so")[0])
        also = [name for name in (row.also if row else ()) if version or "{version}" not in name]
        candidates = [file.soname, *(name.format(version=version) for name in also)]
        own = [
            name
            for name in candidates
            if name is not None
            and paths_by_name.setdefault(name, host_path) == host_path
            and all(targets.get(f"{folder}/{name}", host_path) == host_path for folder in folders)
        ]
        names[host_path] = tuple(dict.fromkeys(own))
    return names


def _is_plugin(path: str) -> bool:
    return any(fnmatchcase(part, folder) for part in path.split("/")[:-1] for folder in PLUGIN_FOLDERS)


def _kind(file: ListedFile) -> FileKind:
    if file.is_library:
        return "library"
    if "/firmware/" in file.path:
        return "firmware"
    return "binary" if file.is_executable and not file.is_folder else "config"
