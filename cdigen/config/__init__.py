"""The configuration file: YAML in, checked ``Settings`` out."""

from cdigen.config.reading import MAX_SIZE, RULE, parse, problem, read, refusal
from cdigen.config.settings import (
    DEFAULT_PATH,
    MODES,
    ON_GONE,
    SPEC_DIRS,
    STATE_DIR,
    Allowance,
    Daemon,
    GpuKind,
    Nri,
    Settings,
)

__all__ = [
    "DEFAULT_PATH",
    "MAX_SIZE",
    "MODES",
    "ON_GONE",
    "RULE",
    "SPEC_DIRS",
    "STATE_DIR",
    "Allowance",
    "Daemon",
    "GpuKind",
    "Nri",
    "Settings",
    "parse",
    "problem",
    "read",
    "refusal",
]
