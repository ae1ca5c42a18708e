"""Configuration and specs of a host, as the commands read and write them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

# A valid spec, and a foreign spec of a kind that cdigen writes too.
GOOD: dict[str, Any] = {
    "cdiVersion": "0.5.0",
    "kind": "example.com/gpu",
    "devices": [{"name": "0", "containerEdits": {"env": ["A=B"]}}],
}
FOREIGN = {
    **GOOD,
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "all", "containerEdits": {"env": ["FOREIGN=1"]}}],
}


def put(path: Path, content: object) -> Path:
    """Write CONTENT (a text or a JSON document) to the file PATH, and create the folders above the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def configure(host: Path, text: str) -> Path:
    """Write the configuration of HOST; return its file."""
    return put(host / "etc/cdigen/config.yaml", text)


def written(cdigen: Run, host: Path, *options: str | Path) -> list[str]:
    """Write the specs of HOST; return the names of all files in their folder."""
    done = cdigen("generate", "--root", host, "--write", *options)
    assert done.code == 0, done.err
    return sorted(os.listdir(host / "run/cdi"))


def add_family(host: Path) -> None:
    """Add an InfiniBand device node, which is a device of the kind nvidia.com/mofed."""
    (host / "dev/infiniband").mkdir()
    os.mknod(host / "dev/infiniband/uverbs0", 0o020666, os.makedev(231, 192))


def targets(spec: Any) -> list[str]:
    return [mount["containerPath"] for mount in spec["containerEdits"]["mounts"]]


def names(spec: Any) -> list[str]:
    return [device["name"] for device in spec["devices"]]
