"""An instance of `cdigen nri` replaces another one on a real containerd, while containers are created.

Each container has its GPU exactly once. CDIGEN_SOAK_HANDOVERS is the number of handovers on each of two
releases of containerd. The default is one handover for each kind of end (ENDS); the older release is not
tested with a hang. 'make soak' sets a larger number.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from support.containers.containerd_host import (
    RELEASES,
    Container,
    Containerd,
    containerd_within,
    eventually,
    holding_node,
)
from support.nri.containerd_plugins import (
    INJECTED_ANNOTATION,
    KIND,
    LIBRARY,
    Plugin,
    ended,
    numbers,
    running_foreign,
    started_plugin,
    write_inventory,
    write_specs,
)

from cdigen.nri.decision.result.handover import INJECTED_INTO_ANNOTATION
from cdigen.nri.pods import Adjustment

pytestmark = pytest.mark.e2e

HANDOVERS = int(os.environ.get("CDIGEN_SOAK_HANDOVERS", "0"))
SEED = int(os.environ.get("CDIGEN_SOAK_SEED", "21"))
GPU0 = numbers("/dev/nvidia0")
REQUEST = "NVIDIA_VISIBLE_DEVICES=0"
NODE = "/dev/nvidia0"
HOOK = {"hookName": "createContainer", "path": "/bin/true", "args": ["true"]}
# A runtime handler that copies cdigen's annotations from a pod to its containers. An administrator can
# configure such a handler.
COPYING_HANDLER = """\
[plugins."{runtime}".containerd.runtimes.passes]
  runtime_type = "io.containerd.runc.v2"
  pod_annotations = ["cdigen.dev/*"]
