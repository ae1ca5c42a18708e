"""Kubernetes' API as the tests speak it: `Api`, for an API server in a network of its own."""

import ctypes
import http.client
import json
import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

ADDRESS, PORT = "10.99.0.1", 6443  # hold-node gives the address
TOKEN = "admin"
CLONE_NEWNET = 0x40000000  # linux/sched.h
TIMEOUT_S = 60


class ApiError(Exception):
    """The API server refuses: STATUS is HTTP's, the text is its own."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Api:
    """The API server in the network of the process HOLDER, asked with TOKEN."""

    def __init__(self, holder: int, token: str = TOKEN) -> None:
        self._holder = holder
        self._token = token
        self._of_thread = threading.local()

    def close(self) -> None:
        """Give up this thread's connection."""
        self._connection().close()

    def get(self, path: str) -> Any:
        """Return the object at PATH, or a text where it is none; ApiError."""
        return self.call("GET", path)

    def create(self, manifest: Mapping[str, Any]) -> Any:
        """Create what MANIFEST describes, and return the object as it is then; ApiError."""
        return self.call("POST", folder_of(manifest), manifest)

    def patch(self, path: str, change: object, *, kind: str = "merge") -> Any:
        """Change the object at PATH by a patch of a KIND (merge, strategic-merge, json); ApiError."""
        return self.call("PATCH", path, change, kind=f"application/{kind}-patch+json")

    def delete(self, path: str) -> Any:
        """Delete the object at PATH; ApiError."""
        return self.call("DELETE", path)

    def call(self, method: str, path: str, body: object = None, *, kind: str = "application/json") -> Any:
        """Send a request and return what is answered; ApiError, OSError where nobody listens."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        content = None if body is None else json.dumps(body)
        connection = self._connection()
        try:
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            told = answer.read().decode()
        except BaseException:
            connection.close()  # the next request opens it anew
            raise
        is_json = (answer.headers.get("Content-Type") or "").startswith("application/json")
        said: Any = json.loads(told) if is_json else told
        if answer.status >= 400:
            raise ApiError(answer.status, said["message"] if is_json else told)
        return said

    def _connection(self) -> "_Connection":
        if not hasattr(self._of_thread, "connection"):
            self._of_thread.connection = _Connection(self._holder)
        connection: _Connection = self._of_thread.connection
        return connection


class _Connection(http.client.HTTPSConnection):
    """A connection to the API server that is opened in the network of a process."""

    def __init__(self, holder: int) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # it signs its own certificate
        context.verify_mode = ssl.CERT_NONE
        super().__init__(ADDRESS, PORT, timeout=TIMEOUT_S, context=context)
        self._holder = holder

    def connect(self) -> None:
        with network_of(self._holder):
            super().connect()


@contextmanager
def network_of(process: int) -> Iterator[None]:
    """Let this thread open sockets in the network of a PROCESS; they stay there."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(namespace: int) -> None:
        if libc.setns(namespace, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")

    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        there = os.open(f"/proc/{process}/ns/net", os.O_RDONLY)
        try:
            enter(there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            enter(own)
    finally:
        os.close(own)


def folder_of(manifest: Mapping[str, Any]) -> str:
    """Return the path below which objects like this one are; without a namespace it is in none."""
    version = manifest["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = manifest["metadata"].get("namespace")
    kind = manifest["kind"].lower()
    plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"
