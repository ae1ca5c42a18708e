"""The configuration file: ``read`` or ``parse`` its text, and get checked ``Settings``."""

from cdigen.config.reading import MAX_SIZE, OLD_KEY, as_error, format_fault, parse, read
from cdigen.config.settings import (
    DEFAULT_PATH,
    MODES,
    SPEC_DIRS,
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
    "OLD_KEY",
    "RULE",
    "SPEC_DIRS",
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
