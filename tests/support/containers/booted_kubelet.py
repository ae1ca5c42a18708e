"""A double of a kubelet on a booted Debian root with GPUs: `kubelet_at`."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.containers.booted_host import GpuHost
from support.kubelet.double import Kubelet

GPU = "nvidia.com/gpu"
# A configuration that accepts device nodes without a driver, and missing PCI devices in a unit's own /sys.
PRETENDED = "health: {ignore: [node-unusable, pci-gone]}"


@contextmanager
def kubelet_at(gpus: GpuHost, folder: str) -> Iterator[Kubelet]:
    """Run the double with its sockets in the host's FOLDER; a short link keeps socket addresses short."""
    with tempfile.TemporaryDirectory(prefix="k") as short:
        link = Path(short) / "h"
        link.symlink_to(f"{gpus.root}{os.path.dirname(folder)}")
        double = Kubelet(link / os.path.basename(folder))
        double.start()
        try:
            yield double
        finally:
            double.stop()
            gpus.host.run(f"rm -rf {folder}/*")


def healthy(kubelet: Kubelet) -> list[str]:
    """Return the device IDs that KUBELET may allocate."""
    try:
        return [id_ for id_, (health, _) in kubelet.list_of(GPU).items() if health == "Healthy"]
    except LookupError:
        return []
