"""The configuration options for NVIDIA's devices (``vendor_options: {nvidia: ...}``)."""

from __future__ import annotations

from cdigen.vendors.context import VendorOption

# Pods of NVIDIA's gpu-operator request the nodes and files for administration by this kind
# (setNRIPluginAnnotation).
MANAGEMENT_KIND = "management.nvidia.com/gpu"
MANAGEMENT = VendorOption(
    name="management",
    default=False,
    help="offer management.nvidia.com/gpu=all: every node and file for the administration of GPUs",
    management_kind=MANAGEMENT_KIND,
)
