"""Plan changes to the configuration files of runtimes.

The module of each runtime has a function ``plan``, which returns the changes.
"""
