"""The daemon around ``reconcile``: it turns triggers into cycles, and shows what became of them.

- ``report``: what a cycle did and how the host stands, as values; the rest of the folder shows them;
- ``status``: the same as ``status.json`` and ``inventory.json`` in the run directory;
- ``metrics`` and ``http``: the same for Prometheus and for health checks;
- ``log``: the same as JSON lines on stderr;
- ``notify``: the same, shorter, for systemd.
"""
