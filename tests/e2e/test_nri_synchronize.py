"""`cdigen nri` synchronizes with a fake runtime that has 5,000 pods (real runtimes of the tests have fewer).

The fake runtime has the limits of containerd's adaptation: 2 s for Synchronize, and messages of 4 MiB.
"""

import re
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.containerd_host import Place, eventually
from support.nri.containerd_plugins import (
    INJECTED_ANNOTATION,
    KIND,
    Plugin,
    running_plugin,
    write_inventory,
    write_specs,
)
from support.nri.runtime import Runtime, SocketTransport, container, pod

from cdigen.nri.decision.result.handover import INJECTED_INTO_ANNOTATION

PODS, UNINJECTED = 5_000, 60
REQUEST = "NVIDIA_VISIBLE_DEVICES=0"
# Variables of each container, like those of a kubelet and an image. With them, the state has 15 MB.
FILLER = [f"KUBERNETES_SERVICE_{number}=tcp://10.0.0.{number}:443/{'x' * 60}" for number in range(25)]


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="cdigen-nri-") as folder:
        place = Place(folder=Path(folder))
        place.specs.mkdir()
        place.nri.parent.mkdir()
        write_specs(place.specs)
        write_inventory(place)
        yield place


@pytest.mark.usefixtures("real_nodes")
def test_five_thousand_pods_are_synchronized_within_the_timeout_and_audited(place: Place) -> None:
    uninjected = {number * PODS // UNINJECTED for number in range(UNINJECTED)}
    pods = [pod(id=f"p{number}", name=f"pod{number}", namespace="ml") for number in range(PODS)]
    containers = [
        container(
            id=f"c{number}",
            pod_sandbox_id=f"p{number}",
            env=[*FILLER, REQUEST] if number in uninjected or number % 2 else FILLER,
            annotations={}
            if number in uninjected
            else {INJECTED_ANNOTATION: f"{KIND}=0", INJECTED_INTO_ANNOTATION: f"c{number}/1"},
        )
        for number in range(PODS)
    ]
    with listening(place) as listener, running_plugin(place, wait=False) as plugin:
        runtime = Runtime(SocketTransport(listener.accept()[0]))
        runtime.start()
        started = time.monotonic()
        messages = runtime.synchronize(pods, containers)
        took_s = time.monotonic() - started
        started = time.monotonic()
        adjustment = runtime.create(
            pod(id="new", namespace="ml"), container(pod_sandbox_id="new", env=[REQUEST])
        )
        waited_s = time.monotonic() - started
        audited(plugin, UNINJECTED)
        memory = memory_mb(plugin)
        print(f"{messages} messages in {took_s:.2f} s, a container then waited {waited_s:.3f} s, {memory} MB")
        runtime.close()
    assert messages > 2
    assert took_s < runtime.request_timeout_s
    assert [device.name for device in adjustment.cdi_devices] == [f"{KIND}=0"]


def audited(plugin: Plugin, count: int) -> None:
    """Wait until the audit has found COUNT uninjected containers."""
    eventually(
        lambda: (plugin.is_registered() and plugin.status()["uninjected_count"] == count) or None,
        "the audit",
    )


def memory_mb(plugin: Plugin) -> dict[str, int]:
    """Return the maximum and the current memory of the plugin."""
    assert plugin.process
    status = Path(f"/proc/{plugin.process.pid}/status").read_text()
    return {name: int(kb) // 1024 for name, kb in re.findall(r"(VmHWM|VmRSS):\s*(\d+) kB", status)}


def listening(place: Place) -> socket.socket:
    """Return a listening socket at the path of the runtime's socket."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place.nri))
    listener.listen()
    listener.settimeout(20)
    return listener
