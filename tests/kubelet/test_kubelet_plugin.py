"""The process: what the specs have is offered to the kubelet, and the list follows them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from support.kubelet.link import status
from support.paths import TESTS
from support.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.kubelet.double import Kubelet

pytest_plugins = ("support.kubelet.link",)

pytestmark = pytest.mark.process
GPU = "vendor.com/gpu"
# The resource is the spec's kind, its units the names of devices.
SCRIPT = """
import sys
from support.kubelet.offered import Echo, units
from cdigen.frontend.host_state import HostSources
from cdigen.frontend.log import make_logger
from cdigen.frontend.sd_notify import Notifier
from cdigen.frontend.signals import listen
from cdigen.kubelet.plugin import Plugin
from cdigen.kubelet.plugin_config import PluginConfig
from cdigen.kubelet.resources.model import Resource

root, kubelet_dir, run_dir = sys.argv[1:]
echo = Echo()

class Offering:
    def connect(self, ask, given): pass
    def stop(self): pass
    def configure(self, config, problems): pass
    def findings(self): return ()
    def stale(self): return ()
    def has_changed(self): return False
    def answers(self): return ()
    def set_pods(self, pods): pass
    def reason_unready(self): return ""
    def metrics(self): return bytes
    def labels(self): return ()
    def set_labels(self, state): pass
    def resources(self, state):
        names = [name for name, _ in state.specs.devices]
        if "vendor.com/gpu=fault" in names:
            raise ZeroDivisionError("of a fault")
        ids = [name.partition("=")[2] for name in names]
        return [(Resource(name="vendor.com/gpu", units=units(*ids)), echo)]

    def set_statuses(self, statuses, problems):
        rows = [{"name": one.resource, "state": one.state, "count": one.count} for one in statuses]
        self.told = {"resources": rows, "problems": dict(problems)}
    def document(self, process): return self.told

sources = HostSources(host=root, specs=root, spec_dirs=("/run/cdi",), runs=root, run_dir="/run/cdigen")
config = PluginConfig(kubelet_dir=kubelet_dir, run_dir=run_dir, sources=sources)
logger = make_logger()
Plugin(lambda _: config, lambda _: Offering(), notifier=Notifier(), logger=logger, signals=listen()).run()
"""


def put_spec(root: Path, *names: str) -> None:
    """Put a spec with devices of NAMES into the spec directory of ROOT."""
    devices = [{"name": name, "containerEdits": {"env": ["A=B"]}} for name in names]
    folder = root / "run/cdi"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "new").write_text(json.dumps({"cdiVersion": "0.6.0", "kind": GPU, "devices": devices}))
    (folder / "new").rename(folder / "vendor.json")


@contextmanager
def running(root: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SCRIPT, str(root), str(folder), str(folder / "run")]
    with subprocess.Popen(command, cwd=TESTS, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lists(kubelet: Kubelet, *ids: str) -> bool:
    return sorted(kubelet.list_of(GPU)) == sorted(ids)


def test_the_kubelet_has_what_the_specs_have(kubelet: Kubelet, folder: Path, tmp_path: Path) -> None:
    put_spec(tmp_path, "0", "1")
    kubelet.start()
    with running(tmp_path, folder) as process:
        assert until(lambda: lists(kubelet, "0", "1"))
        assert until(lambda: status(folder).get("resources", [{}])[0].get("state") == "registered")
        put_spec(tmp_path, "0", "1", "2")
        assert until(lambda: lists(kubelet, "0", "1", "2"))
        # What cannot be told changes nothing.
        put_spec(tmp_path, "fault")
        put_spec(tmp_path, "x" * 64)
        assert until(lambda: GPU in status(folder)["problems"])
        assert lists(kubelet, "0", "1", "2")
        (tmp_path / "run/cdi/vendor.json").unlink()
        assert until(lambda: lists(kubelet))
        assert len(kubelet.registered) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert not list(kubelet.plugins.glob("cdigen-*"))


def test_a_kubelet_that_starts_or_restarts_is_registered_with_once(
    kubelet: Kubelet, folder: Path, tmp_path: Path
) -> None:
    put_spec(tmp_path, "0")
    with running(tmp_path, folder):
        assert until(lambda: status(folder).get("resources", [{}])[0].get("state") == "waiting")
        for _ in range(3):
            kubelet.start()
            assert until(lambda: lists(kubelet, "0"))
            kubelet.kill()
        assert len(kubelet.registered) == 3


def test_a_process_that_was_killed_leaves_nothing_to_the_next(
    kubelet: Kubelet, folder: Path, tmp_path: Path
) -> None:
    put_spec(tmp_path, "0")
    kubelet.start()
    with running(tmp_path, folder):
        assert until(lambda: lists(kubelet, "0"))
    former = kubelet.endpoints[GPU]
    assert until(former.ended.is_set)
    with running(tmp_path, folder):
        assert until(lambda: kubelet.endpoints[GPU] is not former and lists(kubelet, "0"))
        assert len(list(kubelet.plugins.glob("cdigen-*"))) == 1
