"""The protocol between runtime and plugin: bytes of the runtime's socket to values and back.

From the outside in: ``mux`` (two connections on one socket), ``ttrpc`` (calls on one of them), ``messages``
(what a call carries, in ``protobuf``, by nri.proto) and ``session`` (one registration, from RegisterPlugin to
the end of the connection), which is what callers use. Nothing here opens a file, waits or knows a clock.

Source: containerd/nri v0.12.2, which is compatible down to 0.3 where cdigen uses it; no document describes
the two lower layers, so their source code does (pkg/net/multiplex, containerd/ttrpc).
"""
