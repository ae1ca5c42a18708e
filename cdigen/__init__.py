"""cdigen makes a host's GPUs available to containers by writing CDI specifications.

The folders are the stages of the work; ``docs/architecture.md`` walks through them.
"""

__version__ = "0.1.0"
