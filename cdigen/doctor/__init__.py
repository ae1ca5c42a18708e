"""Checks of everything that can prevent ``--device vendor/class=name`` from working.

``examine`` runs the checks. Each module with ``CHECKS`` contains checks of one topic, such as the driver. A
check reads a ``Context`` and yields ``CheckResult`` values. Checks do not change the host. A remedy is a
command for the administrator.
"""
