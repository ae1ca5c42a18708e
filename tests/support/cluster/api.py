"""A client of the Kubernetes API: `Api`, for an API server in a network namespace."""

import ctypes
import http.client
import json
import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

ADDRESS, PORT = "10.99.0.1", 6443  # hold-node sets the address
TOKEN = "admin"
CLONE_NEWNET = 0x40000000  # linux/sched.h
TIMEOUT_S = 60


class ApiError(Exception):
    """The API server refused a request: STATUS is the HTTP status, the text is the server's message."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Api:
    """A client of the API server in the network namespace of the process HOLDER; requests have TOKEN."""

    def __init__(self, holder: int, token: str = TOKEN) -> None:
        self._holder = holder
        self._token = token
        self._thread_local = threading.local()

    def close(self) -> None:
        """Close the connection of this thread."""
        self._connection().close()

    def get(self, path: str) -> Any:
        """Return the object at PATH, or the text of a response that is not JSON; raises ApiError."""
        return self.call("GET", path)

    def create(self, manifest: Mapping[str, Any]) -> Any:
        """Create the object of MANIFEST, and return it; raises ApiError."""
        return self.call("POST", folder_of(manifest), manifest)

    def patch(self, path: str, change: object, *, kind: str = "merge") -> Any:
        """Patch the object at PATH by a patch of KIND (merge, strategic-merge, json); raises ApiError."""
        return self.call("PATCH", path, change, kind=f"application/{kind}-patch+json")

    def delete(self, path: str) -> Any:
        """Delete the object at PATH; raises ApiError."""
        return self.call("DELETE", path)

    def call(self, method: str, path: str, body: object = None, *, kind: str = "application/json") -> Any:
        """Send a request and return the response; raises ApiError, or OSError if there is no connection."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        content = None if body is None else json.dumps(body)
        connection = self._connection()
        try:
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        except BaseException:
            connection.close()  # the next request opens it again
            raise
        is_json = (answer.headers.get("Content-Type") or "").startswith("application/json")
        result: Any = json.loads(text) if is_json else text
        if answer.status >= 400:
            raise ApiError(answer.status, result["message"] if is_json else text)
        return result

    def _connection(self) -> "_Connection":
        if not hasattr(self._thread_local, "connection"):
            self._thread_local.connection = _Connection(self._holder)
        connection: _Connection = self._thread_local.connection
        return connection


class _Connection(http.client.HTTPSConnection):
    """A connection to the API server, opened in the network namespace of a process."""

    def __init__(self, holder: int) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # the server's certificate is self-signed
        context.verify_mode = ssl.CERT_NONE
        super().__init__(ADDRESS, PORT, timeout=TIMEOUT_S, context=context)
        self._holder = holder

    def connect(self) -> None:
        with network_of(self._holder):
            super().connect()


@contextmanager
def network_of(process: int) -> Iterator[None]:
    """Move this thread into the network namespace of PROCESS for the body; its new sockets stay there."""
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
    """Return the API path at which the object of MANIFEST is created."""
    version = manifest["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = manifest["metadata"].get("namespace")
    kind = manifest["kind"].lower()
    plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"
