"""A change to a configuration file that belongs to another program: ``Change``, and the ``Key``s it sets."""

from __future__ import annotations

from cdigen.value import frozen


@frozen
class Key:
    """One setting that is ours: its tables and name, and its values now and before, as the file writes them.

    ``before`` is None where there was nothing; ``made`` is how many of the tables in ``path``, counted from
    the innermost, were made for it.
    """

    path: tuple[str, ...]
    value: str
    before: str | None = None
    made: int = 0

    @property
    def name(self) -> str:
        """The key as people write it: ``engine.cdi_spec_dirs``."""
        return ".".join(part if "." not in part else f'"{part}"' for part in self.path)


@frozen
class Change:
    """What becomes of the file ``path`` of the host: ``None`` is no file.

    ``before`` is the content that the change was computed from.
    """

    path: str
    before: bytes | None
    after: bytes | None
    keys: tuple[Key, ...] = ()
