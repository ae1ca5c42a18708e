"""The stand-in for libnvidia-ml.so.1 (nvml_standin.c): compiles it, and describes its machine.

Call `install` with a `Machine` (`put` and `remove` have the library's path as an argument). The library reads
the file "machine" in its folder, with a KEY and a VALUE per line:
- of the machine: driver, cuda, gpu (an address);
- after "gpu", of this GPU: uuid, minor, name, brand, memory, capability, mig, plain-names, "process PID
  MEMORY", instance ("-" for a number without a MIG device), and "result FUNCTION ARGUMENT FIRST SECOND"
  (FUNCTION may also be "memory-total" or "memory-used");
- after "instance", of this MIG device: instance-result, instance-process.

A fault is "fault FUNCTION KIND [NUMBER]", for every call or, below a GPU, for calls about this GPU. FUNCTION
is NVML's name, "load" for the moment when the library is loaded, or "*". Kinds: error CODE, slow SECONDS,
hang (SIGTERM is ignored), crash, signal NUMBER, exit STATUS, rubbish (a line on standard output), flood
DESCRIPTOR (that line without end), grandchild (a process that keeps all descriptors open and hangs), trace
(the function's name goes to the file "calls").
"""

import atexit
import functools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.abilities import cannot_run, module, tool

SOURCE = Path(__file__).with_name("nvml_standin.c")
SONAME = "libnvidia-ml.so.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    gpu_instance: int
    compute_instance: int
    uuid: str
    profile: str
    results: tuple[str, ...] = ()
    processes: tuple[tuple[int, int], ...] = ()

    def lines(self) -> list[str]:
        return [
            f"instance {self.gpu_instance} {self.compute_instance} {self.uuid} {self.profile}",
            *(f"instance-result {result}" for result in self.results),
            *(f"instance-process {pid} {memory}" for pid, memory in self.processes),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU; mig is None for a GPU without MIG. plain_names: MIG devices have only the name of their GPU."""

    address: str
    uuid: str
    minor: int | None
    name: str = "NVIDIA H100 80GB HBM3"
    brand: int = 14
    capability: str = "9.0"
    memory: int = 81559 << 20
    mig: bool | None = None
    instances: tuple[Instance | None, ...] = ()
    plain_names: bool = False
    faults: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    processes: tuple[tuple[int, int], ...] = ()

    def lines(self) -> list[str]:
        return [
            f"gpu {self.address}",
            f"uuid {self.uuid}",
            f"name {self.name}",
            f"brand {self.brand}",
            f"capability {self.capability}",
            f"memory {self.memory}",
            *([] if self.minor is None else [f"minor {self.minor}"]),
            *([] if self.mig is None else [f"mig {self.mig:d}"]),
            *(["plain-names"] if self.plain_names else []),
            *(
                line
                for instance in self.instances
                for line in (instance.lines() if instance else ["instance -"])
            ),
            *(f"result {result}" for result in self.results),
            *(f"process {pid} {memory}" for pid, memory in self.processes),
            *(f"fault {fault}" for fault in self.faults),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    driver: str = "550.163.01"
    cuda: int = 12040
    gpus: tuple[Gpu, ...] = ()
    faults: tuple[str, ...] = ()

    def text(self) -> str:
        lines = [f"driver {self.driver}", f"cuda {self.cuda}", *(f"fault {fault}" for fault in self.faults)]
        return "\n".join([*lines, *(line for gpu in self.gpus for line in gpu.lines()), ""])


def gpu(number: int, **changes: object) -> Gpu:
    """Return the GPU with that index: an H100 without MIG."""
    plain: dict[str, object] = {"address": f"00000000:{0x19 + number:02X}:00.0", "uuid": uuid(number)}
    return Gpu(**{**plain, "minor": number, **changes})  # type: ignore[arg-type]


def uuid(number: int, prefix: str = "GPU") -> str:
    return f"{prefix}-{number:08x}-1111-2222-3333-444444444444"


def instances(first: int, *profiles: str | None) -> tuple[Instance | None, ...]:
    """Return a MIG device for each of PROFILES, in its own GPU instance; None: a number without a device."""
    return tuple(
        Instance(
            gpu_instance=7 + number, compute_instance=0, uuid=uuid(first + number, "MIG"), profile=profile
        )
        if profile
        else None
        for number, profile in enumerate(profiles)
    )


def install(folder: Path, machine: Machine) -> Path:
    """Write the library and its machine into FOLDER, which may exist; return the library's path."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"libnvidia-ml.so.{machine.driver}"
    put(library, machine)
    link = folder / SONAME
    link.unlink(missing_ok=True)
    link.symlink_to(library.name)
    return link


def put(library: Path, machine: Machine) -> None:
    """Write LIBRARY, and MACHINE into the same folder; without pynvml, the test cannot run."""
    module("pynvml", "nvidia-ml-py")
    shutil.copyfile(_built(), library)
    _machine_of(library).write_bytes(machine.text().encode("utf-8", "surrogateescape"))


def remove(library: Path) -> None:
    """Remove the files of `put`."""
    library.unlink(missing_ok=True)
    _machine_of(library).unlink(missing_ok=True)


def _machine_of(library: Path) -> Path:
    return library.with_name("machine")


@contextmanager
def trusted_folder() -> Iterator[Path]:
    """Yield a folder, not in /tmp, that other users cannot change; nor can they change a folder above it."""
    home = Path(pwd.getpwuid(os.geteuid()).pw_dir).resolve()
    if not os.access(home, os.W_OK):
        cannot_run(f"{home}: not writable")
    for place in (home, *home.parents):
        if place.stat().st_uid not in {0, os.geteuid()} or place.stat().st_mode & 0o022:
            cannot_run(f"{place}: writable by other users")
    with tempfile.TemporaryDirectory(prefix=".cdigen-test-", dir=home) as folder:
        yield Path(folder)


@functools.cache
def _built() -> Path:
    """Build the library, once per session."""
    folder = Path(tempfile.mkdtemp(prefix="cdigen-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / SONAME
    options = ("-Wall", "-Wextra", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{SONAME}")
    subprocess.run([tool("gcc"), *options, "-o", library, SOURCE, "-ldl"], check=True)
    return library
