"""What the link tells of the runtime: small values, read by who logs and shows them."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.answer import Answer
    from cdigen.nri.compat import Abilities
    from cdigen.nri.messages import Configuration, Part
    from cdigen.nri.pods import Container, Pod


@frozen
class Introduced:
    """The runtime has said what it is."""

    configuration: Configuration
    abilities: Abilities


@frozen
class Accepted:
    """The plugin is registered, and has been told of all that is there: from now on it is asked."""


@frozen
class Decided:
    """A container that was about to be created was answered."""

    pod: Pod
    container: Container
    answer: Answer
    duration_s: float


@frozen
class Judged:
    """What was made of a container was rejected for ``reason``."""

    pod: Pod
    container: Container
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
    News = Introduced | Accepted | Decided | Judged | Surveyed | Unanswered | Lost
