"""The probe of pods (cdigen-probe) reports whether a service responds, rejects, hangs or does not run."""

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.processes import captured

PROBE = Path(__file__).resolve().parents[2] / "etc/libexec/cdigen-probe"
READY = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nready\n"
NOT_READY = b"HTTP/1.0 503 Service Unavailable\r\n\r\nnvidia: no driver\nand more\n"


def probe(*arguments: object) -> tuple[int, str]:
    """Run the probe; return its exit code and its output."""
    command = [sys.executable, "-ISB", str(PROBE), *map(str, arguments)]
    done = captured(command, timeout=60)
    return done.returncode, done.stdout + done.stderr


@contextmanager
def responding(path: Path, response: bytes) -> Iterator[list[bytes]]:
    """Respond to one request on the socket PATH; yield the requests."""
    requests: list[bytes] = []

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            requests.append(client.recv(4096))
            client.sendall(response)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield requests
        thread.join()


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (READY, (0, "")),
        (NOT_READY, (1, "nvidia: no driver\n")),
        (b"HTTP/1.0 404 Not Found\r\n\r\n", (1, "HTTP/1.0 404 Not Found\n")),
        (b"HTTP/1.0 200\r\n\r\n", (0, "")),
        (b"HTTP/1.0 2000 no\r\n\r\nodd\n", (1, "odd\n")),
        (b"\xff\xff 200 OK", (0, "")),
        (b"200", (1, "200\n")),
    ],
)
def test_the_probe_succeeds_only_with_the_status_200(
    tmp_path: Path, response: bytes, expected: tuple[int, str]
) -> None:
    with responding(tmp_path / "http.sock", response) as requests:
        assert probe(tmp_path / "http.sock", "/readyz") == expected
    assert requests[0].startswith(b"GET /readyz HTTP/1.0\r\n")


def test_an_empty_response_is_an_error(tmp_path: Path) -> None:
    with responding(tmp_path / "http.sock", b""):
        assert probe(tmp_path / "http.sock", "/readyz") == (
            1,
            f"{tmp_path}/http.sock: the response is empty\n",
        )


def test_the_error_for_a_missing_service_has_the_path_of_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    assert probe(path, "/readyz") == (1, f"{path}: no response: No such file or directory\n")
    with socket.socket(socket.AF_UNIX) as closed:
        closed.bind(str(path))
    assert probe(path, "/readyz") == (1, f"{path}: no response: Connection refused\n")


def test_the_probe_times_out_if_the_service_hangs(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(tmp_path / "http.sock"))
        hanging.listen()
        assert probe(tmp_path / "http.sock", "/readyz") == (
            1,
            f"{tmp_path}/http.sock: no response: timed out\n",
        )


def test_the_probe_times_out_if_the_service_responds_too_slowly(tmp_path: Path) -> None:
    stop = threading.Event()

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            while not stop.wait(0.5):
                try:
                    client.sendall(b".")
                except OSError:
                    return

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "http.sock"))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        code, message = probe(tmp_path / "http.sock", "/readyz")
        stop.set()
        thread.join()
    assert (code, message) == (1, f"{tmp_path}/http.sock: no response: timed out\n")


@pytest.mark.parametrize("words", [(), ("/run/cdigen/http.sock",), ("a", "b", "c")])
def test_wrong_arguments_are_rejected_with_the_usage(words: tuple[str, ...]) -> None:
    assert probe(*words) == (2, "usage: cdigen-probe SOCKET PATH\n")
