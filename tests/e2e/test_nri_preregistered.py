"""A real containerd launches `cdigen nri` from its plugin folder."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.containerd_host import RELEASES, Containerd, eventually
from support.nri.containerd_plugins import (
    Plugin,
    containerd_with_specs,
    numbers,
    plugin_config,
)

pytestmark = pytest.mark.e2e

REQUEST = "NVIDIA_VISIBLE_DEVICES=0"
GPU0 = numbers("/dev/nvidia0")


@pytest.fixture(params=RELEASES)
def host(request: pytest.FixtureRequest, cache: Path) -> Iterator[Containerd]:
    """Run each containerd with 20-cdigen in its plugin folder."""
    with containerd_with_specs(cache, request.param) as host:
        host.stop()
        config = plugin_config(host, host.folder / "own", unsupported_cdi="raw")
        options = ("--spec-dir", host.specs, "--config", config, "--run-dir", host.folder / "own/run")
        command = shlex.join(str(word) for word in (sys.executable, "-m", "cdigen", "nri", *options))
        wrapper = host.folder / "plugins/20-cdigen"
        wrapper.write_text(f"#!/bin/sh\nexec {command} >{host.folder}/own/log 2>&1\n")
        wrapper.chmod(0o755)
        host.start()
        yield host


def test_the_runtime_launches_the_plugin_from_its_plugin_folder(host: Containerd) -> None:
    plugin = Plugin(run_dir=host.folder / "own/run")
    assert started(host) == [{"NRI_PLUGIN_NAME": "cdigen", "NRI_PLUGIN_IDX": "20", "NRI_PLUGIN_SOCKET": "3"}]
    plugin.registered()
    first = host.container(REQUEST)
    assert first.nodes() == GPU0
    host.stop()
    eventually(
        lambda: not started(host) or None, "the plugin ends with its runtime", details=lambda: plugin.log
    )
    host.start()
    plugin.registered()
    assert host.container(REQUEST).nodes() == GPU0
    assert plugin.status()["uninjected_containers"] == []
    assert first.nodes() == GPU0


def started(host: Containerd) -> list[dict[str, str]]:
    """Return the environment of each plugin that the runtime has launched."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
            environment = (process / "environ").read_bytes().decode()
        except OSError:  # the process has ended or belongs to the machine
            continue
        if f"{host.folder}/own/run".encode() in command:
            rows = [row.split("=", 1) for row in environment.split("\0") if row]
            # The shell of the wrapper adds the omitted variables.
            found.append({key: value for key, value in rows if key not in {"PWD", "_", "SHLVL", "OLDPWD"}})
    return found
