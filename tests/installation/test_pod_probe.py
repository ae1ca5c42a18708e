"""The probe of Kubernetes' pods: what it says of a program that answers, refuses, hangs or is not there."""

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
    """Run the probe; return its exit code and all that it printed."""
    command = [sys.executable, "-ISB", str(PROBE), *map(str, arguments)]
    done = captured(command, timeout=60)
    return done.returncode, done.stdout + done.stderr


@contextmanager
def answering(path: Path, answer: bytes) -> Iterator[list[bytes]]:
    """Answer the one who asks on the socket PATH; gives what was asked."""
    asked: list[bytes] = []

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            asked.append(client.recv(4096))
            client.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield asked
        thread.join()


@pytest.mark.parametrize(
    ("answer", "expected"),
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
def test_a_program_is_well_by_the_status_of_its_answer(
    tmp_path: Path, answer: bytes, expected: tuple[int, str]
) -> None:
    with answering(tmp_path / "http.sock", answer) as asked:
        assert probe(tmp_path / "http.sock", "/readyz") == expected
    assert asked[0].startswith(b"GET /readyz HTTP/1.0\r\n")


def test_an_empty_answer_is_none(tmp_path: Path) -> None:
    with answering(tmp_path / "http.sock", b""):
        assert probe(tmp_path / "http.sock", "/readyz") == (
            1,
            f"{tmp_path}/http.sock: the answer is empty\n",
        )


def test_a_program_that_is_not_there_is_named_by_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    assert probe(path, "/readyz") == (1, f"{path}: nothing answers: No such file or directory\n")
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))
    assert probe(path, "/readyz") == (1, f"{path}: nothing answers: Connection refused\n")


def test_a_program_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "http.sock"))
        mute.listen()
        assert probe(tmp_path / "http.sock", "/readyz") == (
            1,
            f"{tmp_path}/http.sock: nothing answers: timed out\n",
        )


def test_one_that_drips_is_not_waited_for_either(tmp_path: Path) -> None:
    over = threading.Event()

    def serve() -> None:
        client, _ = dripping.accept()
        with client:
            while not over.wait(0.5):
                try:
                    client.sendall(b".")
                except OSError:
                    return

    with socket.socket(socket.AF_UNIX) as dripping:
        dripping.bind(str(tmp_path / "http.sock"))
        dripping.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        code, said = probe(tmp_path / "http.sock", "/readyz")
        over.set()
        thread.join()
    assert (code, said) == (1, f"{tmp_path}/http.sock: nothing answers: timed out\n")


@pytest.mark.parametrize("words", [(), ("/run/cdigen/http.sock",), ("a", "b", "c")])
def test_other_words_are_none_of_its(words: tuple[str, ...]) -> None:
    assert probe(*words) == (2, "usage: cdigen-probe SOCKET PATH\n")
