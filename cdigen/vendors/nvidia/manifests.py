"""Give libraries the absolute paths by which manifests of EGL, Vulkan and OpenCL name them.

EGL's and Vulkan's are JSON, OpenCL's (``nvidia.icd``) is one line. They name a library by SONAME, as
NVIDIA ships them, or by an absolute path, as NixOS rewrites them (nixpkgs issue 461949). The absolute
path must exist in the container, or the manifest is useless.
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

MAX_SIZE = 1 << 16


def with_named_paths(
    root: Root, files: tuple[DriverFile, ...]
) -> tuple[tuple[DriverFile, ...], tuple[Finding, ...]]:
    """Give each library the absolute paths under which a manifest among FILES loads it.

    A manifest that is not JSON is a finding; one that names a foreign library is left as it is.
    """
    named: dict[str, list[str]] = {}
    collector = FindingCollector()
    for file in files:
        if file.kind != "config" or not file.host_path.endswith((".json", ".icd")):
            continue
        try:
            data = root.read(file.host_path.removeprefix(root.seen_at), limit=MAX_SIZE)
            paths = _absolute_paths(data, is_json=file.host_path.endswith(".json"))
        except (OSError, ValueError, RecursionError) as error:
            problem = reason(error) if isinstance(error, OSError) else "it is not JSON"
            text = f"{file.host_path} cannot be read: {problem}; what it is for will not work"
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
    """Return the absolute paths of libraries in a manifest: an ICD, a layer, or a list of layers.

    Raises ValueError or RecursionError for what should be JSON and is none.
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
