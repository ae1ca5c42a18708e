"""What the link tells of the runtime: small values, read by who logs and shows them."""

from __future__ import annotations

from cdigen.nri.answer import Answer
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.compat import Abilities
    from cdigen.nri.messages import Configuration, Part
    from cdigen.nri.pods import Container, Pod


# The longest name of an object of Kubernetes (RFC 1123's of a host).
_MAX_NAME = 253
_MAX_TEXT = 1_000
_MAX_NOTES = 8


@frozen
class Who:
    """A container by its names, which are cut: thousands of news may wait."""

    namespace: str
    pod: str
    container: str


def who(pod: Pod, container: Container) -> Who:
    """Return the names of CONTAINER of POD."""
    return Who(
        namespace=pod.namespace[:_MAX_NAME], pod=pod.name[:_MAX_NAME], container=container.name[:_MAX_NAME]
    )


def short(text: str) -> str:
    """Return TEXT of somebody else, cut."""
    return text[:_MAX_TEXT]


def brief(answer: Answer) -> Answer:
    """Return what there is to say of ANSWER, without what the container gets."""
    notes = tuple([replace(note, text=short(note.text)) for note in answer.notes[:_MAX_NOTES]])
    return Answer(
        outcome=answer.outcome,
        devices=answer.devices,
        cause=answer.cause,
        reason=short(answer.reason),
        notes=notes,
    )


@frozen
class Introduced:
    """The runtime has said what it is."""

    configuration: Configuration
    abilities: Abilities


@frozen
class Neighboured:
    """The runtime has told which plugins it asks (``20-cdigen``), and they are others than before."""

    plugins: tuple[str, ...]


@frozen
class Accepted:
    """The plugin is registered, and has been told of all that is there: from now on it is asked."""


@frozen
class Decided:
    """A container that was about to be created was answered; ``answer`` is ``brief``."""

    who: Who
    answer: Answer
    duration_s: float


@frozen
class Judged:
    """What was made of a container was rejected for ``reason``."""

    who: Who
    reason: str


@frozen
class Surveyed:
    """Pods and containers that were there before us; None: there were more than can be held."""

    part: Part | None
    is_first: bool
    is_last: bool


@frozen
class Unanswered:
    """A call that could not be read, or is not known."""

    method: str
    message: str


@frozen
class Lost:
    """The connection has ended, or there is none, for ``reason``."""

    reason: str
    was_accepted: bool


if TYPE_CHECKING:
    News = Introduced | Neighboured | Accepted | Decided | Judged | Surveyed | Unanswered | Lost
