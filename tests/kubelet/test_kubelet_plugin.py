"""A process with KubeletPlugin advertises the devices of specs, and updates the list when specs change."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.paths import TESTS
from support.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from pathlib import Path

    from support.kubelet.double import Kubelet

pytestmark = pytest.mark.process
GPU = "vendor.com/gpu"
# The resource has the name of the spec's kind. The units have the names of the spec's devices.
SCRIPT = """
import sys
from support.kubelet.advertised import Echo
from support.kubelet.resources import units
from cdigen.service.host_state import HostSources
from cdigen.service.process.context import service_process
from cdigen.kubelet.advertised_resources import AdvertisedResources
from cdigen.kubelet.plugin import KubeletPlugin
from cdigen.kubelet.plugin_config import KubeletPluginConfig
from cdigen.kubelet.resources.model import Resource

root, kubelet_dir, run_dir = sys.argv[1:]
class Provider(AdvertisedResources):
    def resources(self, state):
        ids = [name.partition("=")[2] for name, _ in state.specs.devices]
        if "fault" in ids:
            raise ZeroDivisionError("a fault")
        return [(Resource(name="vendor.com/gpu", units=units(*ids)), Echo())]

sources = HostSources(host=root, specs=root, spec_dirs=("/run/cdi",), runs=root, run_dir="/run/cdigen")
config = KubeletPluginConfig(kubelet_dir=kubelet_dir, run_dir=run_dir, sources=sources)
provider = Provider(config, lambda _: None)
with service_process(verbose=False) as context:
    KubeletPlugin(lambda _: config, lambda _: provider, context).run()
"""


def put_spec(root: Path, *names: str) -> None:
    """Put a spec whose devices have NAMES into the spec directory of ROOT."""
    devices = [{"name": name, "containerEdits": {"env": ["A=B"]}} for name in names]
    folder = root / "run/cdi"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "new").write_text(json.dumps({"cdiVersion": "0.6.0", "kind": GPU, "devices": devices}))
    (folder / "new").rename(folder / "vendor.json")


def row(folder: Path) -> dict[str, Any]:
    """Return the first resource in the status.json below FOLDER; raise LookupError if there is none yet."""
    try:
        found = json.loads((folder / "run/status.json").read_bytes())
    except FileNotFoundError as error:
        raise LookupError from error
    first: dict[str, Any] = found["resources"][0]
    return first


def test_the_kubelet_lists_the_devices_of_the_specs(kubelet: Kubelet, folder: Path, tmp_path: Path) -> None:
    put_spec(tmp_path, "0", "1")
    kubelet.start()
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(folder), str(folder / "run")]
    with subprocess.Popen(command, cwd=TESTS) as process:
        try:
            assert until(lambda: kubelet.lists("0", "1", resource=GPU))
            assert until(lambda: row(folder)["state"] == "registered")
            put_spec(tmp_path, "0", "1", "2")
            assert until(lambda: kubelet.lists("0", "1", "2", resource=GPU))
            # An exception of the provider does not change the list.
            put_spec(tmp_path, "fault")
            put_spec(tmp_path, "x" * 64)
            assert until(lambda: "64 characters" in row(folder)["reason"])
            assert kubelet.lists("0", "1", "2", resource=GPU)
            (tmp_path / "run/cdi/vendor.json").unlink()
            assert until(lambda: kubelet.lists(resource=GPU))
            assert len(kubelet.registered) == 1
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
    assert not list(kubelet.plugins.glob("cdigen-*"))
