"""Fixtures of the doctor's tests."""

from pathlib import Path

import pytest
from support.doctor.broken_host import BrokenHost
from support.doctor.kubernetes_host import KubeNode


@pytest.fixture
def host(tmp_path: Path, real_nodes: None) -> BrokenHost:  # noqa: ARG001 - nodes must be real
    """Return a host with podman, without failures."""
    return BrokenHost(tmp_path / "host").make("podman")


@pytest.fixture
def tmp_path_host(tmp_path: Path, real_nodes: None) -> BrokenHost:  # noqa: ARG001 - nodes must be real
    """Return a host with every runtime, without failures."""
    return BrokenHost(tmp_path / "host").make("podman", "docker", "containerd", "crio")


@pytest.fixture
def node(tmp_path: Path, real_nodes: None) -> KubeNode:  # noqa: ARG001 - nodes must be real
    """Return a host that is a Kubernetes node, without failures."""
    return KubeNode(tmp_path / "host").make_node()
