"""What the link tells of the runtime: small values, read by who logs and shows them."""

from __future__ import annotations

from cdigen.nri.decision.answer import Answer
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.decision.compat import Abilities
    from cdigen.nri.pods import Container, Pod
    from cdigen.nri.wire.messages import RuntimeInfo, SynchronizePart


# The longest name of an object of Kubernetes (RFC 1123's of a host).
_MAX_NAME = 253
_MAX_TEXT = 1_000
_MAX_NOTES = 8


@frozen
class ContainerName:
    """A container by its names, which are cut: thousands of news may wait."""

    namespace: str
    pod: str
    container: str


def container_name(pod: Pod, container: Container) -> ContainerName:
    """Return the names of CONTAINER of POD."""
    return ContainerName(
        namespace=pod.namespace[:_MAX_NAME], pod=pod.name[:_MAX_NAME], container=container.name[:_MAX_NAME]
    )


def shorten(text: str) -> str:
    """Return TEXT of somebody else, cut."""
    return text[:_MAX_TEXT]


def summarize(answer: Answer) -> Answer:
    """Return what there is to say of ANSWER, without what the container gets."""
    notes = tuple([replace(note, text=shorten(note.text)) for note in answer.notes[:_MAX_NOTES]])
    return Answer(
        outcome=answer.outcome,
        devices=answer.devices,
        cause=answer.cause,
        reason=shorten(answer.reason),
        notes=notes,
    )


@frozen
class RuntimeConfigured:
    """The runtime has said what it is."""

    configuration: RuntimeInfo
    abilities: Abilities


@frozen
class PluginsChanged:
    """The runtime has told which plugins it asks (``20-cdigen``), and they are others than before."""

    plugins: tuple[str, ...]


@frozen
class PluginActive:
    """The plugin is registered, and has been told of all that is there: from now on it is asked."""


@frozen
class ContainerDecided:
    """A container that was about to be created was answered; ``answer`` is ``summarize``."""

    who: ContainerName
    answer: Answer
    duration_s: float


@frozen
class Validated:
    """What was made of a container was rejected for ``reason``."""

    who: ContainerName
    reason: str


@frozen
class Synchronized:
    """Pods and containers that were there before us; None: there were more than can be held."""

    part: SynchronizePart | None
    is_first: bool
    is_last: bool


@frozen
class CallRefused:
    """A call that could not be read, or is not known."""

    method: str
    message: str


@frozen
class ConnectionLost:
    """The connection has ended, or there is none, for ``reason``."""

    reason: str
    was_accepted: bool


if TYPE_CHECKING:
    Event = (
        RuntimeConfigured
        | PluginsChanged
        | PluginActive
        | ContainerDecided
        | Validated
        | Synchronized
        | CallRefused
        | ConnectionLost
    )
