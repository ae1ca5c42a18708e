"""What the plugin answers beside other plugins."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from support.nri.chain import chained
from support.nri.host import ALLOWED, POD, container
from support.nri.serving import known_of

from cdigen.config import NriConfig, Settings
from cdigen.nri.decision.answer import created, validated
from cdigen.nri.decision.compat import abilities
from cdigen.nri.pods import Adjustment

if TYPE_CHECKING:
    from pathlib import Path

    from support.nri.chain import Plugin

    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.pods import Container


VISIBLE = "NVIDIA_VISIBLE_DEVICES"
FILES_ALONE = {"name": "none", "containerEdits": {"env": [f"{VISIBLE}=void"]}}
LIBRARY = "/usr/lib/libcuda.so.1"
INJECTS = abilities("containerd", "2.3.4", "v0.12.0")
# Not one that is known: what it drops nobody can say, and it validates.
RAW = abilities("something", "1", "v0.12.0")


def knowledge(root: Path, *env: str) -> DecisionContext:
    """Return what is known of a host whose spec of two GPUs sets ENV."""
    spec = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [device(0), device(1), FILES_ALONE],
        "containerEdits": {
            "env": list(env),
            "mounts": [{"hostPath": LIBRARY, "containerPath": LIBRARY, "options": ["ro", "bind"]}],
        },
    }
    (root / "etc/cdi").mkdir(parents=True)
    (root / "etc/cdi/gpu.json").write_text(json.dumps(spec))
    return known_of(root, Settings(nri=NriConfig(allow=ALLOWED, unsupported_cdi="raw")))


class Node:
    """A runtime with cdigen among other plugins."""

    def __init__(self, context: DecisionContext, able: Any) -> None:
        self.context, self.able = context, able

    def cdigen(self, given: Container) -> Adjustment:
        found = created(POD, given, self.context, self.able)
        assert found.outcome != "refuse", found.reason
        return found.adjustment

    def verdict(self, asked: Container, *plugins: Plugin) -> str:
        return validated(POD, asked, chained(asked, *plugins), self.context, self.able).reason


def sets(name: str, value: str = "") -> Plugin:
    return lambda _: Adjustment(env={name: value})


ASKS = container("PATH=/bin", f"{VISIBLE}=0")


def device(minor: int) -> dict[str, Any]:
    node = {"path": f"/dev/nvidia{minor}", "type": "c", "major": 195, "minor": minor}
    return {"name": str(minor), "containerEdits": {"deviceNodes": [node]}}
