"""One `cdigen nri` takes the place of another on a real containerd, while containers are created all along.

None of them goes without its GPU, and none gets it twice. CDIGEN_SOAK_HANDOVERS says how often, on each of
two releases, if not once in every way; 'make soak' asks for more.
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
    KIND,
    LIBRARY,
    MARK,
    Plugin,
    ended,
    numbers,
    running_foreign,
    started_plugin,
    write_inventory,
    write_specs,
)

from cdigen.nri.decision.handover import SEAL
from cdigen.nri.pods import Adjustment

pytestmark = pytest.mark.e2e

HANDOVERS = int(os.environ.get("CDIGEN_SOAK_HANDOVERS", "0"))
SEED = int(os.environ.get("CDIGEN_SOAK_SEED", "21"))
GPU0 = numbers("/dev/nvidia0")
WISH = "NVIDIA_VISIBLE_DEVICES=0"
NODE = "/dev/nvidia0"
HOOK = {"hookName": "createContainer", "path": "/bin/true", "args": ["true"]}
# A runtime handler that passes a pod's annotations of ours on to its containers, as an administrator may set.
FORGES = """\
[plugins."{runtime}".containerd.runtimes.passes]
  runtime_type = "io.containerd.runc.v2"
  pod_annotations = ["cdigen.dev/*"]
