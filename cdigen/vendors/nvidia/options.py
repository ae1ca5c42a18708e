"""The configuration options for NVIDIA's devices (``vendor_options: {nvidia: ...}``)."""

from __future__ import annotations

from cdigen.vendors.base import VendorOption

MANAGEMENT = VendorOption(
    name="management",
    default=False,
    help="offer management.nvidia.com/gpu=all: every node and file for the administration of GPUs",
)
