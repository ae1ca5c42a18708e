"""The common parts of every long-running process of cdigen.

docs/contributing/adding-a-service.md has an example.

- ``process``: signals, the service manager, its watchdog and the log;
- ``runner``: ``ServiceRunner`` combines run directory, signals, event sources and the service manager;
- ``configuration``: the last valid configuration, and its reload;
- ``host_state``: the current state of the host, from the specs and the daemon's inventory;
- ``daemon_inventory``: the daemon's inventory, for commands that read it once;
- ``rundir`` and ``status``: the run directory and its ``status.json``;
- ``http``, ``metrics`` and ``durations``: the HTTP server with its routes, and Prometheus metrics;
- ``liveness`` and ``polling``: a thread that serves a peer, and queries that may hang;
- ``descriptors``: protobuf messages without generated code.
"""
