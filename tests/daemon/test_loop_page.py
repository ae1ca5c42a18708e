"""The real daemon, with a real NVML child process, serves the page and the API of nvidia-docker 1.0."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest
from support.daemon.http_client import get
from support.daemon.page import visible_text
from support.daemon.stats import FIRST, got, scraped, starts
from support.json_output import validator
from support.waiting import limited, until

from cdigen.page.nvidia_docker.documents import encoded

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")


def test_the_page_shows_the_devices_with_their_stats(tmp_path: Path) -> None:
    with scraped(tmp_path) as (running, calls):
        assert starts(calls) == 0
        # On a busy machine the wait of the first page is too short; the result is kept for the next page.
        running.sees(lambda: "346 W" in visible_text(got(running, "/")[1]))
        code, text = got(running, "/")
        assert code == 200
        shown = visible_text(text)
        assert "Ready: containers can use 2 devices" in shown
        assert "GPU0 nvidia.com/gpu=0" in shown
        assert "CUDA up to 12.4" in shown
        assert "346 W" in shown
        assert "56 °C" in shown
        assert "nvidia.com/gpu" in shown.partition("Specs")[2]
        assert starts(calls) == 1


def test_the_daemon_also_serves_json_documents_and_the_topology_picture(tmp_path: Path) -> None:
    with scraped(tmp_path) as (running, calls):
        for path in ("status", "inventory"):
            code, text = got(running, f"/{path}.json")
            assert code == 200
            written = json.loads((running.host.run_dir / f"{path}.json").read_text())
            assert json.loads(text).keys() == written.keys()
        assert starts(calls) == 0
        running.sees(lambda: json.loads(got(running, "/page.json")[1])["devices"][0]["stats"])
        shown = json.loads(got(running, "/page.json")[1])
        validator("page").validate(shown)
        assert shown["cuda"] == "12.4"
        assert [device["device"] for device in shown["devices"]] == ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]
        assert [device["stats"]["temperature"] for device in shown["devices"]] == [56, 56]
        code, text = got(running, "/topology.svg")
        assert (code, text[:4]) == (200, "<svg")
        assert starts(calls) == 1


@pytest.mark.parametrize(
    ("query", "refresh"),
    [
        ("", "15; url=/"),
        ("?reload=60", "60; url=/?reload=60"),
        ("?reload=off", ""),
    ],
)
def test_the_page_reloads_itself_as_requested(tmp_path: Path, query: str, refresh: str) -> None:
    with scraped(tmp_path) as (running, _):
        _, head, body = get(running.host.http, f"/{query}", "HEAD")
        found = re.search(rb"^Refresh: (.*)$", head, flags=re.MULTILINE)
        assert (found.group(1).strip().decode() if found else "") == refresh
        assert b"style-src 'sha256-" in head
        assert body == b""


@pytest.mark.parametrize(
    "query",
    ["reload=0", "reload=4", "reload=3601", "reload=-5", "reload=1e3", "reload=%", "x=%zz", "x=1", "dev=0"],
)
def test_invalid_queries_are_refused(tmp_path: Path, query: str) -> None:
    with scraped(tmp_path) as (running, calls):
        code, text = got(running, f"/?{query}")
        assert code == 400
        assert text.count("\n") == 1
        assert starts(calls) == 0


@pytest.mark.parametrize("prefix", ["", "/v1.0"])
def test_the_nvidia_docker_routes_return_info_and_status(tmp_path: Path, prefix: str) -> None:
    with scraped(tmp_path) as (running, calls):
        running.sees(lambda: json.loads(got(running, f"{prefix}/gpu/status/json")[1])["Devices"][0]["Power"])
        info = json.loads(got(running, f"{prefix}/gpu/info/json")[1])
        status = json.loads(got(running, f"{prefix}/gpu/status/json")[1])
        assert info["Version"] == {"Driver": "550.163.01", "CUDA": "12.4"}
        assert [device["Path"] for device in info["Devices"]] == ["/dev/nvidia0", "/dev/nvidia1"]
        assert [device["Power"] for device in status["Devices"]] == [346, 346]
        assert got(running, f"{prefix}/gpu/info/json")[1] == encoded(info).decode()
        assert "Device #1\n  Model: " in got(running, f"{prefix}/gpu/info")[1]
        assert "Temperature:  56 °C" in got(running, f"{prefix}/gpu/status")[1]
        assert got(running, f"{prefix}/mesos/cli")[1].startswith("--attributes=gpus:e")
        for path in ("/gpu/info", "/gpu/status/json", "/mesos/cli"):
            refused = got(running, f"{prefix}{path}?dev=0")
            assert refused == (400, f"unknown parameter 'dev' of {prefix}{path}\n")
        assert starts(calls) == 1


@pytest.mark.parametrize("prefix", ["", "/v1.0"])
def test_the_docker_api_returns_the_arguments_of_devices(tmp_path: Path, prefix: str) -> None:
    with scraped(tmp_path) as (running, calls):
        names = "--device=nvidia.com/gpu=0 --device=nvidia.com/gpu=1"
        assert got(running, f"{prefix}/docker/cli?dev=0+1&form=cdi") == (200, names)
        assert got(running, f"{prefix}/docker/cli?dev=0%201&form=cdi") == (200, names)
        document = json.loads(got(running, f"{prefix}/docker/cli/json?dev=1&vol=nvidia_driver&form=cdi")[1])
        assert document == {"VolumeDriver": "", "Volumes": [], "Devices": ["nvidia.com/gpu=1"]}
        for query, wrong in (
            ("dev=7", "invalid device: 7"),
            ("dev=GPU-x", "invalid device: GPU-x"),
            ("dev=../..", "invalid device: ../.."),
            ("dev=%00", "invalid device: \\x00"),
            ("vol=other", "invalid volume: other"),
            ("form=oci", "invalid form: oci"),
            ("dev=%zz", 'invalid URL escape "%zz"'),
            ("bogus=1", f"unknown parameter 'bogus' of {prefix}/docker/cli; known: dev, form, vol"),
        ):
            refused = got(running, f"{prefix}/docker/cli?{query}&form=cdi")
            assert refused == (400, f"{wrong}\n")
        many = "+".join(map(str, range(10_000)))
        assert got(running, f"{prefix}/docker/cli?dev={many}&form=cdi") == (400, "invalid device: 2\n")
        # Without the hook of an installation, the driver's files are mounted one by one, not as a volume.
        code, text = got(running, f"{prefix}/docker/cli")
        assert code == 503
        assert text.startswith("the driver's files for nvidia.com/gpu are in no volume: ")
        assert starts(calls) == 0


# The limit is a second. A busy machine is slower, but the page must not wait for NVML's deadline of 10 s.
@limited(3)
def test_with_a_hanging_nvml_stats_are_unknown_and_the_page_is_served(
    tmp_path: Path, within_s: float
) -> None:
    with scraped(tmp_path, faults=(f"{FIRST} hang",)) as (running, calls):
        begun = time.monotonic()
        shown = visible_text(got(running, "/")[1])
        assert time.monotonic() - begun < within_s
        assert "Memory and load are unknown: no response yet" in shown
        assert until(lambda: starts(calls) == 1)
