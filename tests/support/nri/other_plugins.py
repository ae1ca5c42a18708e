"""cdigen's responses if a runtime has other plugins too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from support.nri.chain import chained
from support.nri.host import ALLOWED, POD, container
from support.nri.serving import context_on

from cdigen.config import NriConfig, Settings
from cdigen.nri.decision.result.compat import abilities
from cdigen.nri.decision.result.injection import adjust_container, validate_adjustment
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
# An unknown runtime: its handling of CDI devices is unknown, and it supports validation.
RAW = abilities("something", "1", "v0.12.0")


def context_with_gpus(root: Path, *env: str) -> DecisionContext:
    """Return the context of a host whose spec has two GPUs, and sets the variables ENV."""
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
    return context_on(root, Settings(nri=NriConfig(allow=ALLOWED, unsupported_cdi="raw")))


class Node:
    """A runtime with cdigen among other plugins."""

    def __init__(self, context: DecisionContext, able: Any) -> None:
        self.context, self.able = context, able

    def cdigen(self, container: Container) -> Adjustment:
        found = adjust_container(POD, container, self.context, self.able)
        assert found.outcome != "refuse", found.reason
        return found.adjustment

    def reason(self, made: Container, *plugins: Plugin) -> str:
        return validate_adjustment(POD, made, chained(made, *plugins), self.context, self.able).reason


def sets(name: str, value: str = "") -> Plugin:
    return lambda _: Adjustment(env={name: value})


ASKS = container("PATH=/bin", f"{VISIBLE}=0")


def device(minor: int) -> dict[str, Any]:
    node = {"path": f"/dev/nvidia{minor}", "type": "c", "major": 195, "minor": minor}
    return {"name": str(minor), "containerEdits": {"deviceNodes": [node]}}
