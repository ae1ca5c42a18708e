"""Spec documents that tests start from."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from cdigen.cdi.library import DEFAULT_RELEASES
from cdigen.cdi.loaders.emulation import loader_verdicts

if TYPE_CHECKING:
    from pathlib import Path

Document = dict[str, Any]

# Characters that JSON permits unescaped, but the YAML parsers of the runtimes reject or change.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufffe\uffff]")


def plain() -> Document:
    """Return the smallest document without findings."""
    return {
        "cdiVersion": "0.5.0",
        "kind": "vendor.com/gpu",
        "devices": [{"name": "0", "containerEdits": {"env": ["A=B"]}}],
    }


def of_devices(*names: str, kind: str = "nvidia.com/gpu", **changes: object) -> Document:
    """Return a document with the devices NAMES, each with its own variable, and with the keys CHANGES."""
    devices = [{"name": name, "containerEdits": {"env": [f"GPU={name}"]}} for name in names]
    return {"cdiVersion": "0.5.0", "kind": kind, "devices": devices, **changes}


def put_spec(directory: Path, file_name: str, *names: str, **changes: Any) -> str:
    """Write ``of_devices(*names, **changes)`` into DIRECTORY, and return the path of the file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / file_name
    path.write_text(json.dumps(of_devices(*names, **changes)))
    return str(path)


def rich() -> Document:
    """Return a document that uses every field and has no findings."""
    return deepcopy(_RICH)


def with_edits(**edits: object) -> Document:
    """Return the plain document with EDITS of its device, in version 1.1.0, which permits all edits."""
    document = plain()
    document["cdiVersion"] = "1.1.0"
    document["devices"][0]["containerEdits"].update(edits)
    return document


def with_node(**fields: object) -> Document:
    return with_edits(deviceNodes=[{"path": "/dev/x", **fields}])


def with_mount(**fields: object) -> Document:
    return with_edits(mounts=[{"hostPath": "/a", "containerPath": "/b", "type": "bind", **fields}])


def with_hook(**fields: object) -> Document:
    hook = {"hookName": "createContainer", "path": "/h", "env": ["P=1"], "timeout": 5, **fields}
    return with_edits(hooks=[hook])


def to_bytes(document: object) -> bytes:
    """Return DOCUMENT as JSON, with escapes for characters that a loader would reject or change."""
    text = json.dumps(document, ensure_ascii=False)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode()


_RICH: Document = {
    "cdiVersion": "1.1.0",
    "kind": "vendor.com/gpu.large",
    "annotations": {"example.com/a": "b", "c": ""},
    "devices": [
        {
            "name": "0",
            "annotations": {"k": "v"},
            "containerEdits": {
                "env": ["A=B", "C="],
                "deviceNodes": [
                    {"path": "/dev/nvidia0", "fileMode": 438, "permissions": "rw", "uid": 0, "gid": 44},
                    {"path": "/dev/x", "hostPath": "/dev/y", "type": "c", "major": 195, "minor": 0},
                ],
                "netDevices": [
                    {"hostInterfaceName": "eth0", "name": "e0"},
                    {"hostInterfaceName": "eth1", "name": "e1"},
                ],
            },
        },
        {
            "name": "GPU-1:2",
            "containerEdits": {
                "mounts": [
                    {"hostPath": "/usr/lib/a.so.1", "containerPath": "/a", "options": ["ro", "rbind"]},
                    {"hostPath": "/tmp", "containerPath": "/t", "type": "tmpfs", "options": []},
                ]
            },
        },
    ],
    "containerEdits": {
        "hooks": [
            {
                "hookName": "createContainer",
                "path": "/usr/bin/hook",
                "args": ["hook", "--x"],
                "env": ["PATH=/usr/bin"],
                "timeout": 30,
            }
        ],
        "intelRdt": {
            "closID": "c",
            "l3CacheSchema": "L3:0=f",
            "memBwSchema": "MB:0=70",
            "schemata": ["L3:0=f"],
            "enableMonitoring": True,
        },
        "additionalGids": [44, 109],
    },
}


def verdicts(data: bytes, *, yaml: bool, versions: tuple[str, ...] = DEFAULT_RELEASES) -> dict[str, str]:
    """Return the verdict of each of VERSIONS of the CDI library on DATA, without the reasons."""
    found = loader_verdicts(data, yaml=yaml, versions=versions)
    return {version: verdict.verdict for version, verdict in found.items()}
