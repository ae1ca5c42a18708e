"""A fake host whose driver and GPUs change (`Host`), and the daemon as a process on it (`daemon`)."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.abilities import WARNINGS, cannot_run, tool
from support.daemon import hanging_mount
from support.hosts import driver_files
from support.hosts.nvidia_kernel import (
    control_nodes,
    example_gpus,
    make_node,
    write_driver,
    write_kernel_side,
)
from support.json_output import validator
from support.paths import REPOSITORY
from support.waiting import PATIENCE_S, pause, until

from cdigen.service.rundir import INVENTORY_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


OLD, NEW = driver_files.V550, "550.200.07"
KIND = "nvidia.com/gpu"
NAME = "nvidia.com-gpu.json"
# Profiles of two kinds, so that a test can make the spec of only one kind fail.
TWO_KINDS = "profiles:\n  - {name: gpu, class: gpu}\n  - {name: other, class: other}\n"
# The nodes of a fake host belong to no driver, and cannot be opened.
PRETENDED = "health: {ignore: [node-unusable]}\n"
# Times that are short enough for tests.
QUICK = "debounce_s: 0.05, backoff_min_s: 0.1, backoff_max_s: 0.3, settle_timeout_s: 1, poll_s: 0.2"


class Host:
    """A fake host below a folder, with the actions of its administrator, driver and kernel."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.specs = root / "run/cdi"
        self.spec = self.specs / NAME
        self.run_dir = root / "run/cdigen"
        self.http = str(self.run_dir / "http.sock")
        self.state_dir = root / "var/lib/cdigen"

    def make(self, gpus: int = 2, version: str = OLD) -> Host:
        """Create a host with an installed and loaded driver."""
        self.prepare()
        self.install(version)
        self.load(gpus, version)
        return self

    def prepare(self) -> Host:
        """Create the folders that every host has, and the link /var/run."""
        for folder in ("run", "var", "etc"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        (self.root / "var/run").symlink_to("/run")
        return self

    def configure(self, text: str = "", **daemon: object) -> None:
        """Write the configuration: TEXT, and a section `daemon` with the keys of QUICK and of DAEMON.

        The configuration also has PRETENDED if TEXT has no section `health`.
        """
        text += "" if "health:" in text else PRETENDED
        changes = "".join(f", {key}: {value}" for key, value in daemon.items())
        keys = dict(pair.split(": ") for pair in (QUICK + changes).split(", "))
        times = ", ".join(f"{key}: {value}" for key, value in keys.items())
        self.put("etc/cdigen/config.yaml", f"{text}daemon: {{{times}}}\n")

    def put(self, path: str, text: str) -> Path:
        """Write a file and rename it to PATH, as packages and careful administrators do."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f"{file.name}.new")
        new.write_text(text)
        new.rename(file)
        return file

    def boot(self, number: int = 1) -> None:
        """Set the boot ID that contains NUMBER."""
        self.put("proc/sys/kernel/random/boot_id", f"{number}1111111-2222-3333-4444-555555555555\n")

    def kernel_log(self) -> Path:
        """Remove the file of the kernel log, and return its path."""
        path = self.root / "dev/kmsg"
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        return path

    def install(self, version: str) -> None:
        """Replace the driver's libraries by those of VERSION."""
        self.uninstall()
        driver_files.ubuntu(self.root, version)

    def uninstall(self) -> None:
        shutil.rmtree(self.root / "usr", ignore_errors=True)
        for folder in ("etc/OpenCL", "etc/vulkan"):
            shutil.rmtree(self.root / folder, ignore_errors=True)

    def load(self, gpus: int = 2, version: str = OLD, *, nodes: bool = True) -> None:
        """Load the module of VERSION. GPUS is the number of GPUs."""
        write_kernel_side(self.root, example_gpus(gpus), driver_version=version, nodes=nodes)

    def set_version(self, version: str) -> None:
        """Set the version of the loaded module."""
        write_driver(self.root / "proc/driver/nvidia", version, open_module=False)

    def unload(self) -> None:
        """Unload the module; its nodes stay, as on real hosts."""
        shutil.rmtree(self.root / "proc/driver/nvidia")

    def make_nodes(self, gpus: int = 2) -> None:
        for node in (*control_nodes(), *(node for gpu in example_gpus(gpus) for node in gpu.nodes)):
            make_node(self.root, node)

    def remove_gpu(self, number: int) -> None:
        """Remove a GPU, like a hot removal."""
        gpu = example_gpus(number + 1)[number]
        shutil.rmtree(self.root / f"proc/driver/nvidia/gpus/{gpu.bdf}")
        for folder in ("bus/pci/devices", "bus/pci/drivers/nvidia"):
            (self.root / "sys" / folder / gpu.bdf).unlink()
        for node in gpu.nodes:
            self.root.joinpath(node.path.lstrip("/")).unlink()

    def accelerators(self, vendor: str = "nvidia") -> list[dict[str, Any]]:
        """Return a vendor's devices in inventory.json, [] if there are none."""
        try:
            document = json.loads((self.run_dir / INVENTORY_FILE).read_bytes())
        except FileNotFoundError:
            return []
        found: list[dict[str, Any]] = document["vendors"].get(vendor, {}).get("accelerators", [])
        return found

    def document(self, name: str = NAME) -> Any:
        """Return the spec on the disk, None if there is none."""
        try:
            return json.loads((self.specs / name).read_bytes())
        except FileNotFoundError:
            return None

    def devices(self, name: str = NAME) -> set[str]:
        """Return the device names in the spec, except for UUIDs and ``none``; empty if there is no spec."""
        document = self.document(name) or {"devices": []}
        names = {device["name"] for device in document["devices"]}
        return {each for each in names if each != "none" and not each.startswith("GPU-")}

    def driver(self) -> str:
        """Return the version of libcuda in the spec, or a list as text if it has none or several versions."""
        text = json.dumps(self.document())
        found = {version for version in (OLD, NEW) if f"libcuda.so.{version}" in text}
        return found.pop() if len(found) == 1 else f"{sorted(found)}"

    def driver_of_view(self) -> str:
        """Return the driver version of the view that the spec mounts, "" if there is no view."""
        edits = (self.document() or {}).get("containerEdits", {})
        folders = [
            mount["hostPath"] for mount in edits.get("mounts", ()) if "/views/nvidia-" in mount["hostPath"]
        ]
        found = {
            version
            for version in (OLD, NEW)
            for folder in folders
            if (self.root / folder.lstrip("/") / f"lib64/libcuda.so.{version}").exists()
        }
        return found.pop() if len(found) == 1 else ""

    def rubbish(self) -> list[str]:
        """Return the temporary files in the folders that the daemon writes to."""
        folders = (self.specs, self.run_dir, self.state_dir, self.state_dir / "views")
        return [
            str(folder / name)
            for folder in folders
            if folder.is_dir()
            for name in os.listdir(folder)
            if name.endswith(".tmp") or name.startswith(".")
        ]

    def files(self) -> dict[str, tuple[int, int, int]]:
        """Return inode number, mtime and ctime (in ns) of every file of the tree, by path."""
        found = {}
        for top, _, names in os.walk(self.root):
            for name in names:
                path = os.path.join(top, name)
                status = os.lstat(path)
                found[path] = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        return found


class Manager:
    """A service manager: a real datagram socket that receives messages, in a folder with a short path."""

    def __init__(self, folder: str) -> None:
        self.path = f"{folder}/notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self.messages: list[str] = []

    def close(self) -> None:
        self._socket.close()

    def receives(self, *words: str, within_s: float = PATIENCE_S) -> float | None:
        """Wait for a message with all WORDS; return the seconds until it arrives, None after WITHIN_S."""
        began = time.monotonic()
        while (left := began + within_s - time.monotonic()) > 0:
            if not select.select([self._socket], [], [], left)[0]:
                return None
            self.messages.append(self._socket.recv(65536).decode())
            if all(word in self.messages[-1] for word in words):
                return time.monotonic() - began
        return None

    def drain(self) -> list[str]:
        """Return the messages that are waiting in the socket."""
        messages = []
        while select.select([self._socket], [], [], 0)[0]:
            messages.append(self._socket.recv(65536).decode())
        return messages


class Daemon:
    """A real `cdigen run`, with its status and log."""

    def __init__(self, host: Host, log: Path, process: subprocess.Popen[bytes], manager: Manager) -> None:
        self.host = host
        self.process = process
        self.manager = manager
        self._log = log

    @property
    def status(self) -> dict[str, Any]:
        """The content of status.json, {} before this process has written one."""
        try:
            found: dict[str, Any] = json.loads((self.host.run_dir / "status.json").read_bytes())
        except FileNotFoundError:
            return {}
        return found if found["pid"] == self.process.pid else {}

    @property
    def state(self) -> str:
        return str(self.status.get("state", ""))

    @property
    def cycles(self) -> int:
        return int(self.status.get("last_cycle", {}).get("number", 0))

    @property
    def text(self) -> str:
        return self._log.read_text()

    def lines(self, event: str = "cycle") -> list[dict[str, Any]]:
        """Return the complete log lines with EVENT; each line must be JSON."""
        found = [json.loads(line) for line in self.text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in found if line["event"] == event]

    def sees(self, truth: Callable[[], object], within_s: float = PATIENCE_S) -> float:
        """Wait until TRUTH() is true, while the daemon runs; return the waiting time in seconds."""

        def holds() -> object:
            assert self.process.poll() is None, (
                f"the daemon ended with {self.process.returncode}: {self.text}"
            )
            return truth()

        began = time.monotonic()
        assert until(holds, within_s), f"{self.status}\n{self.text}"
        return time.monotonic() - began

    def rests(self, for_s: float = 0.25) -> int:
        """Wait until the daemon is idle and no cycle has ended for a while; return the number of cycles."""
        while True:
            before = self.cycles
            # If a cycle takes long, the next cycle may run during the whole pause.
            pause(for_s + 2 * self.status.get("last_cycle", {}).get("duration_s", 0))
            if self.cycles == before and not self.is_runnable():
                return before

    def is_runnable(self) -> bool:
        """Return whether a thread of the daemon runs, or waits for a processor or the disk."""
        states = set()
        for stat in Path(f"/proc/{self.process.pid}/task").glob("*/stat"):
            with suppress(FileNotFoundError, ProcessLookupError):
                states.add(stat.read_text().rpartition(")")[2].split()[0])
        return not states.isdisjoint("RD")

    def resident_kb(self) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0])

    def stop(self, number: int = signal.SIGTERM, within_s: float = PATIENCE_S) -> tuple[int, float]:
        """Send the signal NUMBER to the daemon; return its exit code and the seconds until it ended."""
        began = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(within_s), time.monotonic() - began


