"""The protocol between the kubelet and device plugins: gRPC on Unix sockets, with messages as values.

``server`` serves one resource to the kubelet. ``clients`` registers the resource and requests the list of
pods. ``messages`` encodes and decodes messages (deviceplugin.proto, podresources.proto). The package uses the
asyncio API of grpcio, which needs no thread for each stream and causes no wake-ups while idle. The
synchronous servers of grpcio poll five times a second (grpcio, _cython/_cygrpc/completion_queue.pyx.pxi:
_INTERRUPT_CHECK_PERIOD_MS).
"""

from __future__ import annotations

import os

# grpcio must not write to the log, because each error is returned to its caller. grpcio reads this variable
# at its import.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# gRPC reads an address as a URI (grpc, src/core/util/uri.cc), where these characters have a special meaning.
_ESCAPED = str.maketrans({letter: f"%{ord(letter):02X}" for letter in "%?#"})


def address(path: str) -> str:
    """Return the gRPC address of the socket at PATH."""
    return f"unix:{path.translate(_ESCAPED)}"
