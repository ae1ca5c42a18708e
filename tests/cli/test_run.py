"""The command `cdigen run`: errors, options, configuration and output."""

from __future__ import annotations

import json
import os
import re
import socket
from typing import TYPE_CHECKING

import pytest
from support.daemon.host import NEW, Daemon, Host, daemon

from cdigen.cli.main import command_parser
from cdigen.cli.services import run as command
from cdigen.host.root import Root

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

    from cdigen.daemon.setup import DaemonSetup


@pytest.fixture
def gpu_host(tmp_path: Path, real_nodes: None) -> Host:  # noqa: ARG001
    host = Host(tmp_path / "host").make()
    host.configure()
    return host


def setup(root: Path, *options: str) -> DaemonSetup:
    return command.setup(command_parser("run").parse_args(["--root", str(root), *options]))


# Errors.


def test_an_invalid_configuration_at_the_start_is_refused(cdigen_process: Run, tmp_path: Path) -> None:
    Host(tmp_path).put("etc/cdigen/config.yaml", "daemon: {debounce_s: soon}\n")
    assert cdigen_process("run", "--root", tmp_path).failed(2, "config.yaml:1", "debounce_s")
    assert os.listdir(tmp_path) == ["etc"]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("--root {host}/nothing", 2, ("not a folder",)),
        # The daemon needs a running host.
        ("--inventory {host}/file", 2, ("--inventory",)),
        ("--profile render", 2, ("'render' is not configured",)),
        ("--kind acme.example/npu", 2, ("acme.example/npu", "nvidia.com/...", "amd.com/...")),
        ("--vendor amd --kind nvidia.com/gpu", 2, ("amd.com",)),
        ("--run-dir {host}/file/below", 5, ("run directory", "is not a directory")),
        ("--run-dir {host}/link", 5, ("is a symlink",)),
    ],
)
def test_an_invalid_option_of_the_daemon_is_refused(
    cdigen_process: Run, tmp_path: Path, options: str, code: int, words: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path)
    done = cdigen_process("run", "--root", tmp_path, *options.format(host=tmp_path).split())
    assert done.failed(code, *words)


# Options and configuration.


def test_all_directories_of_the_daemon_are_in_the_root(tmp_path: Path) -> None:
    made = setup(tmp_path)
    assert made.outer == str(tmp_path)
    assert made.directories == (f"{tmp_path}/etc/cdi", f"{tmp_path}/var/run/cdi")
    assert made.state_dir == f"{tmp_path}/var/lib/cdigen"
    assert made.daemon.run_dir == f"{tmp_path}/run/cdigen"
    assert made.roots == ()


def test_the_options_spec_dir_and_run_dir_have_paths_of_this_machine(tmp_path: Path) -> None:
    made = setup(tmp_path, "--spec-dir", "/one", "--spec-dir", "/two", "--run-dir", "/three")
    assert made.directories == ("/one", "/two")
    assert {*made.directories, f"{tmp_path}/var/run/cdi"} <= set(made.view_directories)
    assert made.daemon.run_dir == "/three"


def test_the_driver_root_and_the_dev_root_are_roots_of_the_daemon(tmp_path: Path) -> None:
    made = setup(tmp_path, "--driver-root", "/run/nvidia/driver", "--dev-root", "/host/dev")
    assert made.roots == (f"{tmp_path}/run/nvidia/driver", f"{tmp_path}/host/dev")


