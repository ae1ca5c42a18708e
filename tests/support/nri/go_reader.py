"""Reads a connection of the mux like Go: ``GoReader``. Source: containerd/nri, pkg/net/multiplex/mux.go."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.nri.runtime import Runtime

BUFFER = 4096  # bufio's default


class GoReader:
    """A bufio.Reader on a connection of the mux; reading a frame that is too long fails with ENOMEM."""

    def __init__(self, runtime: Runtime, connection: int) -> None:
        self._runtime = runtime
        self._connection = connection
        self._buffer = b""

    def read_full(self, size: int, deadline: float) -> bytes:
        """Return SIZE bytes, read as io.ReadFull does."""
        data = b""
        while len(data) < size:
            data += self._read(size - len(data), deadline)
        return data

    def has_begun(self) -> bool:
        """Return whether data can be read without waiting."""
        return bool(self._buffer or self._runtime.queues[self._connection])

    def _read(self, size: int, deadline: float) -> bytes:
        if not self._buffer:
            if size >= BUFFER:
                return self._frame(size, deadline)
            self._buffer = self._frame(BUFFER, deadline)
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _frame(self, room: int, deadline: float) -> bytes:
        queue = self._runtime.queues[self._connection]
        while not queue:
            self._runtime.pump(deadline)
        frame = queue.popleft()
        if len(frame) > room:
            self._runtime.drop(f"ENOMEM: a frame of {len(frame)} bytes where {room} are read")
        return frame
