"""The protocol between runtime and plugin: a decoder of bytes from the socket, and an encoder of responses.

The package has four layers, from the socket up:

- ``mux``: two connections on one socket;
- ``ttrpc``: calls on one connection;
- ``messages``: the contents of calls, encoded with ``service.descriptors`` according to nri.proto;
- ``session``: one registration, from RegisterPlugin to the end of the connection. Other packages use this
  layer.

The package opens files only during its import. It does not block, and it reads no clock.

Source: containerd/nri v0.12.2. The parts that cdigen uses are compatible with versions since 0.3. The two
lower layers are documented only by their source code (pkg/net/multiplex, containerd/ttrpc).
"""
