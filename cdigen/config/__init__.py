"""The configuration file: YAML in, checked ``Settings`` out."""

from cdigen.config.reading import MAX_SIZE, parse, problem, read, refusal
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
from cdigen.config.tree import RULE

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
