"""A change to a configuration file of another program: ``Change``."""

from __future__ import annotations

from cdigen.value import frozen


@frozen
class Change:
    """The content of the host's file ``path`` before and after a change.

    ``before`` or ``after`` is None if the file does not exist then. ``keys`` are the full names of the keys
    that the change sets (``engine.cdi_spec_dirs``).
    """

    path: str
    before: bytes | None
    after: bytes | None
    keys: tuple[str, ...] = ()
