"""Debian roots booted by their own systemd, in namespaces (tests/support/containers/boot-systemd).

`booted` boots a root. `gpu_host` boots a root with the real driver and cdigen, which `make install` installs
there by default. cdigen reads the GPUs without `--root`. The root is a copy by hard links, on the file system
of the cache. It is not an overlay, because hard links behave differently on an overlay.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.abilities import cannot_run
from support.containers.chroot_host import Host
from support.containers.upgrade_host import PACKAGES, configure_podman
from support.hosts.nvidia_kernel import example_gpus, information_text, write, write_driver, write_kernel_side
from support.own_trees import WRITTEN_IN_PLACE, copy_tree, remove_tree
from support.paths import REPOSITORY
from support.processes import succeeded
from support.waiting import HOST_PATIENCE_S, until

BOOT = REPOSITORY / "tests/support/containers/boot-systemd"
UNITS = ("cdigen", "cdigen-once")
GPUS = example_gpus(2)
# No limit for the number of processes, because the control groups may have no controllers.
NO_LIMIT = "pids_limit = 0\n"
# The folder of the tree with the kernel's files for the GPUs.
KERNEL = "kernel"
# A drop-in for cdigen's units. They have their own /proc, which lacks the driver's files.
SHOWN = (
    f"[Service]\nBindReadOnlyPaths=/{KERNEL}/proc/driver:/proc/driver /{KERNEL}/proc/devices:/proc/devices\n"
)
# Units that would change the machine from inside the namespaces: settings of its kernel and devices.
MASKED = (
    "systemd-binfmt.service", "systemd-modules-load.service", "systemd-network-generator.service",
    "systemd-random-seed.service", "systemd-remount-fs.service", "systemd-sysctl.service",
)  # fmt: skip
# A script that runs `make install` in the root. The sources are at /cdigen, the dependencies in /wheels.
INSTALL = """
mount --bind {repository} {root}/cdigen
mount -o remount,bind,ro {root}/cdigen
mount -t proc proc {root}/proc
exec chroot {root} env -i PATH=/usr/sbin:/usr/bin HOME=/root PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels \
    make --silent --directory=/cdigen install
"""


@contextmanager
def booted(root: Path, *, kernel: Path | None = None, images: Path | None = None) -> Iterator[int]:
    """Boot the systemd of ROOT; when multi-user.target is active, yield the ID of the first process.

    KERNEL has files of a driver for /proc and /dev. IMAGES is an image store for podman.
    """
    units = root / "etc/systemd/system"
    for name in MASKED:
        (units / name).unlink(missing_ok=True)
        (units / name).symlink_to("/dev/null")
    write(root / "etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    started = subprocess.Popen([BOOT, root, kernel or "", images or ""], stderr=subprocess.PIPE, text=True)
    try:
        if not eventually(lambda: started.poll() is not None or bool(_first_process(started))):
            cannot_run(f"systemd as first process: multi-user.target not reached: {_waits_for(started)}")
        if started.poll() is not None:
            cannot_run(f"systemd as first process: does not start (exit code {started.returncode})")
        yield _first_process(started)
    finally:
        started.kill()
        started.communicate(timeout=HOST_PATIENCE_S)
        # The processes in the namespaces end a moment later.
        eventually(lambda: not _left_over_groups(started.pid))


def _first_process(started: "subprocess.Popen[str]") -> int:
    """Return the ID of the first process after multi-user.target is active, 0 before."""
    with suppress(OSError, subprocess.TimeoutExpired):
        first = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
        target = "systemctl show --property=ActiveState multi-user.target"
        if first and "=active" in Host(pid=int(first[0])).attempt(target, timeout_s=5).stdout:
            return int(first[0])
    return 0


def _waits_for(started: "subprocess.Popen[str]") -> str:
    """Return the pending jobs of a systemd that has not started, and the end of its journal."""
    first = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
    if not first:
        return "no first process"
    result = Host(pid=int(first[0])).attempt(
        "systemctl list-jobs; systemctl --failed; journalctl -n 40 --no-pager"
    )
    return result.stdout + result.stderr


def _left_over_groups(booter: int) -> list[Path]:
    """Remove the control groups of the systemd that process BOOTER booted, and return those still in use."""
    tops = [path for at in ("", "*/") for path in Path("/sys/fs/cgroup").glob(f"{at}cdigen-test-{booter}")]
    for top in tops:
        for folder, _, _ in os.walk(top, topdown=False):
            with suppress(OSError):
                os.rmdir(folder)
    return [top for top in tops if top.exists()]


def eventually(truth: Callable[[], object]) -> bool:
    """Return whether TRUTH becomes true within HOST_PATIENCE_S."""
    return until(truth, HOST_PATIENCE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHost:
    """A booted host with GPUs; ``root`` is its tree."""

    host: Host
    root: Path
    version: str

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of the driver that can be installed."""
        folder = self.root / PACKAGES
        return tuple(sorted(path.name for path in folder.iterdir())) if folder.exists() else (self.version,)

    def load_module(self, version: str) -> None:
        """Write the kernel's files for a module of VERSION, as after a reload."""
        driver = self.root / KERNEL / "proc/driver/nvidia"
        write_driver(driver, version, open_module=False)
        for gpu in GPUS:
            write(driver / f"gpus/{gpu.bdf}/information", information_text(gpu, version))


