"""The configuration file: YAML in, checked ``Settings`` out."""

from cdigen.config.reading import MAX_SIZE, as_error, format_fault, parse, read
from cdigen.config.settings import (
    DEFAULT_PATH,
    MODES,
    SPEC_DIRS,
    STALE_SPECS,
    STATE_DIR,
    AllowRule,
    DaemonConfig,
    GpuKind,
    NriConfig,
    Settings,
)
from cdigen.config.tree import RULE

__all__ = [
    "DEFAULT_PATH",
    "MAX_SIZE",
    "MODES",
    "RULE",
    "SPEC_DIRS",
    "STALE_SPECS",
    "STATE_DIR",
    "AllowRule",
    "DaemonConfig",
    "GpuKind",
    "NriConfig",
    "Settings",
    "as_error",
    "format_fault",
    "parse",
    "read",
]
