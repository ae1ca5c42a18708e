"""Read the paths of libraries in the driver's manifests (``with_named_paths``).

The data files of the driver include manifests of EGL and Vulkan (JSON files), and of OpenCL (``nvidia.icd``,
a text file with one line). NVIDIA's manifests contain the SONAME of a library. NixOS replaces the SONAME by
an absolute path (nixpkgs issue 461949). A manifest with an absolute path has an effect only if the path
exists in the container.
"""

from __future__ import annotations

import json
import os

from cdigen.host.root import is_plain, reason
from cdigen.model.findings import FindingCollector
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import DriverFile

MAX_MANIFEST = 1 << 16  # in bytes


def with_named_paths(
    root: Root, files: tuple[DriverFile, ...]
) -> tuple[tuple[DriverFile, ...], tuple[Finding, ...]]:
    """Return FILES with additional target paths, and the findings.

    Each library gets the absolute paths that manifests in FILES contain for it. The function adds a finding
    for each manifest that cannot be read or is not JSON. Paths of libraries outside of FILES are ignored.
    """
    named: dict[str, list[str]] = {}
    collector = FindingCollector()
    for file in files:
        if file.kind not in {"config", "config32"} or not file.host_path.endswith((".json", ".icd")):
            continue
        try:
            data = root.read(file.host_path.removeprefix(root.host_prefix), limit=MAX_MANIFEST)
            paths = _absolute_paths(data, is_json=file.host_path.endswith(".json"))
        except (OSError, ValueError, RecursionError) as error:
            problem = reason(error) if isinstance(error, OSError) else "the content is not JSON"
            text = f"{file.host_path} cannot be read: {problem}; programs that need this file will not work"
            hint = "reinstall the driver's packages"
            collector.add("warning", "manifest-unreadable", file.host_path, text, hint)
            continue
        for path in paths:
            if is_plain(path) and root.exists(path):
                clean = "/" + os.path.normpath(path).lstrip("/")
                named.setdefault(root.host_path(root.resolve(path)), []).append(clean)
    return tuple(_with_targets(file, named) for file in files), tuple(collector.findings)


def _with_targets(file: DriverFile, named: dict[str, list[str]]) -> DriverFile:
    paths = named.get(file.host_path) if file.kind == "library" else None
    return replace(file, targets=tuple(dict.fromkeys([*file.targets, *paths]))) if paths else file


def _absolute_paths(data: bytes, *, is_json: bool) -> list[str]:
    """Return the absolute paths of libraries in a manifest.

    A JSON manifest contains an ICD, a layer or a list of layers. The function raises ValueError or
    RecursionError if a JSON manifest is invalid.
    """
    if not is_json:
        return [line for line in data.decode("utf-8", "replace").splitlines() if line.startswith("/")]
    document = json.loads(data)
    if not isinstance(document, dict):
        return []
    parts = [document.get("ICD"), document.get("layer")]
    layers = document.get("layers")
    parts.extend(layers if isinstance(layers, list) else [])
    paths = [part.get("library_path") for part in parts if isinstance(part, dict)]
    return [path for path in paths if isinstance(path, str) and path.startswith("/")]
