"""TLS contexts that follow their files: ``Contexts``, since certificates, keys and CAs are replaced."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable


def no_password() -> str:
    """Refuse a key that is encrypted, for ``load_cert_chain``: the library would ask on the terminal."""
    raise ValueError("the key has a password, which nobody can enter here")


class Contexts:
    """Called, it returns the context that MAKE makes of FILES, made anew when one of those has changed.

    OSError, ValueError at first: they cannot be used. Later, those before them still serve: a pair of files
    is not replaced in one step.
    """

    def __init__(self, files: Iterable[str], make: Callable[[], ssl.SSLContext]) -> None:
        self._files = tuple(files)
        self._make = make
        self._lock = threading.Lock()
        self._seen = self._look()
        self._made = make()

    def __call__(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        with self._lock, suppress(OSError, ValueError):
            seen = self._look()
            if seen != self._seen:
                self._made, self._seen = self._make(), seen
        return self._made

    def _look(self) -> list[tuple[int, int]]:
        return [(status.st_mtime_ns, status.st_ino) for status in map(os.stat, self._files)]
