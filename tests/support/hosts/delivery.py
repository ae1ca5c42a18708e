"""The spec that a host with hooks gets for a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.hosts import driver_files
from support.hosts.driver_files import put
from support.hosts.nvidia import boot, discover, places

from cdigen.model.profile import DEFAULT
from cdigen.pipeline import generate
from cdigen.pipeline.delivery import DeliveryOptions
from cdigen.pipeline.generate import GenerateOptions
from cdigen.value import replace

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.model.findings import Finding


SCRIPT, PYTHON, NVIDIAS = "/usr/libexec/cdigen/cdigen-hook", "/usr/bin/python3", "/usr/bin/nvidia-cdi-hook"
MODULE = "/usr/libexec/cdigen/lib/cdigen/hook/main.py"
DEBIAN = "/usr/lib/x86_64-linux-gnu"
VIEWS = "/var/lib/cdigen/views"
# The finding on every spec of a complete driver without a hook.
NO_COMPAT = ("info", "no-forward-compatibility")


def hook_host(tmp_path: Path) -> Path:
    """Create a Debian host with a GPU, cdigen's hook and NVIDIA's hook, and return its root."""
    driver_files.debian_13(tmp_path)
    boot(tmp_path, 1)
    for program in (SCRIPT, MODULE, PYTHON, NVIDIAS):
        put(tmp_path / f".{program}", b"#!/bin/true\n", 0o755)
    return tmp_path


def spec(
    root: Path,
    *,
    write: bool = True,
    container_root: str = "/",
    state: str = "/var/lib/cdigen",
    machine: str = "x86_64",
    kind: str = "nvidia.com/gpu",
    python: str = PYTHON,
    **profile_changes: Any,
) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Return the document-level edits of the spec of KIND, and the findings. PROFILE_CHANGES apply."""
    delivery = DeliveryOptions(
        hook_script=SCRIPT,
        hook_python=python,
        nvidia_hook=NVIDIAS,
        state_dir=f"{root}{state}",
        make_views=write,
    )
    options = GenerateOptions(
        profiles=(replace(DEFAULT, **profile_changes),), container_driver_root=container_root
    )
    inventory = discover(root)
    inventory = replace(inventory, driver=replace(inventory.driver, architecture=machine))
    products, broken = generate.generate_specs(
        {"nvidia": inventory}, host=places(root).host, options=options, delivery=delivery
    )
    assert not broken
    (product,) = (product for product in products if product.kind == kind)
    return product.document["containerEdits"], product.findings


def mounts(edits: dict[str, Any]) -> dict[str, str]:
    return {mount["containerPath"]: mount["hostPath"] for mount in edits["mounts"]}


def rules(findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(finding.severity, finding.rule) for finding in findings if finding.path != "x11"]


def is_files(edits: dict[str, Any]) -> bool:
    return f"{DEBIAN}/libcuda.so.1" in mounts(edits) and "/usr/local/nvidia" not in mounts(edits)
