"""`cdigen resolve --image-config` reads a real podman's output for an image with variables and labels."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.containers.chroot_host import running_host
from support.processes import captured

pytestmark = pytest.mark.e2e

INVENTORY = Path(__file__).resolve().parents[2] / "examples/hosts/debian13-8xh100.json"
SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": name, "containerEdits": {"env": ["A=B"]}} for name in ("0", "all")],
}
CHANGES = (
    "ENV CUDA_VERSION=8.0.61",
    "ENV NVIDIA_REQUIRE_CUDA=cuda>=8.0",
    "LABEL com.nvidia.volumes.needed=nvidia_driver",
    "LABEL com.nvidia.cuda.version={cuda}",
)


@pytest.mark.parametrize(("cuda", "devices"), [("8.0.61", ["nvidia.com/gpu=all"]), ("99.0", [])])
def test_cdigen_resolve_checks_the_requirements_of_an_image_in_podmans_output(
    driver_tree: Path, images: Path, tmp_path: Path, cuda: str, devices: list[str]
) -> None:
    changes = " ".join(f'--change "{change.format(cuda=cuda)}"' for change in CHANGES)
    with running_host(driver_tree, images=images, state=tmp_path) as host:
        host.run(f"tar --create --files-from /dev/null | podman import --quiet {changes} - localhost/old")
        inspected = host.run("podman image inspect localhost/old")
    root = tmp_path / "host"
    for name, text in {
        "etc/cdi/gpu.json": json.dumps(SPEC),
        "etc/cdigen/config.yaml": "nri: {allow: [{namespaces: [ml]}]}\n",
        "run/cdigen/inventory.json": INVENTORY.read_text(),
        "sys/module/nvidia/version": "550.163.01\n",
    }.items():
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    command = ("resolve", "--root", str(root), "--namespace", "ml", "--json", "--image-config", "-")
    done = captured([sys.executable, "-m", "cdigen", *command], input=inspected)
    assert (done.returncode, done.stderr) == (0 if devices else 1, "")
    found = json.loads(done.stdout)
    assert found["devices"] == devices
    assert [(row["source"], row["met"]) for row in found["requirements"]] == [
        ("NVIDIA_REQUIRE_CUDA", True),
        ("com.nvidia.cuda.version", bool(devices)),
    ]
