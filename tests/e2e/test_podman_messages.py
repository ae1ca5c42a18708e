"""podman 4.3.1 of Debian 12 lists containers with GPUs at its API socket; the daemon's page shows them."""

import json
from pathlib import Path

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, running_host
from support.containers.engine_sockets import daemon_page

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("real_nodes")]
NODE = {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}
SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "0", "containerEdits": {"deviceNodes": [NODE]}}],
    "containerEdits": {},
}
SERVE = """
mknod /dev/nvidia0 c 195 0
mkdir -p /run/podman
setsid podman system service --time 0 unix:///run/podman/podman.sock </dev/null >/run/podman.log 2>&1 &
for _ in $(seq 100); do [ -S /run/podman/podman.sock ] && exit; sleep 0.1; done
cat /run/podman.log >&2
exit 1
"""


def test_the_page_lists_podman_containers_until_they_end(cache: Path, images: Path, tmp_path: Path) -> None:
    run = f"podman run --detach --env SECRET=hunter2 --name {{}} --device {{}} {DEBIAN_IMAGE} sleep 600"
    with running_host(cache / "host-bookworm", images=images) as host:
        assert "4.3.1" in host.run("podman --version")
        host.put("/etc/cdi/nvidia.json", json.dumps(SPEC))
        host.run(SERVE)
        with daemon_page(tmp_path, host, "/run/podman/podman.sock") as page:
            page.comes_to([])
            host.run(run.format("by-name", "nvidia.com/gpu=0"))
            page.comes_to(["container by-name (podman)"])
            host.run(run.format("by-node", "/dev/nvidia0"))
            page.comes_to(["container by-name (podman)", "container by-node (podman)"])
            host.run("podman stop --time 0 by-name && podman rm --force --time 0 by-node")
            page.comes_to([])
