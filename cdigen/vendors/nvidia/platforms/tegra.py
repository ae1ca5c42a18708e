"""Read a Tegra board (Jetson, IGX, DRIVE), whose system lists what a container needs: ``discover``.

Its integrated GPU is not a PCI device (Orin), or needs nodes and libraries that the nvidia module does
not tell (Thor); NVIDIA's tools read the same lists ("csv mode").

Sources: nvidia-container-toolkit 1.20 (internal/platform-support/tegra), its test roots of an Orin and
a Thor; Jetson Linux 35 to 39. On 39 libcuda lies in /opt/nvidia/l4t-gpu-libs/openrm or .../nvgpu, and
only l4t.csv, which the board writes when it starts, names it.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from cdigen.host.procfs import read_text
from cdigen.host.root import reason, shown
from cdigen.model.errors import HostError
from cdigen.model.findings import FindingCollector
from cdigen.model.inventory import Driver, DriverFile, Group, GroupDevice, Inventory
from cdigen.model.loader import library_folders
from cdigen.vendors.nvidia import kernel_module
from cdigen.vendors.nvidia.gpus import GPUS
from cdigen.vendors.nvidia.nodes import NvidiaNodeReader
from cdigen.vendors.nvidia.platforms import TEGRA_RELEASE, csv_lines, listed_files, listed_gpus
from cdigen.vendors.nvidia.tables import LIBRARIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.inventory import FileKind, HostNode
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.vendors.nvidia.platforms.csv_lines import CsvEntry
    from cdigen.vendors.nvidia.platforms.listed_files import ListedFile

FOLDER = "/etc/nvidia-container-runtime/host-files-for-container.d"
# Those that NVIDIA's tools read unless told others. Jetson Linux 32 to 35 brings l4t.csv, 36 the first
# two, 39 all; those of other names (cuda.csv, cudnn.csv) put toolkits over those of the image.
LISTS = ("devices.csv", "drivers.csv", "l4t.csv")
# The largest seen, drivers.csv of Jetson Linux 38, has 18 KB.
MAX_LIST = 1 << 20

# Bound of ours for what one pattern with wildcards may stand for; /dev/dri/card* stands for 4.
MAX_MATCHES = 1024
ARCHITECTURE = "aarch64"

# Folders of libraries that programs load by their paths; the loader is not to find them.
PLUGIN_FOLDERS = ("gbm", "gstreamer-1.0", "nvsipl_drv", "nvsipl_uddf", "plugins", "weston*")

_BY_STEM = {library.stem: library for library in LIBRARIES}


def discover(context: DiscoveryContext) -> Inventory:
    """Read the lists, and what they name.

    Raises HostError with the kinds driver-not-found (no list) and no-nodes (no device node).
    """
    reader = _Reader(context)
    entries = reader.read_lists()
    if not entries:
        why = f": {reader.collector.findings[0].message}" if reader.collector.findings else ""
        raise HostError(
            f"no list in {context.host.host_path(FOLDER)} names a file of the driver{why}",
            hint="install the board's nvidia-l4t-init package, which brings devices.csv and drivers.csv",
            kind="driver-not-found",
        )
    before = len(reader.collector.findings)
    nodes = reader.nodes(entries)
    if not nodes:
        why = next(
            (finding.message for finding in reader.collector.findings[before:]), "there is no dev line"
        )
        raise HostError(
            f"none of the device nodes in the lists can be used: {why}",
            hint="is the GPU's driver loaded? see 'dmesg | grep -i -e nvgpu -e NVRM'",
            kind="no-nodes",
        )
    driver = Driver(version=reader.version(), flavour="tegra", architecture=ARCHITECTURE)
    files = reader.files(entries, driver.version)
    reader.say_discrete()
    devices = tuple(GroupDevice(name=name, nodes=nodes) for name in ("0", "all"))
    return Inventory(
        vendor="nvidia",
        driver=driver,
        accelerators=(),
        nodes=(),
        files=(),
        sought=(),
        findings=tuple(reader.collector.findings),
        mode="csv",
        groups=(Group(device_class="gpu", devices=devices, files=files),),
    )


class _Reader:
    """Reads what the lists of one host name; ``collector`` gathers the findings."""

    def __init__(self, context: DiscoveryContext) -> None:
        self._context = context
        self._nodes = NvidiaNodeReader(context)
        self.collector = FindingCollector()

    def read_lists(self) -> list[CsvEntry]:
        """Read the lists that there are; one that cannot be read, or says nothing, is a finding."""
        entries: list[CsvEntry] = []
        for name in LISTS:
            path = f"{FOLDER}/{name}"
            try:
                text = self._context.host.read(path, limit=MAX_LIST).decode("utf-8", "replace")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self._say_list(path, f"cannot be read: {reason(error)}")
                continue
            found, findings = csv_lines.parse(text, self._context.host.host_path(path))
            entries.extend(found)
            self.collector.findings.extend(findings)
            if not found:
                self._say_list(path, "holds no entry")
        return entries

    def version(self) -> str:
        """Return the driver's version: the kernel module's, else the release of Jetson Linux."""
        host = self._context.host
        try:
            driver = kernel_module.parse_version(read_text(host, kernel_module.VERSION_FILE))
        except OSError:
            driver = None
        if driver is not None:
            return driver.version
        try:
            release = parse_release(read_text(host, TEGRA_RELEASE))
        except OSError as error:
            release, problem = "", reason(error)
        else:
            problem = "it names no release"
        if not release:
            message = f"the driver's version is unknown: {TEGRA_RELEASE} cannot be used: {problem}"
            self.collector.add("info", "tegra-release-unknown", TEGRA_RELEASE, message)
        return release

    def nodes(self, entries: list[CsvEntry]) -> tuple[HostNode, ...]:
        """Read the nodes of the ``dev`` lines."""
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
        """Read the files of the other lines; each is found where its line says, a library also by the loader.

        A link (``sym``) becomes a mount of what it leads to: no hook has to make it.
        """
        given: dict[str, ListedFile] = {}
        targets: dict[str, str] = {}
        for entry in [*entries, *self._release_entry()]:
            for path in self._paths(self._context.driver, entry) if entry.kind != "dev" else ():
                file = self._look(entry, path)
                if file is not None:
                    given.setdefault(file.host_path, file)
                    targets.setdefault(path, file.host_path)
        names = _loader_names(given, targets, version)
        paths: dict[str, list[str]] = {}
        for path, host_path in targets.items():
            paths.setdefault(host_path, []).append(path)
        if given and "libcuda.so.1" not in {name for every in names.values() for name in every}:
            self.collector.add(
                "warning",
                "library-missing",
                "libcuda",
                f"no list in {FOLDER} names libcuda.so.1: CUDA will not work, or use what the image has",
                "Jetson Linux 39 writes l4t.csv when it starts: see 'systemctl status nv-load-gpu-libs'",
            )
        return tuple(
            DriverFile(
                kind=_kind(file),
                host_path=host_path,
                capabilities=(),
                names=names.get(host_path, ()),
                targets=tuple(paths.get(host_path, ())),
            )
            for host_path, file in given.items()
        )

    def say_discrete(self) -> None:
        """Say that a discrete GPU beside the integrated one is not a device of its own."""
        _, discrete = listed_gpus(self._context.host)
        if discrete:
            names = shown(", ".join(discrete))
            message = (
                f"{names}: a discrete GPU; it is part of the devices 0 and all where the lists name its node"
            )
            self.collector.add("info", "csv-discrete-gpu", GPUS, message)

    def _release_entry(self) -> list[CsvEntry]:
        """Return a line for the release file, by which programs in the container know the board."""
        if not self._context.driver.exists(TEGRA_RELEASE):
            return []
        return [csv_lines.CsvEntry(kind="lib", path=TEGRA_RELEASE, where=TEGRA_RELEASE)]

    def _paths(self, root: Root, entry: CsvEntry) -> list[str]:
        """Return the paths that ENTRY stands for; none is a finding, as lists name what other boards have."""
        paths = [path for path in expand(root, entry.path) if root.exists(path)]
        if not paths:
            where = shown(root.host_path(entry.path))
            message = f"{where} is not there ({entry.where}); containers do without it"
            self.collector.add("info", "csv-path-missing", where, message)
        return paths

    def _look(self, entry: CsvEntry, path: str) -> ListedFile | None:
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
            self._unusable(entry, path, "it is a folder" if file.is_folder else "it is not a folder")
            return None
        return file

    def _unusable(self, entry: CsvEntry, path: str, problem: str) -> None:
        where = shown(path)
        message = f"{where} is left out ({entry.kind} line, {entry.where}): {problem}"
        self.collector.add("warning", "csv-path-unusable", where, message, "reinstall the board's packages")

    def _say_list(self, path: str, problem: str) -> None:
        where = self._context.host.host_path(path)
        hint = "reinstall the board's nvidia-l4t-init package"
        self.collector.add("warning", "csv-unreadable", where, f"{where} {problem}; it is passed over", hint)


def parse_release(text: str) -> str:
    """Return the release in the text of /etc/nv_tegra_release: ``36.4.3``, or an empty text.

    Its first line is ``# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, ...``.
    """
    found = re.match(
        r"#\s*R(\d{1,4})\b.*?,\s*REVISION:\s*(\d{1,4}(?:\.\d{1,4})*)\s*(?:,|$)", text, re.ASCII | re.MULTILINE
    )
    return f"{found[1]}.{found[2]}" if found else ""


def expand(root: Root, path: str) -> list[str]:
    """Return the paths for which PATH stands: itself, or what its wildcards (``* ? [``) match.

    As in Go's filepath.Glob they may be in any part, and match no slash. At most MAX_MATCHES are
    followed from folder to folder.
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
    given: dict[str, ListedFile], targets: dict[str, str], version: str
) -> dict[str, tuple[str, ...]]:
    """Return the names under which the container's loader shall find each library.

    NVIDIA's tools have a hook run ldconfig over the libraries' folders. A name is left out where a
    line gives another file that place, and where another library came first.
    """
    folders = library_folders(ARCHITECTURE)
    taken: dict[str, str] = {}
    names: dict[str, tuple[str, ...]] = {}
    for host_path, file in given.items():
        if not file.is_library or _is_plugin(file.path):
            continue
        row = _BY_STEM.get(file.path.rpartition("/")[2].partition(".so")[0])
        also = [name for name in (row.also if row else ()) if version or "{version}" not in name]
        wanted = [file.soname, *(name.format(version=version) for name in also)]
        own = [
            name
            for name in wanted
            if name is not None
            and taken.setdefault(name, host_path) == host_path
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
