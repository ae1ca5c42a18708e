"""``ReloadingTlsContext``: a TLS context that is made again when its files change."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable


def no_password() -> str:
    """Raise ValueError for an encrypted key, because ``load_cert_chain`` would prompt on the terminal."""
    raise ValueError("the key is encrypted, which is not supported")


class ReloadingTlsContext:
    """A TLS context that MAKE makes from FILES; a call returns the present context.

    If a file has changed, the call makes a new context. The constructor raises OSError or ValueError if the
    files cannot be used. A call does not raise these errors, and returns the earlier context. A pair of files
    is not replaced in one step, so such errors may be temporary.
    """

    def __init__(self, files: Iterable[str], make: Callable[[], ssl.SSLContext]) -> None:
        self._files = tuple(files)
        self._make = make
        self._lock = threading.Lock()
        self._versions = self._read_versions()
        self._context = make()

    def __call__(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        with self._lock, suppress(OSError, ValueError):
            versions = self._read_versions()
            if versions != self._versions:
                self._context, self._versions = self._make(), versions
        return self._context

    def _read_versions(self) -> list[tuple[int, int]]:
        return [(status.st_mtime_ns, status.st_ino) for status in map(os.stat, self._files)]
