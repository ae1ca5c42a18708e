"""``check_host``: compares a document with the host.

Host paths must exist, device nodes must be devices, and hooks must be executable files.
"""

from __future__ import annotations

import os
import stat

from cdigen.host.root import reason
from cdigen.model.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from cdigen.host.root import Root


# The rules of device nodes. A container with other numbers starts, but cannot use the device.
NODE, NUMBERS = "host-node-wrong", "host-node-numbers"
# The fields on which the check of a device node depends.
_NODE_FIELDS = ("hostPath", "path", "type", "major", "minor")


def check_host(document: dict[str, Any], root: Root) -> tuple[Finding, ...]:
    """Return a finding for each host path in DOCUMENT that is missing or wrong on the host ROOT.

    DOCUMENT must break no rule. The source of a mount can be any existing file. cdigen checks device nodes in
    the same way as the runtimes. A node must not be a symbolic link (container-device-interface,
    deviceInfoFromPath). The check compares the device numbers if DOCUMENT sets device numbers.
    """
    findings: list[Finding] = []
    checked: dict[str, str | None] = {}
    # Results are cached, because the nodes of a GPU occur once for each name of the GPU and once in "all".
    nodes: dict[tuple[object, ...], tuple[str, str] | None] = {}
    for _, where, edits in all_edits(document):
        for position, mount in enumerate(edits.get("mounts", ())):
            path = mount["hostPath"]
            if path not in checked:
                checked[path] = _missing(root, path)
            if problem := checked[path]:
                findings.append(
                    _finding("host-path-missing", f"{where}.mounts[{position}].hostPath", problem)
                )
        for position, node in enumerate(edits.get("deviceNodes", ())):
            key = tuple(node.get(name) for name in _NODE_FIELDS)
            if key not in nodes:
                nodes[key] = _wrong_node(root, node)
            if wrong := nodes[key]:
                rule, problem = wrong
                findings.append(_finding(rule, f"{where}.deviceNodes[{position}]", problem))
        for position, hook in enumerate(edits.get("hooks", ())):
            if problem := _wrong_hook(root, hook["path"]):
                findings.append(_finding("host-hook-wrong", f"{where}.hooks[{position}].path", problem))
    return tuple(findings)


def all_edits(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the owner (the kind or a device), the JSON path and the content of all edits in DOCUMENT."""
    yield document["kind"], "$.containerEdits", document.get("containerEdits") or {}
    for position, device in enumerate(document["devices"]):
        owner = f"{document['kind']}={device['name']}"
        yield owner, f"$.devices[{position}].containerEdits", device["containerEdits"]


def _finding(rule: str, path: str, message: str) -> Finding:
    return Finding(severity="error", rule=rule, path=path, message=message)


def _missing(root: Root, path: str) -> str | None:
    try:
        root.resolve(path)
    except OSError as error:
        return f"{path} on the host: {reason(error)}"
    return None


def _wrong_node(root: Root, node: dict[str, Any]) -> tuple[str, str] | None:
    """Return the rule that NODE breaks and the problem; None if the host has NODE."""
    path = node.get("hostPath", node["path"])
    folder, _, name = path.rpartition("/")
    try:
        status = os.lstat(f"{root.outer_path(root.directory(folder or '/'))}/{name}")
    except OSError as error:
        return NODE, f"{path} on the host: {reason(error)}"
    kind = node.get("type", "c")
    is_kind = {"b": stat.S_ISBLK, "p": stat.S_ISFIFO}.get(kind, stat.S_ISCHR)
    if not is_kind(status.st_mode):
        return NODE, f"{path} on the host is not a device of type {kind!r}"
    numbers = (os.major(status.st_rdev), os.minor(status.st_rdev))
    declared = (
        node.get("major", numbers[0]),
        node.get("minor", numbers[1]) if "major" in node else numbers[1],
    )
    if declared != numbers:
        text = (
            f"{path} on the host has the numbers {numbers[0]}:{numbers[1]}, not {declared[0]}:{declared[1]}"
        )
        return NUMBERS, text
    return None


def _wrong_hook(root: Root, path: str) -> str | None:
    try:
        status = root.stat(path)
    except OSError as error:
        return f"{path} on the host: {reason(error)}"
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & 0o111:
        return f"{path} on the host is not an executable file"
    return None
