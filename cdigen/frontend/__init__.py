"""What every long-running process of cdigen is built on (docs/adding-a-front-end.md shows a whole one).

- ``chassis``: ``Chassis`` puts run directory, signals, sources of events and service manager together;
- ``host_state``: the current state of the host, from the specs and the daemon's inventory;
- ``rundir`` and ``status``: the run directory, ``status.json`` in it, and whether its writer still runs;
- ``http`` and ``metrics``: routes on a unix socket or a loopback port, and figures for Prometheus;
- ``log``, ``earlylog``, ``signals``, ``sd_notify``: one for each need of a Linux service.
"""