def status(gpus: GpuHost) -> dict[str, Any]:
    """Return the status of the daemon on the host GPUS."""
    found: dict[str, Any] = json.loads(gpus.host.attempt("cdigen status --json").stdout or "{}")
    return found


def troubles(gpus: GpuHost) -> list[dict[str, Any]]:
    """Return the daemon's warnings and errors, except those that this machine always causes.

    The real NVML finds no module of the driver. A unit with its own network namespace has a new /sys, which
    lacks the GPUs.
    """
    return [
        row
        for row in status(gpus)["findings"]
        if row["severity"] != "info"
        and row["rule"] != "gpu-without-device"
        and "NVML_ERROR_DRIVER_NOT_LOADED" not in row["message"]
    ]


def make_install(root: Path) -> None:
    """Run `make install` in ROOT, without a network."""
    locked_wheels(root)
    (root / "cdigen").mkdir()
    script = INSTALL.format(repository=REPOSITORY, root=root)
    succeeded(("unshare", "--mount", "sh", "-euc", script), stdin=subprocess.DEVNULL)


@contextmanager
def gpu_host(
    tree: Path, version: str, *, images: Path, install: Callable[[Path], None] = make_install
) -> Iterator[GpuHost]:
    """Boot a copy of TREE (host-SUITE) with GPUs; their module has VERSION, and INSTALL installs cdigen.

    The copy consists of hard links, except the folders that dpkg and cdigen write into.
    """
    work = tree.parent / f"booted-{tree.name}-{os.getpid()}"
    root = work / "root"
    try:
        work.mkdir()
        copy_tree(tree, root, own=WRITTEN_IN_PLACE)
        write_kernel_side(root / KERNEL, GPUS, driver_version=version)
        for unit in UNITS:
            write(root / f"etc/systemd/system/{unit}.service.d/kernel.conf", SHOWN)
        configure_podman(root, NO_LIMIT)
        install(root)
        with booted(root, kernel=root / KERNEL, images=images) as first:
            host = Host(pid=first)
            try:
                yield GpuHost(host=host, root=root, version=version)
            finally:
                host.attempt("podman rm --all --force --time 0")
    finally:
        remove_tree(work, within=tree.parent)


def locked_wheels(root: Path) -> None:
    """Download the wheels of requirements.lock, for the Python of ROOT, into the folder wheels of ROOT."""
    code = "import sys; print(*sys.version_info[:2], sep='.')"
    version = succeeded(("chroot", root, "python3", "-c", code))
    lock = ("--requirement", REPOSITORY / "requirements.lock", "--require-hashes", "--only-binary=:all:")
    wheels = (f"--python-version={version.strip()}", "--dest", root / "wheels")
    succeeded((sys.executable, "-m", "pip", "--quiet", "download", *lock, *wheels))
