"""Configuration of a host, and mounts of a spec."""

from pathlib import Path
from typing import Any


def configure(host: Path, text: str) -> None:
    path = host / "etc/cdigen/config.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def targets(spec: Any) -> list[str]:
    return [mount["containerPath"] for mount in spec["containerEdits"]["mounts"]]
