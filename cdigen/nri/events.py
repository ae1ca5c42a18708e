"""Events that the link leaves for log, status and metrics: small values, as thousands may wait."""

from __future__ import annotations

from cdigen.nri.pods import Adjustment, shorten
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.decision.answer import Answer
    from cdigen.nri.decision.compat import Abilities
    from cdigen.nri.pods import ContainerName
    from cdigen.nri.wire.messages import RuntimeInfo, SynchronizePart
    from cdigen.nri.wire.session import InvalidCall


_MAX_NOTES = 8


def summarize(answer: Answer) -> Answer:
    """Return ANSWER without the adjustment, its texts cut."""
    notes = tuple([replace(note, text=shorten(note.text)) for note in answer.notes[:_MAX_NOTES]])
    return replace(answer, adjustment=Adjustment(), reason=shorten(answer.reason), notes=notes)


@frozen
class RuntimeConfigured:
    """The runtime has told its name, version and timeouts."""

    runtime: RuntimeInfo
    abilities: Abilities


@frozen
class PluginsChanged:
    """The runtime calls other ``plugins`` (``20-cdigen``) than before."""

    plugins: tuple[str, ...]


@frozen
class PluginActive:
    """The plugin is registered and synchronized: the runtime calls it for every new container."""


@frozen
class ContainerDecided:
    """CreateContainer was answered with ``answer``, of which this is the summary (``summarize``)."""

    name: ContainerName
    answer: Answer
    duration_s: float


@frozen
class Validated:
    """A container was rejected for ``reason``, after all plugins had adjusted it.

    ``plugin`` is the other one that has made it so, empty where none is known.
    """

    name: ContainerName
    reason: str
    plugin: str = ""


@frozen
class Synchronized:
    """Pods and containers that were there before the plugin; ``is_complete``: all of them could be held."""

    parts: tuple[SynchronizePart, ...]
    is_complete: bool


@frozen
class ConnectionLost:
    """The connection has ended, or there is none, for ``reason``."""

    reason: str
    was_active: bool


@frozen
class NotWithdrawn:
    """The plugin has left, and the runtime may call it once more, for ``reason``."""

    reason: str


@frozen
class BookChanged:
    """A container that had devices was removed."""


if TYPE_CHECKING:
    Event = (
        RuntimeConfigured
        | PluginsChanged
        | PluginActive
        | ContainerDecided
        | Validated
        | Synchronized
        | BookChanged
        | InvalidCall
        | ConnectionLost
        | NotWithdrawn
    )
