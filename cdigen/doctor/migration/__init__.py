"""The migration from other tools to cdigen, on a host (``plan``) and in files (``usage``).

No function changes the host. The paths of each tool are from the packages and the sources of the tool.
docs/how-to/migrate.md describes the use of the steps.
"""
