"""The example service in docs/adding-a-service.md runs without changes."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs/adding-a-service.md"
MOST_LINES = 50
SPEC = {"cdiVersion": "0.6.0", "kind": "vendor.com/gpu"}


def script() -> str:
    (found,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


def write_spec(root: Path, *names: str) -> None:
    """Write a spec with the devices NAMES into the spec directory below ROOT."""
    devices = [{"name": name, "containerEdits": {"env": ["A=B"]}} for name in names]
    folder = root / "run/cdi"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "new").write_text(json.dumps({**SPEC, "devices": devices}))
    (folder / "new").rename(folder / "vendor.json")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_spec(tmp_path, "0", "1")
    return tmp_path


@contextmanager
def running(root: Path, run_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    code = ["-c", script(), str(root), str(run_dir)]
    with subprocess.Popen([sys.executable, *code], cwd=REPOSITORY, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def status(run_dir: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((run_dir / "status.json").read_bytes())
    except FileNotFoundError:
        return {}
    return found


def response(run_dir: Path, path: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"{run_dir}/http.sock")
        client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        return client.recv(1 << 16)


def test_the_example_serves_the_devices_in_specs_until_a_signal_ends_it(root: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "service"
    with running(root, run_dir) as process:
        both = ["vendor.com/gpu=0", "vendor.com/gpu=1"]
        assert until(lambda: status(run_dir).get("devices") == both)
        assert response(run_dir, "/healthz").startswith(b"HTTP/1.0 200 OK")
        write_spec(root, "0")
        assert until(lambda: status(run_dir).get("devices") == both[:1])
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
        assert (process.returncode, json.loads(log.splitlines()[-1])["event"]) == (0, "stopped")
        assert not (run_dir / "status.json").exists()


def test_a_second_instance_is_refused_by_the_lock(root: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "service"
    with running(root, run_dir):
        assert until(lambda: status(run_dir))
        with running(root, run_dir) as second:
            _, errors = second.communicate(timeout=60)
            assert second.returncode != 0
            assert b"LockHeld" in errors


def test_the_example_is_short() -> None:
    assert len(script().splitlines()) <= MOST_LINES
