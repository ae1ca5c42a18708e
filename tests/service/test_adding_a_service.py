"""The example service in docs/contributing/adding-a-service.md runs without changes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.daemon.host import Manager
from support.waiting import until

from cdigen.service.status import ENDED, read_service

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs/contributing/adding-a-service.md"
MOST_LINES = 100
SPEC = {"cdiVersion": "0.6.0", "kind": "vendor.com/gpu"}
BOTH = ["vendor.com/gpu=0", "vendor.com/gpu=1"]


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


def configure(root: Path, text: str) -> None:
    """Replace the configuration below ROOT by TEXT."""
    folder = root / "etc/cdigen"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "new").write_text(text)
    (folder / "new").rename(folder / "config.yaml")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    configure(tmp_path, "spec_dirs: [/etc/cdi, /run/cdi]\n")
    write_spec(tmp_path, "0", "1")
    return tmp_path


@contextmanager
def running(root: Path, run_dir: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    code = ["-c", script(), str(root), str(run_dir)]
    with subprocess.Popen(
        [sys.executable, *code], cwd=REPOSITORY, stderr=subprocess.PIPE, env={**os.environ, **environment}
    ) as process:
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


def response(run_dir: Path, path: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"{run_dir}/http.sock")
        client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        return b"".join(iter(lambda: client.recv(1 << 16), b"")).decode()


def test_the_example_serves_the_devices_in_specs_until_a_signal_ends_it(root: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "service"
    with running(root, run_dir) as process:
        assert until(lambda: status(run_dir).get("devices") == BOTH)
        assert response(run_dir, "/healthz").startswith("HTTP/1.1 200 OK")
        write_spec(root, "0")
        assert until(lambda: status(run_dir).get("devices") == BOTH[:1])
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
        assert (process.returncode, json.loads(log.splitlines()[-1])["event"]) == (0, "stopped")
        assert not (run_dir / "status.json").exists()


def test_the_example_reports_its_devices_as_metrics_and_is_ready_if_there_are_devices(
    root: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "service"
    (root / "run/cdi/vendor.json").unlink()
    with running(root, run_dir):
        assert until(lambda: status(run_dir))
        assert response(run_dir, "/readyz").startswith("HTTP/1.1 503 ")
        assert "counted_devices 0.0\n" in response(run_dir, "/metrics")
        write_spec(root, "0", "1")
        assert until(lambda: status(run_dir).get("devices") == BOTH)
        assert response(run_dir, "/readyz").startswith("HTTP/1.1 200 OK")
        found = response(run_dir, "/metrics")
        assert "counted_devices 2.0\n" in found
        assert "cdigen_build_info{" in found
        assert "process_resident_memory_bytes " in found


def test_the_example_applies_a_changed_configuration_and_keeps_the_last_valid_one(
    root: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "service"
    with (
        closing(Manager(str(tmp_path))) as manager,
        running(root, run_dir, NOTIFY_SOCKET=manager.path) as process,
    ):
        assert manager.receives("READY=1", "STATUS=2 devices") is not None
        configure(root, "spec_dirs: [/etc/cdi, /run/elsewhere]\n")
        assert until(lambda: status(run_dir).get("devices") == [])
        configure(root, "spec_dirs: 7\n")
        process.send_signal(signal.SIGHUP)
        assert manager.receives("RELOADING=1") is not None
        assert manager.receives("READY=1", "STATUS=0 devices") is not None
        (problem,) = status(run_dir)["problems"]
        assert problem["message"].startswith("invalid configuration ignored, the previous one stays active: ")
        assert "cdigen_config_valid 0.0\n" in response(run_dir, "/metrics")
        configure(root, "spec_dirs: [/run/cdi]\n")
        assert until(lambda: (status(run_dir)["devices"], status(run_dir)["problems"]) == (BOTH, []))
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
        errors = [line for line in map(json.loads, log.splitlines()) if line["level"] == "error"]
        assert [line["event"] for line in errors] == ["configuration"]


def test_a_client_finds_that_the_example_was_killed(root: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "service"
    with running(root, run_dir) as process:
        assert until(lambda: status(run_dir))
        found = read_service(str(run_dir), {"devices": list})
        assert found is not None
        assert found["state"] == "ready"
        process.kill()
        process.wait(timeout=60)
        found = read_service(str(run_dir), {"devices": list})
        assert found is not None
        assert (found["state"], "no process holds" in found["reason"]) == (ENDED, True)


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
