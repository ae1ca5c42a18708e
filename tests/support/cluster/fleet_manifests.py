"""The manifests of packaging/kubernetes with a user's overlay: `rendered`."""

from __future__ import annotations

import tempfile
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from support.paths import REPOSITORY
from support.processes import captured

if TYPE_CHECKING:
    from collections.abc import Iterable

MANIFESTS = REPOSITORY / "packaging/kubernetes"
NAMESPACE = "cdigen-system"
# NFD sets this label on nodes with NVIDIA GPUs.
LABEL = "feature.node.kubernetes.io/pci-10de.present"
# The device nodes have no driver. Without the key `health`, the daemon would report them as unusable.
CONFIG = """\
profiles: [{name: default, class: gpu, layout: files, hook: none}]
health: {ignore: [node-unusable]}
daemon: {settle_timeout_s: 2}
nri: {allow: [{namespaces: ["*"]}]}
"""
KUSTOMIZATION = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [{resources}]
nameSuffix: "{suffix}"
labels: [{{pairs: {{app.kubernetes.io/name: "cdigen{suffix}"}}, includeSelectors: true}}]
configMapGenerator: [{{name: cdigen-config, behavior: replace, files: [config.yaml]}}]
"""


def rendered(
    kubectl: Path,
    *,
    overlays: Iterable[str] = ("overlays/old-kubernetes",),
    suffix: str = "",
    config: str = CONFIG,
) -> list[dict[str, Any]]:
    """Return the objects of `kubectl kustomize` for OVERLAYS with CONFIG; names end with SUFFIX."""
    with tempfile.TemporaryDirectory(prefix="overlay-") as name:
        folder = Path(name)
        resources = ", ".join(relpath(MANIFESTS / overlay, folder.resolve()) for overlay in overlays)
        text = KUSTOMIZATION.format(resources=resources, suffix=suffix)
        (folder / "kustomization.yaml").write_text(text)
        (folder / "config.yaml").write_text(config)
        return kustomized(kubectl, folder)


def kustomized(kubectl: Path, folder: Path) -> list[dict[str, Any]]:
    """Return the objects of the kustomization in FOLDER; fails if it uses a deprecated field."""
    done = captured([kubectl, "kustomize", folder])
    assert (done.returncode, done.stderr) == (0, "")
    return list(yaml.safe_load_all(done.stdout))
