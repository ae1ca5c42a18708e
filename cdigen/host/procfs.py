"""/proc: what the kernel says about itself, as far as any vendor may ask."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

MACHINES = ("x86_64", "aarch64")


def read_text(root: Root, path: str, *, limit: int = 1 << 16) -> str:
    """Return a small text file of /proc or /sys; raises OSError.

    Bytes that are no UTF-8 become U+FFFD: such a file is rubbish, and its parser will say so.
    """
    return root.read(path, limit=limit).decode("utf-8", "replace")


def kernel_release(root: Root) -> str:
    """Return the running kernel's release (``uname -r``), or an empty string where it is unknown."""
    try:
        return read_text(root, "/proc/sys/kernel/osrelease").strip()
    except OSError:
        return ""
