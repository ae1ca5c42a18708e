"""Why ``--device vendor/class=name`` would not work on this host, and what fixes it: ``examine``.

One module for each family of checks; each check reads a ``Context`` and gives ``Verdict``s. Nothing here
changes the host: remedies are commands for whoever reads them.
"""
