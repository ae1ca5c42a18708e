"""Device nodes that are missing: what is made, here or by others, is found by the discovery that follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.hosts import driver_files
from support.hosts.mig import cap_node, minor_of, write_instance, write_minors
from support.hosts.nvidia import boot, places

from cdigen.pipeline.device_nodes import make_nodes
from cdigen.store.devnodes import make_node
from cdigen.vendors.nvidia.vendor import VENDOR

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Boot a host with a MIG instance whose nodes, and their folder, nobody has made."""
    driver_files.debian_13(tmp_path)
    boot(tmp_path, 1)
    write_minors(tmp_path, 1)
    write_instance(tmp_path, 0, 7, nodes=False)
    assert not (tmp_path / "dev/nvidia-caps").exists()
    return tmp_path


def test_nodes_that_are_made_are_said_and_found(host: Path) -> None:
    context = places(host)
    said = {finding.path for finding in make_nodes(("nvidia",), context) if finding.rule == "node-made"}
    assert cap_node(minor_of(0, 7)).path in said
    assert VENDOR.missing_nodes(context) == ()


def test_nodes_that_another_made_meanwhile_are_found(host: Path) -> None:
    context = places(host)
    for node in VENDOR.missing_nodes(context):
        assert make_node(f"{host}{node.path}", node)
    assert not context.dev.exists(cap_node(minor_of(0, 7)).path)
    assert make_nodes(("nvidia",), context) == ()
    assert VENDOR.missing_nodes(context) == ()
