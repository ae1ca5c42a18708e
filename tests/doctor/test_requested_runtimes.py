"""With --device and --for, only failures of requested devices and runtimes are errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.doctor.broken_host import BrokenHost
from support.hosts import amd_tree, intel_tree

if TYPE_CHECKING:
    from pathlib import Path


def severities(host: BrokenHost, *options: str) -> dict[str, str]:
    """Return the severity of each check that has failed."""
    return {row["check"]: row["severity"] for row in host.results(*options) if not row["ok"]}


@pytest.fixture
def mixed(tmp_path: Path, real_nodes: None) -> BrokenHost:  # noqa: ARG001 - nodes must be real
    """Return a host with GPUs of AMD and Gaudis of Intel, and no /dev/kfd."""

    def lay(root: Path) -> None:
        amd_tree.write(root, amd_tree.mi210(2))
        intel_tree.lay(root, *intel_tree.gaudi_3(2))

    host = BrokenHost(tmp_path / "host").make("podman", lay=lay)
    host.path("dev/kfd").unlink()
    return host


def test_nodes_of_another_vendor_are_ignored(mixed: BrokenHost) -> None:
    assert severities(mixed)["node-missing"] == "error"
    assert severities(mixed, "--device intel.com/gaudi=0") == {}
    assert severities(mixed, "--device amd.com/gpu=0")["node-missing"] == "error"


def test_a_node_of_another_gpu_is_a_warning(host: BrokenHost) -> None:
    host.path("dev/nvidia1").unlink()
    assert severities(host, "--device nvidia.com/gpu=0")["node-missing"] == "warning"
    assert severities(host, "--device nvidia.com/gpu=1")["node-missing"] == "error"


def test_a_spec_that_users_may_not_read_is_no_failure_for_docker(tmp_path_host: BrokenHost) -> None:
    tmp_path_host.spec.chmod(0o600)
    assert severities(tmp_path_host) == {"spec-readable": "warning"}
    assert severities(tmp_path_host, "--for docker") == {}
