"""The plugin of the Node Resource Interface: GPUs by environment or annotation, with no custom runtime.

Bytes from the runtime's socket become calls, and answers become bytes, in modules that open nothing, wait for
nothing and know no clock:

- ``mux``: two connections on one socket;
- ``ttrpc``: messages on one of them;
- ``messages``: what a message holds, in protobuf (``nri.proto``); ``pods``: the same as values;
- ``session``: one registration with a runtime, from RegisterPlugin to the end of the connection;
- ``compat``: what the runtime that is there can do.

What a container asks for (``request``), where that counts (``policy``), what it has already (``served``),
which devices that means (``select``) and whether the driver will do (``requirements``, by ``machine``) make a
decision (``decide``, remembered in ``memory``), and that an ``answer``: CDI devices, or ``raw`` nodes and
mounts. All of these are pure as well.

The process (``plugin``) has two threads. The ``link`` answers the runtime (``serving``) and waits for no
disk; the other looks at the host (``known``), says what was done (``reporter``, ``status``, ``metrics``) and
audits what was there before (``audit``). On the ``desk`` they leave each other what they have.

Source: containerd/nri v0.12.2, which is compatible down to 0.3 where cdigen uses it; no document describes
the two lower layers, so their source code does (pkg/net/multiplex, containerd/ttrpc).
"""
