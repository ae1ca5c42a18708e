"""``UserContainer``: a container and its devices in the report of an engine."""

from __future__ import annotations

from cdigen.value import frozen


@frozen
class UserContainer:
    """A running container: its ``id`` and ``name`` in the engine, and its ``devices`` as CDI names.

    ``nodes`` are device nodes of the host. ``since_s`` is the creation time of the container, None if
    unknown.
    """

    id: str
    name: str
    devices: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    since_s: float | None = None


@frozen
class EngineReport:
    """The running ``containers`` of an engine (``podman``) that have devices.

    ``problem`` is the reason why containers are missing, or empty. ``has_failed`` is true if all
    containers are missing.
    """

    engine: str
    containers: tuple[UserContainer, ...] = ()
    problem: str = ""
    has_failed: bool = False
