"""Checks of everything that could keep ``--device vendor/class=name`` from working: ``examine`` runs them.

One module for each family of checks; each check reads a ``Context`` and gives ``CheckResult``s. Nothing here
changes the host: remedies are commands for whoever reads them.
"""
