"""The plugin of the Node Resource Interface: GPUs by environment or annotation, with no custom runtime.

Bytes from the runtime's socket become calls, and answers become bytes, in modules that open nothing, wait for
nothing and know no clock:

- ``mux``: two connections on one socket;
- ``ttrpc``: messages on one of them;
- ``messages``: what a message holds, in protobuf (``nri.proto``); ``pods``: the same as values;
- ``session``: one registration with a runtime, from RegisterPlugin to the end of the connection;
- ``compat``: what the runtime that is there can do.

Source: containerd/nri v0.12.2, which is compatible down to 0.3 where cdigen uses it; no document describes
the two lower layers, so their source code does (pkg/net/multiplex, containerd/ttrpc).
"""