def test_the_configuration_is_read_again_at_each_setup(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.configure(debounce_s=0.5)
    assert setup(tmp_path).daemon.debounce_s == 0.5
    host.configure(debounce_s=0.7, stale_specs="keep")
    assert (setup(tmp_path).daemon.debounce_s, setup(tmp_path).daemon.stale_specs) == (0.7, "keep")


def test_the_configuration_below_root_cannot_select_a_library_for_the_daemon(tmp_path: Path) -> None:
    Host(tmp_path).put("etc/cdigen/config.yaml", "nvml: /usr/lib/libevil.so\n")
    made = setup(tmp_path)
    assert made.context(Root(str(tmp_path))).nvml == "off"


def test_the_directory_of_the_option_run_dir_has_all_files_of_the_daemon(
    gpu_host: Host, tmp_path: Path
) -> None:
    gpu_host.run_dir = tmp_path / "shown"
    with daemon(gpu_host, "--run-dir", str(tmp_path / "shown")) as running:
        running.rests()
        names = sorted(os.listdir(tmp_path / "shown"))
        assert names == ["http.sock", "inventory.json", "lock", "status.json"]
        assert not (gpu_host.root / "run/cdigen").exists()


# Output.


def test_every_log_line_on_stderr_is_json_and_verbose_logs_each_cycle(gpu_host: Host) -> None:
    # This host has no kernel log, and its nodes have no driver. Each fact would cause log lines.
    gpu_host.configure("health: {kernel_log: false, ignore: [node-unusable]}\n")
    with daemon(gpu_host, "--verbose") as running:
        running.rests()
        cycles = running.cycles
        running.stop()
        lines = [json.loads(line) for line in running.text.splitlines()]
    assert [line["event"] for line in lines] == ["started", *["cycle"] * cycles, "stopped"]


def test_the_line_of_a_cycle_has_its_reason_duration_result_and_devices(gpu_host: Host) -> None:
    with daemon(gpu_host) as running:
        (line,) = running.lines()
    assert (line["result"], line["reasons"]) == ("changed", ["start: the daemon has started"])
    assert line["duration_ms"] > 0
    assert {"0", "1", "all"} <= set(line["specs"][0]["added"])


def test_the_socket_serves_health_readiness_and_metrics(gpu_host: Host) -> None:
    with daemon(gpu_host) as running:
        running.rests()
        assert http_get(gpu_host, "/healthz").startswith("HTTP/1.1 200")
        assert http_get(gpu_host, "/readyz").startswith("HTTP/1.1 200")
        assert 'cdigen_cycles_total{reason="start",result="changed"} 1' in unordered(
            http_get(gpu_host, "/metrics")
        )
        gpu_host.unload()
        running.sees(lambda: running.state == "absent")
        assert http_get(gpu_host, "/healthz").startswith("HTTP/1.1 200")
        assert http_get(gpu_host, "/readyz").startswith("HTTP/1.1 503")


def http_get(host: Host, path: str) -> str:
    # The path of a socket has at most 107 bytes. A path through a descriptor is short.
    folder = os.open(host.run_dir, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"/proc/self/fd/{folder}/http.sock")
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: cdigen\r\nConnection: close\r\n\r\n".encode())
            return b"".join(iter(lambda: client.recv(65536), b"")).decode()
    finally:
        os.close(folder)


def unordered(metrics: str) -> str:
    """Return METRICS with sorted labels in each line, and without the fraction '.0' of whole numbers."""
    lines = []
    for line in metrics.splitlines():
        name, brace, rest = line.partition("{")
        labels, _, value = rest.partition("} ")
        lines.append(
            f"{name}{{{','.join(sorted(labels.split(',')))}}} {value.removesuffix('.0')}" if brace else line
        )
    return "\n".join(lines)


def test_status_shows_each_state_of_the_host(gpu_host: Host, cdigen: Run) -> None:
    gpu_host.configure(settle_timeout_s=60)

    def summary(running: Daemon, state: str) -> str:
        running.sees(lambda: running.state == state)
        done = cdigen("status", "--root", gpu_host.root)
        assert done.code == 0
        assert re.match(rf"{state}: .+\n{state} for \d+ seconds?; cdigen ", done.out)
        return done.out

    with daemon(gpu_host) as running:
        assert "nvidia.com/gpu" in summary(running, "ready")
        gpu_host.set_version(NEW)
        assert NEW in summary(running, "settling")
        gpu_host.configure(settle_timeout_s=0.2)
        assert "reboot" in summary(running, "mismatch")
        gpu_host.install(NEW)
        summary(running, "ready")
        (gpu_host.root / "dev/nvidia1").unlink()
        # A cycle that reads the node before the removal rejects the new spec. The next cycle omits the GPU.
        running.sees(lambda: "1 device left out" in cdigen("status", "--root", gpu_host.root).out)
        gpu_host.unload()
        assert "no spec is kept" in summary(running, "absent") or "withdrawn" in summary(running, "absent")
        running.stop()
    assert cdigen("status", "--root", gpu_host.root).failed(3, "no cdigen daemon")


def test_a_missing_path_of_the_command_line_is_logged(gpu_host: Host) -> None:
    with daemon(gpu_host, "--config-search-path", "/nowhere") as running:
        running.sees(lambda: running.state == "ready")
        message = running.lines("options")
    assert [(line["level"], "--config-search-path /nowhere" in line["message"]) for line in message] == [
        ("warning", True)
    ]
