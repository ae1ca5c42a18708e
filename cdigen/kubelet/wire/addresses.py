"""Where gRPC finds a Unix socket: ``address``."""

from __future__ import annotations

# gRPC reads an address as a URI (grpc, src/core/util/uri.cc): these would begin something else than a path.
_ESCAPED = str.maketrans({letter: f"%{ord(letter):02X}" for letter in "%?#"})


def address(path: str) -> str:
    """Return the address of the socket at PATH."""
    return f"unix:{path.translate(_ESCAPED)}"
