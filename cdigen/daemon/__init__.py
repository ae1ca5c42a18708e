"""The reconcile loop of ``cdigen run``. Each cycle updates the specs of this host.

- ``loop``: the process ``Daemon``, which waits for events, runs a cycle and reports the result;
- ``reconciler``: a single cycle;
- ``observation``: the discovery of the devices of all vendors;
- ``settle``: the wait for a host that is still changing;
- ``states``: the tables that decide whether a vendor's specs are written, kept or withdrawn;
- ``spec_updates``: the writing and the withdrawal of specs;
- ``report``: the results of cycles and the state of the host, as values for ``status``, ``metrics`` and
  ``log``;
- ``health``: the thread that receives health events;
- ``stats``: the device stats (memory, load, temperature);
- ``metrics``: the metrics of cycles, and of the health and the stats of devices;
- ``device_users``: the users of devices;
- ``routes``: the HTTP routes except metrics and health;
- ``page``: the HTML page;
- ``nvidia_docker``: the API of nvidia-docker 1.0;
- ``setup``: the settings from the configuration and the command line.
"""
