"""A spec and a configuration for `cdigen resolve`, and its JSON output."""

import json
from collections.abc import Callable
from typing import Any

from support.paths import REPOSITORY

EXAMPLE = REPOSITORY / "examples/hosts/debian13-8xh100.json"
SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": name, "containerEdits": {"env": ["A=B"]}} for name in ("0", "1", "all")],
}
CONFIG = "nri: {allow: [{namespaces: [ml]}]}\n"

Resolve = Callable[..., tuple[int, str]]


def document(done: tuple[int, str]) -> Any:
    return json.loads(done[1])
