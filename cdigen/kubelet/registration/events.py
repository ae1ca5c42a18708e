"""The events of a resource's registration, and the actions that follow from the events, as values."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    # The owner of the devices that the kubelet shows for the resource (module ``registration``). ours:
    # cdigen. others: another plugin. none: the kubelet shows no devices. late: the kubelet did not answer in
    # time. unknown: the owner cannot be determined, for example because the kubelet cannot show devices.
    AllocatableOwner = Literal["ours", "others", "none", "late", "unknown"]
    # Device, inode and mtime of a socket's file. A new file may get the inode of a removed file. The mtime
    # of a socket is the time of its creation. chmod, chown and a new SELinux label do not change the mtime.
    Identity = tuple[int, int, int]


@frozen
class KubeletSocketChanged:
    """The socket at the path of kubelet.sock has changed; ``identity`` is None if there is no socket."""

    identity: Identity | None


@frozen
class ServerStarted:
    """The server listens at its socket."""

    server: int


@frozen
class ServerFailed:
    """The server did not start, for example because the socket cannot be made."""

    server: int
    reason: str


@frozen
class RegistrationAccepted:
    """The kubelet accepted Register for the server."""

    server: int


@frozen
class RegistrationFailed:
    """The kubelet refused Register or did not answer.

    If ``was_reached`` is set, the kubelet may have received the request.
    """

    server: int
    reason: str
    was_reached: bool


@frozen
class StreamOpened:
    """The kubelet has called ListAndWatch on the server."""

    server: int


@frozen
class StreamEnded:
    """The kubelet or cdigen has ended a ListAndWatch stream of the server."""

    server: int


@frozen
class SocketRemoved:
    """The server's socket was removed from its path."""

    server: int


@frozen
class AllocatableReported:
    """The query of ``GetAllocatable`` has ended, possibly without an answer of the kubelet."""

    owner: AllocatableOwner


@frozen
class OtherPluginsDetected:
    """The folder has the sockets ``names`` of other plugins."""

    names: frozenset[str]


@frozen
class Tick:
    """The time ``Registration.due_s`` is reached."""


if TYPE_CHECKING:
    Event = (
        KubeletSocketChanged
        | ServerStarted
        | ServerFailed
        | RegistrationAccepted
        | RegistrationFailed
        | StreamOpened
        | StreamEnded
        | SocketRemoved
        | AllocatableReported
        | OtherPluginsDetected
        | Tick
    )


@frozen
class StartServer:
    """Start a server with this number on a fresh socket; report ``ServerStarted`` or ``ServerFailed``."""

    server: int


@frozen
class Register:
    """Register the server with the kubelet; report ``RegistrationAccepted`` or ``RegistrationFailed``."""

    server: int


@frozen
class StopServer:
    """Stop the server and its streams at once and remove its socket, also while the server is starting."""

    server: int


@frozen
class GetAllocatable:
    """Query the allocatable devices of the resource; report ``AllocatableReported``."""


if TYPE_CHECKING:
    Action = StartServer | Register | StopServer | GetAllocatable
