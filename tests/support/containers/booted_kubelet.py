"""A double of a kubelet on a booted Debian root with GPUs: `kubelet_at`."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.containers.booted_host import GpuHost
from support.kubelet.double import Kubelet

GPU = "nvidia.com/gpu"
# The configuration: no driver is behind the nodes, and no PCI device in a unit's own /sys.
PRETENDED = "health: {ignore: [node-unusable, pci-gone]}"


@contextmanager
def kubelet_at(gpus: GpuHost, folder: str) -> Iterator[Kubelet]:
    """Run a kubelet with its sockets in FOLDER of the host, by a name short enough for them."""
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
    """Return the ids of the GPUs that KUBELET may give away."""
    try:
        return [id_ for id_, (health, _) in kubelet.list_of(GPU).items() if health == "Healthy"]
    except LookupError:
        return []
