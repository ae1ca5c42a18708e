"""The common parts of every long-running process of cdigen (docs/adding-a-service.md has an example).

- ``runner``: ``ServiceRunner`` combines run directory, signals, event sources and the service manager;
- ``standby``: ``StandbyWaiter`` waits for the lock of the run directory;
- ``host_state``: the current state of the host, from the specs and the daemon's inventory;
- ``daemon_inventory``: the daemon's inventory, for commands that read it once;
- ``rundir``, ``status`` and ``instance``: the run directory, its ``status.json``, and the name of the process
  that wrote the status;
- ``http``, ``http_security`` and ``metrics``: routes on a unix socket and optionally on a loopback port, and
  Prometheus metrics;
- ``log``, ``buffered_log``, ``signals``, ``sd_notify``: log lines, signals and the protocol of sd_notify(3);
- ``descriptors``: protobuf messages without generated code.
"""