@contextmanager
def daemon(
    host: Host, *options: str, wait: bool = True, before: tuple[str, ...] = (), **environment: str
) -> Iterator[Daemon]:
    """Start the daemon on HOST, and kill it in the end if it still runs.

    If WAIT is true, wait for the first cycle. BEFORE is a command that starts the daemon, such as unshare(1).
    """
    with tempfile.TemporaryDirectory(prefix="cdigen-") as folder:
        manager = Manager(folder)
        log = Path(folder, "log")
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [*before, sys.executable, "-m", "cdigen", "run", "--root", str(host.root), *options],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                cwd=REPOSITORY,
                env={**os.environ, "NOTIFY_SOCKET": manager.path, "PYTHONWARNINGS": WARNINGS, **environment},
            )
        running = Daemon(host, log, process, manager)
        try:
            if wait:
                running.sees(lambda: running.cycles)
            yield running
            _check_documents(running)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            manager.close()


def _check_documents(running: Daemon) -> None:
    """Validate the last documents of RUNNING by their schemas; an ended daemon has no status."""
    if running.process.poll() is None and (status := running.status):
        validator("daemon-status").validate(status)
    if (file := running.host.run_dir / INVENTORY_FILE).is_file():
        validator("inspect").validate(json.loads(file.read_bytes()))


