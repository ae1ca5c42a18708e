"""What the configuration may say of NVIDIA's devices alone: ``vendor_options: {nvidia: ...}``."""

from __future__ import annotations

from cdigen.vendors.base import Option

MANAGEMENT = Option(
    name="management",
    default=False,
    help="offer management.nvidia.com/gpu=all: every node and file with which GPUs are administered",
)
