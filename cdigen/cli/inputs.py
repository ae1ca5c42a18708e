"""Read files that the user names on the command line: literal paths, pipes, standard input."""

from __future__ import annotations

import sys
from errno import EFBIG

from cdigen.host.root import reason, shown
from cdigen.model.errors import StoreError


def read_bounded(path: str, *, limit: int) -> bytes:
    """Return the content of PATH (``-``: standard input); raises OSError, EFBIG above LIMIT bytes.

    Unlike what is found on a host, a path that the user typed may be a pipe or a device.
    """
    if path == "-":
        data = sys.stdin.buffer.read(limit + 1)
    else:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(EFBIG, f"larger than {limit} bytes", path)
    return data


def read_input(path: str, *, limit: int) -> bytes:
    """Return the content of PATH as ``read_bounded`` does; raises StoreError."""
    try:
        return read_bounded(path, limit=limit)
    except OSError as error:
        raise StoreError(
            f"{shown(path)} cannot be read: {reason(error)}", hint="check its path and mode"
        ) from error
    except ValueError:
        raise StoreError(f"{shown(path)} is not a path", hint="a path cannot hold a NUL byte") from None