"""
# How each active instance ends: stop, kill, or a hang until the runtime drops the instance and then a kill.
ENDS = ("TERM", "KILL", "HANG", "TERM", "TERM", "KILL")


@contextmanager
def running(cache: Path, name: str) -> Iterator[Containerd]:
    """Run a release of containerd, with specs that have a hook."""
    release = RELEASES[name]
    settings = COPYING_HANDLER.format(runtime=release.runtime)
    with (
        holding_node() as (holder, folder),
        containerd_within(holder, folder, cache=cache, release=release, settings=settings) as host,
    ):
        write_specs(host.specs, hooks=[HOOK])
        write_inventory(host)
        yield host
        host.remove_all()


@pytest.fixture(scope="module", params=["forky", "trixie"])
def host(request: pytest.FixtureRequest, cache: Path) -> Iterator[Containerd]:
    with running(cache, request.param) as made:
        yield made


class Instances:
    """Instances of the plugin that share a run directory; all instances end when the context ends."""

    def __init__(self, host: Containerd) -> None:
        self._host = host
        self._folder = host.folder / "plugin-20-cdigen"
        self._made: list[Plugin] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for plugin in self._made:
            ended(plugin)

    def start(self, *, standby: bool = True, verbose: bool = True, **policy: object) -> Plugin:
        """Start the next instance, and wait until it is registered."""
        options = (*(["--standby"] if standby else []), *(["-v"] if verbose else []))
        settings = {"unsupported_cdi": "raw", **policy}
        number = f"log{len(self._made)}-{time.monotonic_ns()}"
        plugin = started_plugin(self._host, self._folder, options, settings, log=number)
        self._made.append(plugin)
        eventually(
            lambda: plugin.log_lines("registered") or None,
            "the instance is registered",
            details=lambda: plugin.log_file,
        )
        return plugin


def becomes_active(plugin: Plugin) -> None:
    """Wait until the status in the run directory is that of PLUGIN."""
    process = plugin.process
    assert process

    def is_active() -> bool | None:
        try:
            status = plugin.status()
        except FileNotFoundError:
            return None
        return (status["pid"] == process.pid and status["state"] == "registered") or None

    eventually(is_active, "the instance is active", details=lambda: plugin.log[-10:])


def counts(container: Container) -> dict[str, int]:
    """Return how often the container has each item of the spec of one GPU."""
    spec = container.spec()
    hooks = spec.get("hooks") or {}
    return {
        "node": [device["path"] for device in spec["linux"]["devices"]].count(NODE),
        "mount": [mount["destination"] for mount in spec["mounts"]].count(LIBRARY),
        "hook": len(hooks.get("createContainer") or []),
        "variable": spec["process"]["env"].count("NVIDIA_VISIBLE_DEVICES=void"),
        "marker": int(spec["annotations"].get(INJECTED_ANNOTATION) == f"{KIND}=0"),
        "injected_into": int(
            spec["annotations"].get(INJECTED_INTO_ANNOTATION, "").startswith(f"{container.id}/")
        ),
    }


ONCE = dict.fromkeys(("node", "mount", "hook", "variable", "marker", "injected_into"), 1)


class Traffic:
    """Containers that are created, checked and removed until the context ends."""

    def __init__(self, host: Containerd, *, threads: int = 2) -> None:
        self.counters: Counter[str] = Counter()
        self.wrong: list[object] = []
        self._host = host
        self._stop = threading.Event()
        self._pods = [host.pod() for _ in range(threads)]
        self._threads = [threading.Thread(target=self._work, args=(pod,)) for pod in self._pods]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _work(self, pod: Any) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                made = pod.create(REQUEST, name=f"c{number}")
                has = counts(made)
                # A start takes several times as long as a creation, so only some containers are started.
                if number % 20 == 0:
                    self._host.cri.call("StartContainer", container_id=made.id)
                    has["node"] += made.nodes() != GPU0
                if has != ONCE:
                    self.wrong.append((made.name, has))
                self._host.cri.call("RemoveContainer", container_id=made.id)
            except Exception as error:  # noqa: BLE001 - the test checks the list
                self.wrong.append(error)
                return
            self.counters["containers"] += 1


def end(plugin: Plugin, how: str, traffic: Traffic) -> None:
    """End PLUGIN in the manner HOW, which is an entry of ENDS: with a signal or with a hang."""
    if how == "HANG":
        plugin.send(signal.SIGSTOP)
        before = traffic.counters["containers"]
        # After plugin_request_timeout for each waiting request the runtime continues without the plugin.
        eventually(
            lambda: traffic.counters["containers"] > before + 5 or None, "the runtime has dropped the plugin"
        )
        plugin.end(signal.SIGKILL)
    else:
        plugin.end(signal.Signals[f"SIG{how}"])


def test_each_container_has_its_gpu_exactly_once_during_handovers(host: Containerd) -> None:
    chance = random.Random(SEED)
    # Only one release is tested with the hang, which takes the runtime's timeout of 2 s.
    handovers = HANDOVERS or (3 if host.release is RELEASES["forky"] else 2)
    with Instances(host) as instances:
        first = instances.start(standby=False)
        with Traffic(host) as traffic:
            for number in range(handovers):
                second = instances.start(verbose=False)
                assert second.log_lines("standby")
                time.sleep(chance.uniform(0, 0.1))
                end(first, ENDS[number % len(ENDS)], traffic)
                becomes_active(second)
                assert second.log_lines("active")
                first = second
        print(f"{traffic.counters['containers']} containers, {handovers} handovers, {host.version()}")
        assert not traffic.wrong
        assert traffic.counters["containers"] >= 5 * handovers
        assert not first.log_lines("uninjected_container")


@pytest.mark.parametrize("host", ["forky"], indirect=True)
def test_a_standby_instance_counts_and_logs_only_its_own_injections(host: Containerd) -> None:
    with Instances(host) as instances:
        first = instances.start(standby=False)
        before = host.container(REQUEST)
        second = instances.start()
        beside = host.container(REQUEST)
        host.container()
        assert (first.process and first.process.pid) == first.status()["pid"]
        first.end()
        becomes_active(second)
        assert not [
            line for line in second.log if line["event"] in {"injected", "refused", "uninjected_container"}
        ]
        host.container(REQUEST)

        def counted() -> bool | None:
            row = 'cdigen_nri_containers_total{{outcome="{}"}}'
            found = [second.metric(row.format(outcome)) for outcome in ("inject", "nothing", "served")]
            return found == [1, 0, 0] or None

        eventually(
            counted,
            "the instance counts only its own injections",
            details=lambda: second.http_get("/metrics")[1],
        )
        injected = {row["id"] for row in second.status()["injected_containers"]}
        assert {before.id, beside.id} <= injected
        assert second.http_get("/readyz")[0] == 200


def test_a_later_plugin_receives_the_annotations_of_the_injection_and_no_cdi_devices(
    host: Containerd,
) -> None:
    with Instances(host) as instances, running_foreign(host, Adjustment(), index="30") as later:
        instances.start(standby=False)
        made = host.container(REQUEST)
    visible = later.requests[-1].container
    assert visible.annotations[INJECTED_ANNOTATION] == f"{KIND}=0"
    assert visible.annotations[INJECTED_INTO_ANNOTATION].startswith(f"{made.id}/")
    assert visible.cdi_devices == ()


def test_a_pod_with_forged_annotations_gets_its_gpu(host: Containerd) -> None:
    """The runtime handler copies the pod's annotations, so that they look like those of an earlier plugin."""
    forged: Mapping[str, str] = {
        INJECTED_ANNOTATION: f"{KIND}=1",
        INJECTED_INTO_ANNOTATION: f"{'0' * 64}/{'0' * 16}",
    }
    with Instances(host) as instances, running_foreign(host, Adjustment(), index="10") as earlier:
        first = instances.start(standby=False)
        pod = host.pod(handler="passes", annotations=forged)
        assert counts(pod.container(REQUEST)) == ONCE
        assert (
            earlier.requests[-1].container.annotations[INJECTED_INTO_ANNOTATION]
            == forged[INJECTED_INTO_ANNOTATION]
        )
        second = instances.start()
        assert counts(pod.create(REQUEST, name="beside")) == ONCE
        first.end()
        becomes_active(second)
        assert counts(pod.create(REQUEST, name="after")) == ONCE
