"""The protocol between kubelet and device plugins: gRPC on Unix sockets, with messages as values.

``server`` serves one resource to the kubelet, ``clients`` registers it and asks which container has what;
``messages`` turns values into bytes and back (deviceplugin.proto, podresources.proto). It is grpcio's asyncio
side: no thread per stream, and nothing wakes up while nothing happens, where each of its other servers polls
five times a second (grpcio, _cython/_cygrpc/completion_queue.pyx.pxi: _INTERRUPT_CHECK_PERIOD_MS).
"""

from __future__ import annotations

import os

# No lines of grpcio's own between those of the log: what has failed is reported to whoever asked for it. This
# is read when grpcio is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
