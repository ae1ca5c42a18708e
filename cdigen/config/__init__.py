"""The configuration file; ``read`` returns checked ``Settings`` from its text."""

from __future__ import annotations

from cdigen.config.settings import (
    DEFAULT_PATH,
    MAX_SIZE,
    MODES,
    SPEC_DIRS,
    AllowRule,
    DaemonConfig,
    DevicesConfig,
    GpuKind,
    HealthConfig,
    KubeletConfig,
    NriConfig,
    PageConfig,
    ResourceRow,
    Settings,
    SharedMemory,
    SharingRow,
    matches,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.config.reading import as_error, format_fault, read
    from cdigen.config.tree import RULE

__all__ = [
    "DEFAULT_PATH",
    "MAX_SIZE",
    "MODES",
    "RULE",
    "SPEC_DIRS",
    "AllowRule",
    "DaemonConfig",
    "DevicesConfig",
    "GpuKind",
    "HealthConfig",
    "KubeletConfig",
    "NriConfig",
    "PageConfig",
    "ResourceRow",
    "Settings",
    "SharedMemory",
    "SharingRow",
    "as_error",
    "format_fault",
    "matches",
    "read",
]


def __getattr__(name: str) -> Any:
    """Return the attribute NAME of ``config.reading`` or ``config.tree``, and import these modules.

    The import happens at the first use, because it takes 2 ms, and most hosts have no configuration.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cdigen.config import reading, tree  # noqa: PLC0415 - see above

    return getattr(tree if name == "RULE" else reading, name)
