"""`cdigen kubelet` applies changes of its configuration and of nvidia_config, and ignores an invalid file."""

from __future__ import annotations

import socket
import urllib.request

import pytest
from support.kubelet.process import Process, Side, cdigen_kubelet, serving
from support.kubelet.resources import GPU
from support.waiting import until

pytestmark = pytest.mark.process
TWO = "kubelet: {sharing: [{resource: nvidia.com/gpu, replicas: 2}]}\n"
NVIDIA = "version: v1\nsharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, replicas: {}}}]}}}}\n"


def valid(side: Side) -> str:
    """Return the value of the metric cdigen_config_valid."""
    text = side.get("/metrics")[1]
    return next(line.split()[1] for line in text.splitlines() if line.startswith("cdigen_config_valid"))


def problems(side: Side) -> list[str]:
    return [row["message"] for row in side.status()["problems"] if row["severity"] == "error"]


def lines(process: Process, level: str) -> list[str]:
    return [line["message"] for line in process.lines("configuration") if line["level"] == level]


def test_a_valid_changed_configuration_is_applied_at_once_and_an_invalid_file_is_ignored(side: Side) -> None:
    with serving(side) as process:
        side.configure(TWO)
        assert until(lambda: side.lists(16))
        assert valid(side) == "1.0"
        for wrong in ("kubelet: {sharing: 7}\n", "nonsense: 1\n", "{"):
            side.configure(wrong)
            assert until(lambda: len(lines(process, "error")) > 0 and problems(side))
            assert "invalid configuration ignored, the previous one stays active" in problems(side)[0]
            assert until(lambda: valid(side) == "0.0")
            assert side.lists(16)
            side.configure(TWO)
            assert until(lambda: not problems(side))
        side.configure("kubelet: {}\n")
        assert until(lambda: side.lists(8))
        assert len(side.kubelet.registered) == 1


def test_an_emptied_or_deleted_configuration_is_rejected(side: Side) -> None:
    side.configure(TWO)
    with serving(side, count=16):
        side.config.write_text("")
        assert until(lambda: problems(side))
        text = f"{side.config}: the file is empty; the defaults become active at the next start"
        assert text in problems(side)[0]
        side.config.unlink()
        assert until(lambda: problems(side) and "was deleted" in problems(side)[0])
        assert side.lists(16)
        side.configure(TWO)
        assert until(lambda: not problems(side))


def test_no_resource_is_advertised_until_an_invalid_configuration_at_the_start_is_corrected(
    side: Side,
) -> None:
    side.configure("kubelet: {ignore: 7}\n")
    with cdigen_kubelet(side) as process:
        assert until(side.serves_http)
        assert side.kubelet.registered == []
        assert "/etc/cdigen/config.yaml:1:19: kubelet: ignore must be a list" in side.status()["reason"]
        code, text = side.get("/readyz")
        assert (code, text.startswith("no resource is advertised: ")) == (503, True)
        assert valid(side) == "0.0"
        side.configure("kubelet: {ignore: 8}\n")
        assert until(lambda: len(lines(process, "error")) == 2)
        assert "invalid configuration ignored, no resource is advertised" in lines(process, "error")[1]
        side.configure("kubelet: {ignore: ['0']}\n")
        assert until(lambda: side.lists(7))
        assert until(lambda: not problems(side))
        assert process.process.poll() is None


def test_after_sighup_the_configuration_is_read_and_settings_for_the_next_start_are_logged(
    side: Side,
) -> None:
    with serving(side) as process:
        side.configure("kubelet: {http_port: 1, run_dir: /run/x, ignore: ['0']}\n")
        process.hup()
        assert until(lambda: side.lists(7))
        (line,) = process.lines("configuration")
        assert (line["message"], "run/x, HTTP port 1" in line["fixed"]) == (
            "settings take effect at the next start",
            True,
        )


def test_the_file_nvidia_config_is_applied_and_watched_and_unsupported_keys_are_logged(side: Side) -> None:
    path = side.root / "etc/nvidia.yaml"
    path.write_text(NVIDIA.format(4) + "flags: {gfd: {}, plugins: {}}\n")
    side.configure("kubelet: {nvidia_config: /etc/nvidia.yaml}\n")
    with serving(side, count=32) as process:
        rules = [row["rule"] for row in side.status()["problems"]]
        assert rules == ["nvidia-configuration"] * 2
        assert "/etc/nvidia.yaml:3:18: flags.plugins is unknown and ignored" in lines(process, "warning")
        assert valid(side) == "1.0"
        side.configure(NVIDIA.format(2), path)
        assert until(lambda: side.lists(16))
        assert until(lambda: side.status()["problems"] == [])
        # If the file is truncated, invalid or missing, the previous settings stay active.
        for wrong in (NVIDIA.format(9)[:40], NVIDIA.format("x")):
            side.configure(wrong, path)
            assert until(lambda: problems(side))
            assert side.lists(16)
            side.configure(NVIDIA.format(2), path)
            assert until(lambda: not problems(side))
        path.unlink()
        assert until(lambda: problems(side) and "cannot be read: No such file" in problems(side)[0])
        assert side.lists(16)
        assert valid(side) == "0.0"


def test_the_file_nvidia_config_is_applied_when_it_is_created(side: Side) -> None:
    side.configure("kubelet: {nvidia_config: /etc/later/nvidia.yaml}\n")
    with serving(side):
        assert until(lambda: problems(side))
        assert "nvidia.yaml cannot be read: No such file or directory" in problems(side)[0]
        (side.root / "etc/later").mkdir()
        side.configure(NVIDIA.format(3), side.root / "etc/later/nvidia.yaml")
        assert until(lambda: side.lists(24))
        assert until(lambda: not problems(side))


def test_the_file_nvidia_config_is_applied_after_its_correction(side: Side) -> None:
    path = side.root / "etc/nvidia.yaml"
    side.configure(NVIDIA.format("x"), path)
    with serving(side):
        side.configure("kubelet: {nvidia_config: /etc/nvidia.yaml}\n")
        assert until(lambda: problems(side))
        side.configure(NVIDIA.format(3), path)
        assert until(lambda: side.lists(24))
        assert until(lambda: not problems(side))


def test_metrics_are_served_on_a_loopback_port_if_configured(side: Side) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    side.configure(f"kubelet: {{http_port: {port}}}\n")
    with serving(side):

        def registered() -> bool:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                return f'cdigen_kubelet_registered{{resource="{GPU}"}} 1.0' in answer.read().decode()

        assert until(registered)
