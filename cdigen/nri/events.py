"""The events that the NRI link sends to the main thread, for log, status and metrics.

Events are small values, because thousands of events can be pending.
"""

from __future__ import annotations

from cdigen.nri.pods import Adjustment, shorten
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.decision.result.compat import Abilities
    from cdigen.nri.decision.result.injection import InjectionResult
    from cdigen.nri.pods import ContainerName
    from cdigen.nri.wire.messages import RuntimeInfo, SynchronizePart
    from cdigen.nri.wire.session import InvalidCall


_MAX_IGNORED = 8


def summarize(result: InjectionResult) -> InjectionResult:
    """Return RESULT without its adjustment, with shortened texts and up to _MAX_IGNORED ignored requests."""
    ignored_requests = tuple(
        [replace(ignored, text=shorten(ignored.text)) for ignored in result.ignored_requests[:_MAX_IGNORED]]
    )
    return replace(
        result, adjustment=Adjustment(), reason=shorten(result.reason), ignored_requests=ignored_requests
    )


@frozen
class RuntimeConfigured:
    """The runtime has sent Configure, which contains the runtime's name, version and timeouts."""

    runtime: RuntimeInfo
    abilities: Abilities


@frozen
class PluginsChanged:
    """The list of the plugins that the runtime calls (such as ``20-cdigen``) has changed."""

    plugins: tuple[str, ...]


@frozen
class PluginActive:
    """The plugin is registered and synchronized, and the runtime calls it for every new container."""


@frozen
class ContainerDecided:
    """The plugin has responded to CreateContainer; ``result`` is the summary from ``summarize``."""

    name: ContainerName
    result: InjectionResult
    duration_s: float


@frozen
class ContainerRejected:
    """The plugin has rejected a container after all plugins had adjusted it.

    ``plugin`` is the other plugin that caused the rejection. It is empty if the cause is unknown.
    """

    name: ContainerName
    reason: str
    plugin: str = ""


@frozen
class Synchronized:
    """The runtime has sent ``parts``, the pods and containers that existed before the registration.

    ``is_complete`` is false if the link dropped some parts.
    """

    parts: tuple[SynchronizePart, ...]
    is_complete: bool


@frozen
class ConnectionLost:
    """The connection has ended or could not be established.

    ``was_active`` is true if the plugin was registered and synchronized.
    """

    reason: str
    was_active: bool


@frozen
class DeregistrationFailed:
    """The plugin has disconnected, but the deregistration has failed for ``reason``.

    The runtime may call the plugin once more.
    """

    reason: str


@frozen
class InjectedContainersChanged:
    """The runtime has removed a container with injected devices."""


if TYPE_CHECKING:
    Event = (
        RuntimeConfigured
        | PluginsChanged
        | PluginActive
        | ContainerDecided
        | ContainerRejected
        | Synchronized
        | InjectedContainersChanged
        | InvalidCall
        | ConnectionLost
        | DeregistrationFailed
    )
