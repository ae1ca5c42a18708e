"""cdigen makes a host's GPUs available to containers by writing CDI specifications.

``docs/contributing/architecture.md`` describes the folders of the package.
"""

__version__ = "0.1.0"
