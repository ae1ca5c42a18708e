"""Device nodes that are missing: what is made, here or by others, is found by the discovery that follows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from vendors.fakehost import places

from cdigen.model.inventory import HostNode
from cdigen.pipeline import device_nodes
from cdigen.vendors import registry

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from cdigen.vendors.base import DiscoveryContext

PATH = "/dev/nvidia-caps/nvidia-cap1"
NODE = HostNode(path=PATH, host_path=PATH, role="mig-instance", major=236, minor=1, mode=0o444, uid=0, gid=0)


def test_a_node_that_another_made_meanwhile_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing_nodes(context: DiscoveryContext) -> tuple[HostNode, ...]:
        assert not context.dev.exists(PATH)
        file = tmp_path / PATH[1:]
        file.parent.mkdir(parents=True)
        file.touch()
        return (NODE,)

    vendor = SimpleNamespace(missing_nodes=missing_nodes)
    monkeypatch.setattr(registry, "load", lambda _name: vendor)
    monkeypatch.setattr(device_nodes, "make_node", lambda _path, _node: False)
    context = places(tmp_path)
    assert device_nodes.make_nodes(("nvidia",), context) == ()
    assert context.dev.exists(PATH)
