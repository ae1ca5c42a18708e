"""With `--standby`, an instance of each service waits, and takes over when the active instance ends."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.daemon import host as daemon
from support.kubelet import process as kubelet
from support.nri import plugin as nri
from support.nri.adaptation import Adaptation
from support.waiting import PATIENCE_S, limited, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Instance = daemon.Daemon | nri.Plugin | kubelet.Process

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("real_nodes")]
POD = {"CDIGEN_POD_NAME": "cdigen-x7k2p", "CDIGEN_POD_NAMESPACE": "cdigen"}
INSTANCE = "pod cdigen/cdigen-x7k2p"
# Measured: 20 ms; a busy machine may take longer.
AT_ONCE_S = 2.0


@dataclass(kw_only=True)
class Instances:
    """The instances of one service on a host. A single instance is active."""

    root: Path
    run_dir: Path
    run: Callable[..., AbstractContextManager[Instance]]
    provides_devices: Callable[[], bool]
    # Writes another configuration.
    configure: Callable[[], object]
    # Returns whether the active instance uses the other configuration.
    is_configured: Callable[[dict[str, Any]], bool]
    # The state of an active instance, and its log event when it becomes active.
    state: str = "registered"
    begins: str = "started"
    # Makes the runtime accept an instance that starts or ends.
    register: Callable[[], object] = str
    manager: daemon.Manager
    held: ExitStack

    def start(self, *options: str, **environment: str) -> Instance:
        made = self.held.enter_context(self.run(*options, **environment, NOTIFY_SOCKET=self.manager.path))
        if options:
            self.register()
        return made

    def serve(self) -> Instance:
        """Start the first instance, in a pod, and wait until it is active."""
        first = self.start("--standby", **POD)
        assert until(lambda: self.serves(first) and self.provides_devices())
        return first

    def start_standby(self) -> Instance:
        """Start another instance, and wait until it is on standby."""
        made = self.start("--standby")
        assert until(lambda: made.lines("standby"))
        return made

    def end(self, instance: Instance, number: int) -> int:
        """Send the signal NUMBER to INSTANCE; return the exit code."""
        instance.process.send_signal(number)
        if number == signal.SIGTERM:
            self.register()
        return instance.process.wait(PATIENCE_S)

    def status(self) -> dict[str, Any]:
        """Return status.json, or {} if there is none."""
        with suppress(FileNotFoundError):
            found: dict[str, Any] = json.loads((self.run_dir / "status.json").read_bytes())
            return found
        return {}

    def serves(self, instance: Instance) -> bool:
        found = self.status()
        assert instance.process.poll() is None, instance.text
        return (found.get("pid"), found.get("state")) == (instance.process.pid, self.state)

    def files(self) -> dict[str, tuple[int, ...]]:
        """Return inode, mtime and ctime of each file of the host except logs."""
        paths = [path for path in self.root.rglob("*") if not path.name.startswith("log")]
        found = {str(path): path.lstat() for path in paths if not path.is_dir()}
        return {path: (one.st_ino, one.st_mtime_ns, one.st_ctime_ns) for path, one in found.items()}


def of_the_daemon(held: ExitStack, **more: Any) -> Instances:
    folder = held.enter_context(tempfile.TemporaryDirectory(prefix="cdigen-"))
    host = daemon.Host(Path(folder, "host")).make()
    host.configure()
    return Instances(
        root=host.root,
        run_dir=host.run_dir,
        run=partial(daemon.daemon, host, wait=False),
        provides_devices=lambda: host.devices() == {"0", "1", "all"},
        configure=lambda: host.configure("profiles: [{name: other, class: other}]\n"),
        is_configured=lambda status: [row["kind"] for row in status["specs"]] == ["nvidia.com/other"],
        state="ready",
        held=held,
        **more,
    )


def of_the_nri_plugin(held: ExitStack, **more: Any) -> Instances:
    """Return instances of the NRI plugin. A standby is also registered with the runtime."""
    host = held.enter_context(nri.host())
    runtime = Adaptation(host)
    return Instances(
        root=host.root,
        run_dir=host.run_dir,
        run=lambda *options, **variables: nri.plugin(host, *options, environment={**os.environ, **variables}),
        provides_devices=lambda: (
            nri.cdi_devices(runtime.create(f"{nri.VISIBLE}=all")) == ["nvidia.com/gpu=all"]
        ),
        configure=lambda: host.configure(text="nri: {}\n"),
        is_configured=lambda status: [row["rule"] for row in status["problems"]] == ["nri-allow-empty"],
        begins="active",
        register=runtime.register,
        held=held,
        **more,
    )


def of_the_kubelet_plugin(held: ExitStack, **more: Any) -> Instances:
    side = held.enter_context(kubelet.side_of())
    held.enter_context(kubelet.daemon(side))
    side.kubelet.start()
    logs = (f"log{number}" for number in count())
    return Instances(
        root=side.root,
        run_dir=side.run_dir,
        run=lambda *options, **variables: kubelet.cdigen_kubelet(
            side, *options, environment=variables, log=next(logs)
        ),
        provides_devices=lambda: side.lists(8),
        configure=lambda: side.configure("kubelet: {ignore: ['0']}\n"),
        is_configured=lambda _: side.lists(7),
        held=held,
        **more,
    )


@pytest.fixture(
    params=[of_the_daemon, of_the_nri_plugin, of_the_kubelet_plugin], ids=["daemon", "nri", "kubelet"]
)
def instances(request: pytest.FixtureRequest) -> Iterator[Instances]:
    with ExitStack() as held:
        # A socket's path has 107 bytes at most.
        folder = held.enter_context(tempfile.TemporaryDirectory(prefix="cdigen-"))
        manager = daemon.Manager(folder)
        held.callback(manager.close)
        yield request.param(held, manager=manager)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_the_standby_names_the_active_instance_and_takes_over_when_that_instance_ends(
    instances: Instances, number: int
) -> None:
    first = instances.serve()
    assert first.lines("standby") == []
    second = instances.start_standby()
    (line,) = second.lines("standby")
    assert (
        line["message"] == f"{INSTANCE} serves this host; this instance waits until the other instance ends"
    )
    assert instances.manager.receives("READY=1", "standby") is not None
    assert instances.status()["instance"] == INSTANCE
    assert instances.end(first, number) == (0 if number == signal.SIGTERM else -number)
    assert until(lambda: instances.serves(second))
    (line,) = second.lines("active")
    assert line["message"] == f"{INSTANCE} has ended; this instance takes over"
    assert second.lines(instances.begins)


def test_the_standby_writes_no_files_when_it_reloads(instances: Instances) -> None:
    first = instances.serve()
    second = instances.start_standby()
    assert instances.manager.receives("READY=1", "standby") is not None
    # Only the standby can change a file now.
    first.process.send_signal(signal.SIGSTOP)
    before = instances.files()
    second.process.send_signal(signal.SIGHUP)
    assert instances.manager.receives("RELOADING=1") is not None
    assert instances.manager.receives("READY=1", "standby") is not None
    assert instances.files() == before
    first.process.send_signal(signal.SIGCONT)


@limited(AT_ONCE_S)
def test_the_standby_ends_at_once_on_sigterm_and_the_active_instance_continues(
    instances: Instances, within_s: float
) -> None:
    first = instances.serve()
    second = instances.start_standby()
    began = time.monotonic()
    assert instances.end(second, signal.SIGTERM) == 0
    assert time.monotonic() - began < within_s
    assert second.lines(instances.begins) == []
    assert instances.serves(first)
    assert instances.provides_devices()
    assert (instances.run_dir / "http.sock").exists()


def test_a_single_standby_of_several_takes_over_from_a_killed_instance(instances: Instances) -> None:
    first = instances.serve()
    waiting = [instances.start_standby(), instances.start_standby()]
    while waiting:
        instances.end(first, signal.SIGKILL)
        assert until(lambda: [one for one in waiting if one.lines("active")])
        (first,) = [one for one in waiting if one.lines("active")]
        waiting.remove(first)
        assert until(lambda first=first: instances.serves(first))  # type: ignore[misc]
        assert all(one.process.poll() is None and not one.lines("active") for one in waiting)


def test_the_standby_applies_a_configuration_that_changed_while_it_waited(instances: Instances) -> None:
    first = instances.serve()
    second = instances.start_standby()
    instances.configure()
    instances.end(first, signal.SIGKILL)
    assert until(lambda: instances.serves(second))
    assert until(lambda: instances.is_configured(instances.status()))


def test_without_standby_a_second_instance_fails_and_names_the_first_instance(instances: Instances) -> None:
    instances.serve()
    second = instances.start()
    assert second.process.wait(PATIENCE_S) == 5
    assert f"held by {INSTANCE}" in second.text
    assert str(instances.run_dir) in second.text
