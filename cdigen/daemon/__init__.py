"""The reconcile loop of ``cdigen run``: events become cycles, which keep the specs of this host true.

- ``loop``: ``Daemon``, the process: waits for events, runs a cycle, reports;
- ``reconciler``: one cycle: ``observation`` reads the host, ``patience`` waits for one between two states,
  ``states`` decides by two tables, ``spec_updates`` writes and withdraws;
- ``report``: what cycles did and how the host is, as values, which ``status``, ``metrics`` and ``log`` show;
- ``setup``: what the configuration makes of it; ``packages``: whether a package manager is at work.
"""
