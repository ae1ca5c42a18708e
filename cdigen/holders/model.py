"""``Container``: a container and what it has of the host's devices, by an engine's word."""

from __future__ import annotations

from cdigen.value import frozen


@frozen
class Container:
    """A running container: ``id`` and ``name`` are its engine's, ``devices`` are CDI names.

    ``nodes`` are device nodes of the host. ``since_s`` is when it was made, None where that is not told.
    """

    id: str
    name: str
    devices: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    since_s: float | None = None


@frozen
class Told:
    """What an engine (``podman``) tells: its running ``containers`` that have devices.

    ``problem`` says why that is not all, and ``is_silent`` that it is nothing.
    """

    engine: str
    containers: tuple[Container, ...] = ()
    problem: str = ""
    is_silent: bool = False
