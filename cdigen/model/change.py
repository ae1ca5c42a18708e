"""A change to a configuration file of another program: ``Change``."""

from __future__ import annotations

from cdigen.value import frozen


@frozen
class Change:
    """The new content of the file ``path`` of the host, and the old one it was computed from; None: no file.

    ``keys`` are the names of the keys that are set, as people write them: ``engine.cdi_spec_dirs``.
    """

    path: str
    before: bytes | None
    after: bytes | None
    keys: tuple[str, ...] = ()