def unshared(*options: str) -> tuple[str, ...]:
    """Return a prefix that runs a command in new namespaces; skip the test if this is impossible."""
    start = (tool("unshare", "util-linux"), *options)
    trial = subprocess.run([*start, "true"], check=False, capture_output=True, text=True)
    if trial.returncode != 0:
        cannot_run(f"{' '.join(start)}: {trial.stderr.strip()}")
    return start


def with_hanging_mounts() -> tuple[str, ...]:
    """Return a command prefix under which ``hanging_mount.mount`` works; skip the test if it cannot work."""
    start = unshared("--mount", "--propagation", "private")
    if not os.access("/dev/fuse", os.W_OK):
        cannot_run("/dev/fuse cannot be opened: run as root, on a kernel with FUSE")
    with tempfile.TemporaryDirectory() as folder:
        program = [*start, sys.executable, "-I", hanging_mount.__file__, folder, "true"]
        trial = subprocess.run(program, check=False, capture_output=True, text=True)
    if trial.returncode != 0:
        cannot_run(trial.stderr.strip())
    return start


def hanging(folder: Path) -> tuple[str, ...]:
    """Return a command prefix under which each read in FOLDER hangs."""
    return (*with_hanging_mounts(), sys.executable, "-I", hanging_mount.__file__, str(folder))


def nvml_children(pid: int) -> list[str]:
    """Return the process IDs of the children that have loaded NVML."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        found = file.read().split()
    return [child for child in found if "libnvidia-ml" in maps(child)]


def maps(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/maps") as file:
            return file.read()
    except OSError:
        return ""
