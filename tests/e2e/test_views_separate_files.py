"""If a driver library of the host is on a separate mount, containers find it at its path in the view."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, REDHAT_IMAGE, running_host
from support.containers.gpu_hosts import GPUS, Driven, install_hook, succeed
from support.hosts.nvidia_kernel import write_kernel_side
from support.own_trees import copied_tree

pytestmark = pytest.mark.e2e

SPEC = "run/cdi/nvidia.com-gpu.json"
NAMES = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvcuvid.so.1")
LIBRARY = "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.550.163.01"


def test_a_library_on_a_separate_mount_is_mounted_in_the_view_and_loads(
    cache: Path, driver_tree: Path, images: Path
) -> None:
    with copied_tree(driver_tree, cache) as root:
        write_kernel_side(root, GPUS)
        install_hook(root)
        generate = (sys.executable, "-m", "cdigen", "generate", "--root", str(root), "--write")
        script = f"mount --bind {root}{LIBRARY} {root}{LIBRARY} && exec {shlex.join(generate)} --layout view"
        output = succeed("unshare", "--mount", "--propagation=private", "sh", "-ec", script)
        assert "warning" not in output
        spec = json.loads((root / SPEC).read_text())
        targets = [
            row["containerPath"] for row in spec["containerEdits"]["mounts"] if row["hostPath"] == LIBRARY
        ]
        assert f"/usr/local/nvidia/lib64/{Path(LIBRARY).name}" in targets
        with running_host(root, images=images) as host:
            driven = Driven(host=host)
            for image in (DEBIAN_IMAGE, REDHAT_IMAGE):
                assert driven.loaded(image, [*NAMES]) == {name: driven.driver[name] for name in NAMES}
