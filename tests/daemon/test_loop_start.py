"""The daemon's first moments: what hangs, what is taken, what is shut."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.abilities import cannot_run
from support.daemon.host import Host, daemon, unshared
from support.paths import REPOSITORY
from support.waiting import PATIENCE_S, limited, until

if TYPE_CHECKING:
    from pathlib import Path

    from support.daemon.host import Daemon

pytestmark = pytest.mark.usefixtures("real_nodes")
READY_WITHIN_S = 5.0
# What is promised is 2 s; a busy machine may take longer.
ENDS_WITHIN_S = 6.0
# A file system in user space over a folder, whose server (the daemon itself, which knows nothing of it) does
# not answer; then the command.
HANGING = """
import ctypes, os, sys
server = os.open("/dev/fuse", os.O_RDWR)
os.set_inheritable(server, True)
options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"fuse", sys.argv[1].encode(), b"fuse", 0, options):
    sys.exit(f"no fuse: {os.strerror(ctypes.get_errno())}")
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.fixture
def gpu_host(tmp_path: Path) -> Host:
    host = Host(tmp_path / "host").make()
    host.configure()
    return host


def hanging(folder: Path) -> tuple[str, ...]:
    """Return the command that starts another where nothing in FOLDER can be read."""
    start = unshared("--mount", "--propagation", "private")
    if not os.access("/dev/fuse", os.W_OK):
        cannot_run("/dev/fuse cannot be opened: run as root, on a kernel with FUSE")
    command = (*start, sys.executable, "-c", HANGING, str(folder))
    trial = subprocess.run([*command, "/bin/true", "true"], check=False, capture_output=True, text=True)
    if trial.returncode != 0:
        cannot_run(trial.stderr.strip())
    return command


@limited(ENDS_WITHIN_S)
def test_it_is_ready_and_ends_in_time_where_reading_proc_hangs(gpu_host: Host, within_s: float) -> None:
    before = hanging(gpu_host.root / "proc/driver/nvidia")
    with daemon(gpu_host, wait=False, before=before) as running:
        running.sees(lambda: running.state == "starting")
        took = running.manager.hears("READY=1")
        assert took is not None
        assert took < READY_WITHIN_S + within_s
        code, took = running.stop()
        print(f"\nended {took:.2f} s after SIGTERM while reading /proc hung")
        assert (code, took < within_s) == (0, True)
        assert "Traceback" not in running.text


@limited(ENDS_WITHIN_S)
def test_a_file_that_only_the_poll_reads_and_that_hangs_delays_nobody(
    gpu_host: Host, within_s: float
) -> None:
    folder = gpu_host.root / "sys/bus/pci/drivers/nvidia"
    gpu_host.unload()
    gpu_host.uninstall()
    with daemon(gpu_host, wait=False, before=hanging(folder)) as running:
        running.sees(lambda: running.state == "absent")
        code, took = running.stop()
        assert (code, took < within_s) == (0, True)


def sources(running: Daemon) -> dict[str, str]:
    """Return what is wrong with each source."""
    return {name: row["problem"] for name, row in running.status.get("sources", {}).items()}


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
            client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            return client.recv(100).startswith(b"HTTP/1.0 200")
    except OSError:
        return False


def test_a_port_in_use_is_an_ill_source_and_no_reason_to_make_no_spec(gpu_host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        gpu_host.configure(http_port=port)
        with daemon(gpu_host) as running:
            assert running.state == "ready"
            assert gpu_host.devices() == {"0", "1", "all"}
            in_use = f"127.0.0.1 port {port}: Address already in use"
            running.sees(lambda: in_use in sources(running)["http"])
            running.sees(lambda: 'cdigen_source_healthy{source="http"} 0' in metrics(gpu_host))
            other.close()
            running.sees(lambda: answers(port))
            running.sees(lambda: sources(running)["http"] == "")


def metrics(host: Host) -> str:
    """Return the daemon's metrics, "" while it opens its socket anew."""
    # The path of a socket has 107 bytes at most.
    folder = os.open(host.run_dir, os.O_PATH)
    data = b""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE_S)
            client.connect(f"/proc/self/fd/{folder}/http.sock")
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            while piece := client.recv(65536):
                data += piece
    except ConnectionError:
        return ""
    finally:
        os.close(folder)
    return data.decode()


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_started_without_standard_files_it_opens_nothing_of_its_own_there(
    closed: str, gpu_host: Host
) -> None:
    command = [sys.executable, "-m", "cdigen", "run", "--root", str(gpu_host.root)]
    script = f'exec "$@" {closed}'
    process = subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", *command], cwd=REPOSITORY, stderr=subprocess.PIPE
    )
    try:
        assert until(lambda: gpu_host.spec.exists() or process.poll() is not None)
        assert process.poll() is None
        for number in range(3):
            assert str(gpu_host.root) not in os.readlink(f"/proc/{process.pid}/fd/{number}")
        assert (gpu_host.run_dir / "lock").read_text().splitlines()[0] == f"{process.pid}"
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr is not None
        process.stderr.close()


def test_a_command_without_standard_error_still_has_its_exit_code(tmp_path: Path) -> None:
    script = 'exec "$@" 2>&-'
    command = [sys.executable, "-m", "cdigen", "run", "--no-such-option", "--root", str(tmp_path)]
    done = subprocess.run(["/bin/sh", "-c", script, "sh", *command], cwd=REPOSITORY, check=False)
    assert done.returncode == 2
