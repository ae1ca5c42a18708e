"""An engine's API socket whose responses the test sets: `EngineDouble`."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from support.waiting import pause

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


LISTED = "/containers/json"


class EngineDouble:
    """Listens at PATH until it is closed. ANSWERS has the response body for each target.

    ``mode``: ``answers``, ``hangs`` (accepts and sends nothing), ``drips`` (a byte each 50 ms, without end),
    ``floods`` (without end), ``garbage``, ``refuses`` (status 500). ``targets`` has the requested targets.
    """

    def __init__(self, path: Path, answers: Mapping[str, Any] | None = None, mode: str = "answers") -> None:
        self.path = path
        self.answers = dict(answers or {LISTED: []})
        self.mode = mode
        self.server = b"Docker/28.5.2 (linux)"
        self.targets: list[str] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen(8)
        self._is_open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening; hanging connections are released."""
        self._is_open = False
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(4096)
            target = request.split(b" ")[1].decode()
            self.targets.append(target)
            head = b"HTTP/1.0 200 OK\r\nServer: " + self.server + b"\r\n\r\n"
            match self.mode:
                case "hangs":
                    while self._is_open:
                        pause(0.01)
                case "drips":
                    connection.sendall(head)
                    while self._is_open:
                        connection.sendall(b" ")
                        pause(0.05)
                case "floods":
                    connection.sendall(head)
                    while self._is_open:
                        connection.sendall(b"[" + b" " * (1 << 20))
                case "garbage":
                    connection.sendall(b"\x00\xff\r\n" * 100)
                case "refuses":
                    connection.sendall(b"HTTP/1.0 500 Oops\r\n\r\n{}")
                case _:
                    connection.sendall(self._answer(target, head))

    def _answer(self, target: str, head: bytes) -> bytes:
        if target not in self.answers:
            return b'HTTP/1.0 404 Not Found\r\n\r\n{"message": "No such container"}'
        return head + json.dumps(self.answers[target]).encode()


def answers(*containers: dict[str, Any]) -> dict[str, Any]:
    """Return Docker's responses about CONTAINERS: the list, and the inspection of each container."""
    listed = [
        {"Id": one["Id"], "Names": [f"/{one['Name']}"], "Created": 1_795_446_000, "Labels": {"a": "b"}}
        for one in containers
    ]
    return {LISTED: listed} | {f"/containers/{one['Id']}/json": one for one in containers}


def container(name: str, letter: str = "a", **host: Any) -> dict[str, Any]:
    """Return the inspection of a container with a secret in its variables."""
    return {
        "Id": letter * 64,
        "Name": name,
        "Config": {"Env": ["SECRET=hunter2", "NVIDIA_VISIBLE_DEVICES=all"]},
        "HostConfig": {"Devices": [], "DeviceRequests": None, **host},
    }


def cdi(*names: str) -> dict[str, Any]:
    """Return the members of HostConfig for CDI devices."""
    return {"DeviceRequests": [{"Driver": "cdi", "Count": 0, "DeviceIDs": list(names), "Options": {}}]}
