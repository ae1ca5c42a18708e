"""Fixtures of the hosts of public reports."""

from pathlib import Path

import pytest
from support.doctor.kubernetes_host import KubeNode


@pytest.fixture
def node(tmp_path: Path, real_nodes: None) -> KubeNode:  # noqa: ARG001 - nodes must be real
    """Return a host that is a Kubernetes node, without failures."""
    return KubeNode(tmp_path / "host").make_node()
