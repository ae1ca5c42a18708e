"""Whole NVIDIA hosts for the tests of vendors: the kernel's files and the driver's files in one folder."""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support.hosts.discovery import refused
from support.hosts.driver_files import V550, Laid
from support.hosts.nvidia_kernel import Gpu, example_gpus, write_kernel_side

from cdigen.host.root import Root
from cdigen.model.cdi import Draft
from cdigen.model.errors import HostError
from cdigen.model.inventory import Driver, Inventory
from cdigen.pipeline.delivery import DEFAULT_DELIVERY, deliver
from cdigen.vendors.context import DiscoveryContext
from cdigen.vendors.nvidia.vendor import VENDOR

DRIVER = Driver(version=V550, flavour="proprietary", architecture="x86_64")


@contextmanager
def empty_root() -> Iterator[Path]:
    """Yield a root for one example of a hypothesis test, because a fixture runs once for all examples."""
    with tempfile.TemporaryDirectory(prefix="host-") as folder:
        yield Path(folder)


def places(
    root: Path, *, driver: str = "/", dev: str = "/", libraries: tuple[str, ...] = ()
) -> DiscoveryContext:
    host = Root(str(root))
    return DiscoveryContext(
        host=host, driver=host.below(driver), dev=host.below(dev), library_search_paths=libraries
    )


def delivered(draft: Draft) -> Draft:
    """Return a draft whose files reach containers without views and hooks."""
    return deliver(draft, None, DEFAULT_DELIVERY)[0]


def boot(
    root: Path, gpus: tuple[Gpu, ...] | int = 1, *, version: str = V550, machine: str = "x86_64"
) -> tuple[Gpu, ...]:
    """Write the kernel's files and real device nodes for GPUS, and return the GPUs."""
    gpus = example_gpus(gpus) if isinstance(gpus, int) else gpus
    write_kernel_side(root, gpus, driver_version=version)
    file = root / "proc/driver/nvidia/version"
    file.write_text(file.read_text().replace("x86_64", machine))
    return gpus


def install(root: Path, layout: Callable[[Path], Laid], gpus: int = 1) -> Laid:
    """Write a driver by LAYOUT, and the kernel's files for its version."""
    laid = layout(root)
    machine = "aarch64" if "aarch64" in layout.__name__ else "x86_64"
    version = laid.libraries["libcuda.so.1"].partition(".so.")[2]
    boot(root, gpus, version=version, machine=machine)
    return laid


def discover(root: Path) -> Inventory:
    return VENDOR.discover(places(root))


def refusal(root: Path) -> HostError:
    """Return the error that ends discovery, with its hint."""
    return refused(discover, root)


def make_any_instead(path: Path, kind: str) -> None:
    """Replace a file by a file of the type KIND; for a device, the test needs the fixture `real_nodes`."""
    mode = {"block device": stat.S_IFBLK, "character device": stat.S_IFCHR}.get(kind)
    if mode is None:
        make_instead(path, kind)
        return
    path.unlink(missing_ok=True)
    os.mknod(path, mode | 0o600, os.makedev(1, 3))


def make_instead(path: Path, kind: str) -> None:
    """Replace a file by a file of the type KIND, which an ordinary user can make."""
    path.unlink(missing_ok=True)
    match kind:
        case "FIFO":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "dangling link":
            path.symlink_to("nowhere")
        case "looping link":
            path.symlink_to(path.name)
        case "regular file":
            path.touch()
        case _:
            raise ValueError(kind)


def rules(inventory: Inventory) -> dict[str, str]:
    """Return the severity of the findings by rule; for several findings of a rule, of the last finding."""
    return {finding.rule: finding.severity for finding in inventory.findings}
