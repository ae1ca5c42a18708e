"""Find the host's ROCm libraries for containers whose images have no ROCm.

cdigen uses this module only with an option (``vendor_options: {amd: {rocm_libraries: true}}``). The reasons
are that AMD's images contain ROCm, and that ROCm's libraries may not match the driver's version. The names
and folders are from the packages of ROCm 5.7 to 7.0 (repo.radeon.com) and from Debian's packages. The ELF
file of a library contains the names of the libraries that it needs.
"""

from __future__ import annotations

from cdigen.binfmt import elf
from cdigen.host.procfs import number_behind
from cdigen.host.root import is_plain, reason, shown
from cdigen.model.inventory import DriverFile, ProbeResult
from cdigen.model.loader import MULTIARCH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.findings import FindingCollector
    from cdigen.model.inventory import Driver
    from cdigen.vendors.context import DiscoveryContext

# (prefix of the file name, whether compute requires the library). Programs load these libraries.
WANTED = (
    ("libamdhip64.so.", True),
    ("libhsa-runtime64.so.", True),
    ("libamd_smi.so.", False),
    ("librocm_smi64.so.", False),
    ("libhsakmt.so.", False),  # from ROCm 6.3 on, libhsa-runtime64 contains it
)
# /opt/amdgpu contains the libdrm of AMD's own driver packages. This libdrm supports newer GPUs.
FOLDERS = (
    "/opt/rocm/lib",
    "/opt/rocm/lib64",
    "/opt/amdgpu/lib/{multiarch}",
    "/opt/amdgpu/lib64",
    "/usr/lib/{multiarch}",
    "/usr/lib64",
    "/usr/lib",
)
# The libraries of glibc and of the compiler's runtime. Every image contains them.
OF_IMAGES = (
    "ld-linux",
    "libc.so",
    "libm.so",
    "libdl.so",
    "libpthread.so",
    "librt.so",
    "libgcc_s.so",
    "libstdc++.so",
)
COMPUTE = ("compute", "utility")
MACHINES = {"x86_64": elf.EM_X86_64, "aarch64": elf.EM_AARCH64}
MAX_LIBRARIES = 100


def find_libraries(
    context: DiscoveryContext, driver: Driver, collector: FindingCollector
) -> tuple[tuple[DriverFile, ...], tuple[ProbeResult, ...]]:
    """Return the host's ROCm libraries with all libraries that they need, and the search results."""
    search = _Search(context.driver, driver, context.library_search_paths)
    searched = tuple(search.search_file(prefix, is_required=required) for prefix, required in WANTED)
    search.complete()
    for thing in searched:
        if thing.weight == "required" and not thing.found:
            text = f"{thing.name} not found ({thing.reason}): programs in images without ROCm cannot compute"
            collector.add(
                "warning", "library-missing", thing.name, text, "install ROCm, or use an image that has it"
            )
    for name, needed_by in search.missing.items():
        text = (
            f"{needed_by} needs {shown(name)}, which is not installed; programs may fail to load the library"
        )
        collector.add("warning", "library-incomplete", needed_by, text, "install the missing library")
    for path, problem in search.broken.items():
        text = f"{path} is not a library for containers: {problem}"
        collector.add("warning", "library-unusable", path, text, "reinstall ROCm's packages")
    return tuple(sorted(search.found.values(), key=lambda file: file.host_path)), searched


class _Search:
    """A search for libraries.

    ``found`` maps a SONAME to the found library. ``missing`` maps a missing SONAME to the path of a library
    that needs it. ``broken`` maps a path to the problem of its file.
    """

    def __init__(self, root: Root, driver: Driver, folders: tuple[str, ...]) -> None:
        multiarch = MULTIARCH.get(driver.architecture, driver.architecture)
        self._root = root
        self._machine = MACHINES.get(driver.architecture)
        self._folders = folders or tuple(folder.format(multiarch=multiarch) for folder in FOLDERS)
        self._needed: dict[str, str] = {}
        self.found: dict[str, DriverFile] = {}
        self.missing: dict[str, str] = {}
        self.broken: dict[str, str] = {}

    def search_file(self, prefix: str, *, is_required: bool) -> ProbeResult:
        """Add the newest library whose file name begins with PREFIX; return the search result.

        The function stops at the first folder with a usable library.
        """
        found: list[str] = []
        for folder in self._folders:
            # Only names with a single number match, such as libamdhip64.so.7, a link to libamdhip64.so.7.0.0.
            names = self._root.names(folder)
            releases = {number: name for name in names if (number := number_behind(prefix, name)) is not None}
            for release in sorted(releases, reverse=True):
                added = self._add_library(f"{folder}/{releases[release]}")
                if added is not None:
                    found.append(added.host_path)
                    break
            if found:
                break
        return ProbeResult(
            name=prefix.partition(".so")[0],
            kind="library",
            capabilities=COMPUTE,
            weight="required" if is_required else "optional",
            found=tuple(found),
            reason="" if found else "no such file",
        )

    def complete(self) -> None:
        """Add all libraries that the found libraries need, or add their SONAMEs to ``missing``."""
        while self._needed:
            soname, needed_by = self._needed.popitem()
            if soname in self.found or soname.startswith(OF_IMAGES) or "/" in soname:
                continue
            full = len(self.found) >= MAX_LIBRARIES
            is_added = (
                any(self._add_library(f"{folder}/{soname}") for folder in self._folders)
                if not full
                else False
            )
            if not is_added:
                self.missing[soname] = needed_by

    def _add_library(self, path: str) -> DriverFile | None:
        """Add and return the library at PATH, or return None if it cannot be used."""
        try:
            with self._root.open(path) as file:
                library = elf.read_shared_object(file.read_at, file.size)
                host_path = self._root.host_path(file.path)
        except FileNotFoundError:
            return None
        except (OSError, elf.ElfError) as error:
            self.broken[shown(self._root.host_path(path))] = reason(error)
            return None
        soname = library.soname or path.rpartition("/")[2]
        fits = library.bits == 64 and library.machine == (self._machine or library.machine)
        if not fits or not is_plain(host_path) or not is_plain(soname) or "/" in soname:
            return None
        library_file = DriverFile(kind="library", host_path=host_path, capabilities=COMPUTE, names=(soname,))
        self._needed |= {name: host_path for name in library.needed if name not in self._needed}
        return self.found.setdefault(soname, library_file)