"""
# How the first of two ends: stopped, killed, hung until the runtime gives it up, and killed then.
ENDS = ("TERM", "KILL", "HANG", "TERM", "TERM", "KILL")


@contextmanager
def running(cache: Path, name: str) -> Iterator[Containerd]:
    """Run a release of containerd, with specs that have a hook."""
    release = RELEASES[name]
    forges = FORGES.format(runtime=release.runtime)
    with (
        holding_node() as (holder, folder),
        containerd_within(holder, folder, cache=cache, release=release, settings=forges) as host,
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
    """Instances of the plugin with one run directory, one after the other; all end with the context."""

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
        """Start the next one, and wait until it is registered."""
        options = (*(["--standby"] if standby else []), *(["-v"] if verbose else []))
        settings = {"unsupported_cdi": "raw", **policy}
        number = f"log{len(self._made)}-{time.monotonic_ns()}"
        plugin = started_plugin(self._host, self._folder, options, settings, log=number)
        self._made.append(plugin)
        eventually(
            lambda: plugin.said("registered") or None, "it is registered", told=lambda: plugin.log_file
        )
        return plugin


def taken_over(plugin: Plugin) -> None:
    """Wait until PLUGIN has the run directory."""
    process = plugin.process
    assert process

    def has_it() -> bool | None:
        try:
            status = plugin.status()
        except FileNotFoundError:
            return None
        return (status["pid"] == process.pid and status["state"] == "registered") or None

    eventually(has_it, "it has the run directory", told=lambda: plugin.log[-10:])


def given(container: Container) -> dict[str, int]:
    """Return how often the container has each thing that the spec of one GPU gives."""
    spec = container.spec()
    hooks = spec.get("hooks") or {}
    return {
        "node": [device["path"] for device in spec["linux"]["devices"]].count(NODE),
        "mount": [mount["destination"] for mount in spec["mounts"]].count(LIBRARY),
        "hook": len(hooks.get("createContainer") or []),
        "variable": spec["process"]["env"].count("NVIDIA_VISIBLE_DEVICES=void"),
        "mark": int(spec["annotations"].get(MARK) == f"{KIND}=0"),
        "seal": int(spec["annotations"].get(SEAL, "").startswith(f"{container.id}/")),
    }


ONCE = dict.fromkeys(("node", "mount", "hook", "variable", "mark", "seal"), 1)


class Traffic:
    """Containers of one pod that are created, looked at and removed all the while."""

    def __init__(self, host: Containerd, *, threads: int = 2) -> None:
        self.seen: Counter[str] = Counter()
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
                made = pod.create(WISH, name=f"c{number}")
                has = given(made)
                # Starting takes several times as long as creating: some do.
                if number % 20 == 0:
                    self._host.cri.call("StartContainer", container_id=made.id)
                    has["node"] += made.nodes() != GPU0
                if has != ONCE:
                    self.wrong.append((made.name, has))
                self._host.cri.call("RemoveContainer", container_id=made.id)
            except Exception as error:  # noqa: BLE001 - the test judges it
                self.wrong.append(error)
                return
            self.seen["containers"] += 1


def end(plugin: Plugin, how: str, traffic: Traffic) -> None:
    """End PLUGIN in the way HOW."""
    if how == "HANG":
        plugin.send(signal.SIGSTOP)
        before = traffic.seen["containers"]
        # plugin_request_timeout for each who waits, and the runtime goes on without it.
        eventually(lambda: traffic.seen["containers"] > before + 5 or None, "the runtime has given it up")
        plugin.end(signal.SIGKILL)
    else:
        plugin.end(signal.Signals[f"SIG{how}"])


def test_no_container_goes_without_its_gpu_or_gets_it_twice(host: Containerd) -> None:
    chance = random.Random(SEED)
    # The hang, which takes the runtime's 2 s, once.
    handovers = HANDOVERS or (3 if host.release is RELEASES["forky"] else 2)
    with Instances(host) as instances:
        first = instances.start(standby=False)
        with Traffic(host) as traffic:
            for number in range(handovers):
                second = instances.start(verbose=False)
                assert second.said("stands by")
                time.sleep(chance.uniform(0, 0.1))
                end(first, ENDS[number % len(ENDS)], traffic)
                taken_over(second)
                assert second.said("takes over")
                first = second
        print(f"{traffic.seen['containers']} containers, {handovers} hand-overs, {host.version()}")
        assert not traffic.wrong
        assert traffic.seen["containers"] >= 5 * handovers
        assert not first.said("missed")


@pytest.mark.parametrize("host", ["forky"], indirect=True)
def test_who_stands_by_counts_and_shows_what_it_does_itself(host: Containerd) -> None:
    with Instances(host) as instances:
        first = instances.start(standby=False)
        before = host.container(WISH)
        second = instances.start()
        beside = host.container(WISH)
        host.container()
        assert (first.process and first.process.pid) == first.status()["pid"]
        first.end()
        taken_over(second)
        assert not [line for line in second.log if line["event"] in {"injected", "refused", "missed"}]
        host.container(WISH)

        def counted() -> bool | None:
            row = 'cdigen_nri_containers_total{{outcome="{}"}}'
            found = [second.metric(row.format(outcome)) for outcome in ("inject", "nothing", "served")]
            return found == [1, 0, 0] or None

        eventually(counted, "it has counted its own", told=lambda: second.ask("/metrics")[1])
        holders = {row["id"] for row in second.status()["holders"]}
        assert {before.id, beside.id} <= holders
        assert second.ask("/readyz")[0] == 200


def test_a_later_plugin_sees_annotations_of_this_creation_and_no_cdi_devices(host: Containerd) -> None:
    with Instances(host) as instances, running_foreign(host, Adjustment(), index="30") as later:
        instances.start(standby=False)
        made = host.container(WISH)
    seen = later.seen[-1].container
    assert seen.annotations[MARK] == f"{KIND}=0"
    assert seen.annotations[SEAL].startswith(f"{made.id}/")
    assert seen.cdi_devices == ()


def test_a_pod_that_writes_the_marks_itself_gets_its_gpu_all_the_same(host: Containerd) -> None:
    """Its runtime handler passes annotations on, so that they look as if an earlier plugin had set them."""
    forged: Mapping[str, str] = {MARK: f"{KIND}=1", SEAL: f"{'0' * 64}/{'0' * 16}"}
    with Instances(host) as instances, running_foreign(host, Adjustment(), index="10") as earlier:
        first = instances.start(standby=False)
        pod = host.pod(handler="passes", annotations=forged)
        assert given(pod.container(WISH)) == ONCE
        assert earlier.seen[-1].container.annotations[SEAL] == forged[SEAL]
        second = instances.start()
        assert given(pod.create(WISH, name="beside")) == ONCE
        first.end()
        taken_over(second)
        assert given(pod.create(WISH, name="after")) == ONCE
