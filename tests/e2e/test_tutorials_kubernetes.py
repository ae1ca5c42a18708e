"""The steps of the tutorial "First pod" that use kubectl succeed on a real node, with the documented outputs.

The image is that of the tests. The node's runtime is configured, and cdigen runs as processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.cluster.gpu_node import running_gpu_node
from support.containers.busybox_image import IMAGE
from support.containers.containerd_host import RELEASES
from support.documents import blocks, follow, section_of, steps
from support.processes import captured

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

pytestmark = pytest.mark.e2e

POD = "docs/tutorials/first-pod.md"


def test_a_first_pod_has_one_gpu(
    cache: Path, kubernetes_tree: Path, upgrade_tree: Path, tmp_path: Path
) -> None:
    (pod,) = blocks(section_of(POD), "yaml")
    (tmp_path / "pod.yaml").write_text(pod.replace("image: debian", f"image: {IMAGE}"))
    with running_gpu_node(cache, upgrade_tree, RELEASES["forky"]) as gpu_node:
        node = gpu_node.node
        kubectl = f"{kubernetes_tree}/bin/kubectl --kubeconfig={node.folder}/kubeconfig"

        def run(command: str) -> subprocess.CompletedProcess[str]:
            script = f"cd {tmp_path}; {kubectl}{command.removeprefix('kubectl')} 2>&1"
            return captured(node.enter("sh", "-c", script))

        follow(steps(POD), run)
