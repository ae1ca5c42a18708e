"""What happens to a resource's registration, as values: the events, and the actions that follow from them."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    # What the kubelet shows for our resource: our devices, others', none; or it is late, or cannot tell.
    Shown = Literal["ours", "others", "none", "late", "unknown"]
    # Of a socket's file: device, inode, which another may get, and when it was made: of a socket nothing but
    # making it changes that time (mtime), not chmod, chown or a label.
    Identity = tuple[int, int, int]


@frozen
class KubeletSeen:
    """This is at the path of kubelet.sock now; None: no socket."""

    identity: Identity | None


@frozen
class Served:
    """The server listens; its socket is there."""

    server: int


@frozen
class ServeFailed:
    """The server could not be started, or its list cannot be sent."""

    server: int
    reason: str


@frozen
class Accepted:
    """Register was answered for the server."""

    server: int


@frozen
class RegisterFailed:
    """Register was refused, or not answered; ``was_reached``: the kubelet may have seen it."""

    server: int
    reason: str
    was_reached: bool


@frozen
class StreamOpened:
    """The kubelet has asked the server for ListAndWatch."""

    server: int


@frozen
class StreamEnded:
    """A ListAndWatch of the server has ended, whoever ended it."""

    server: int


@frozen
class SocketGone:
    """The server's socket is no longer at its path."""

    server: int


@frozen
class ShownBy:
    """The kubelet's answer to what it shows for the resource."""

    shown: Shown


@frozen
class NeighboursSeen:
    """These are the names of other plugins' sockets now."""

    names: frozenset[str]


@frozen
class Tick:
    """Nothing happened, but ``Registration.due_s`` is over."""


if TYPE_CHECKING:
    Event = (
        KubeletSeen
        | Served
        | ServeFailed
        | Accepted
        | RegisterFailed
        | StreamOpened
        | StreamEnded
        | SocketGone
        | ShownBy
        | NeighboursSeen
        | Tick
    )


@frozen
class Serve:
    """Make a server with this number, on a socket with a fresh name; report ``Served`` or ``ServeFailed``."""

    server: int


@frozen
class Register:
    """Register the server with the kubelet; report ``Accepted`` or ``RegisterFailed``."""

    server: int


@frozen
class Stop:
    """Stop the server at once, with its streams, and remove its socket; also one that still starts."""

    server: int


@frozen
class AskShown:
    """Ask the kubelet what it shows for the resource; report ``ShownBy``."""


if TYPE_CHECKING:
    Action = Serve | Register | Stop | AskShown
