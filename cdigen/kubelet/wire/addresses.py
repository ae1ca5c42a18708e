"""``address``: the gRPC address of a Unix socket."""

from __future__ import annotations

# gRPC reads an address as a URI (grpc, src/core/util/uri.cc), where these characters have a special meaning.
_ESCAPED = str.maketrans({letter: f"%{ord(letter):02X}" for letter in "%?#"})


def address(path: str) -> str:
    """Return the gRPC address of the socket at PATH."""
    return f"unix:{path.translate(_ESCAPED)}"
