"""Find the host's ROCm libraries, for containers whose images have none.

AMD's images bring ROCm along, and ROCm's libraries need not fit the driver's version, so this is by choice
(``vendor_options: {amd: {rocm_libraries: true}}``). Names and folders: the packages of ROCm 5.7 to 7.0
(repo.radeon.com) and Debian's; what a library needs is read from its ELF file.
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
    from cdigen.vendors.base import DiscoveryContext

# What programs load: how the names of the files begin, and whether nothing computes without it.
WANTED = (
    ("libamdhip64.so.", True),
    ("libhsa-runtime64.so.", True),
    ("libamd_smi.so.", False),
    ("librocm_smi64.so.", False),
    ("libhsakmt.so.", False),  # a part of libhsa-runtime64 from ROCm 6.3 on
)
# /opt/amdgpu has the libdrm of AMD's own packages of the driver, which knows newer GPUs.
FOLDERS = (
    "/opt/rocm/lib",
    "/opt/rocm/lib64",
    "/opt/amdgpu/lib/{multiarch}",
    "/opt/amdgpu/lib64",
    "/usr/lib/{multiarch}",
    "/usr/lib64",
    "/usr/lib",
)
# Of what these need, what is every image's own: glibc and the compiler's run time.
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
    """Return the ROCm libraries of the host with what they need, and what was looked for."""
    search = _Search(context.driver, driver, context.library_search_paths)
    sought = tuple(search.seek(prefix, is_required=required) for prefix, required in WANTED)
    search.complete()
    for thing in sought:
        if thing.weight == "required" and not thing.found:
            text = f"{thing.name} was not found ({thing.reason}): programs without ROCm will not compute"
            collector.add(
                "warning", "library-missing", thing.name, text, "install ROCm, or use an image that has it"
            )
    for name, needed_by in search.missing.items():
        text = f"{needed_by} needs {shown(name)}, which is not installed; loading it may fail"
        collector.add("warning", "library-incomplete", needed_by, text, "install the package that holds it")
    for path, problem in search.broken.items():
        text = f"{path} is not a library for containers: {problem}"
        collector.add("warning", "library-unusable", path, text, "reinstall ROCm's packages")
    return tuple(sorted(search.found.values(), key=lambda file: file.host_path)), sought


class _Search:
    """The libraries found so far by SONAME, and what they still need."""

    def __init__(self, root: Root, driver: Driver, folders: tuple[str, ...]) -> None:
        multiarch = MULTIARCH.get(driver.architecture, driver.architecture)
        self._root = root
        self._machine = MACHINES.get(driver.architecture)
        self._folders = folders or tuple(folder.format(multiarch=multiarch) for folder in FOLDERS)
        self._needed: dict[str, str] = {}
        self.found: dict[str, DriverFile] = {}
        self.missing: dict[str, str] = {}
        self.broken: dict[str, str] = {}

    def seek(self, prefix: str, *, is_required: bool) -> ProbeResult:
        """Take the newest library whose file's name begins with PREFIX, in the first folder that has one."""
        found: list[str] = []
        for folder in self._folders:
            # libamdhip64.so.7 comes before libamdhip64.so.7.0.0, of which it is the link.
            names = self._root.names(folder)
            releases = {number: name for name in names if (number := number_behind(prefix, name)) is not None}
            for release in sorted(releases, reverse=True):
                taken = self._take(f"{folder}/{releases[release]}")
                if taken is not None:
                    found.append(taken.host_path)
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
        """Take what the libraries found need, and what that needs; what is nowhere is ``missing``."""
        while self._needed:
            soname, needed_by = self._needed.popitem()
            if soname in self.found or soname.startswith(OF_IMAGES) or "/" in soname:
                continue
            full = len(self.found) >= MAX_LIBRARIES
            taken = any(self._take(f"{folder}/{soname}") for folder in self._folders) if not full else False
            if not taken:
                self.missing[soname] = needed_by

    def _take(self, path: str) -> DriverFile | None:
        """Take the library at PATH; None where there is none, or none for this machine."""
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
        file_taken = DriverFile(kind="library", host_path=host_path, capabilities=COMPUTE, names=(soname,))
        self._needed |= {name: host_path for name in library.needed if name not in self._needed}
        return self.found.setdefault(soname, file_taken)
