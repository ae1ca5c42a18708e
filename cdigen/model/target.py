"""A target: what the CDI library inside a runtime accepts, so that a spec can be made to fit it."""

from __future__ import annotations

from cdigen.value import frozen


@frozen
class Target:
    """The runtime ``name`` (``podman-4.3.0``), whose CDI ``library`` reads specs up to ``newest``.

    ``dots_in_class`` is false where the library is so old that it refuses a kind with a dot in its
    class. ``forgets_gids`` names the release, this one or one beside it, that reads a spec's
    additional groups and starts the process without them; empty where none does. ``doubts`` say which
    releases are newer than all that are known, and what each is taken for.
    """

    name: str
    library: str
    newest: str
    dots_in_class: bool
    forgets_gids: str = ""
    doubts: tuple[str, ...] = ()
