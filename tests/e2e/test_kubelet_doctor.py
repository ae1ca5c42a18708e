"""`cdigen doctor --for kubelet` reports faults of real nodes (kubelet 1.20.2, containerd 2.1.9 or 1.7.24)."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from support.abilities import cannot_run
from support.cluster.device_plugin import running_device_plugin
from support.cluster.node import Node, running_node
from support.containers.containerd_host import RELEASES, eventually
from support.hosts import driver_files
from support.hosts.nvidia_kernel import example_gpus, write_kernel_side
from support.paths import REPOSITORY
from support.processes import captured
from support.waiting import HOST_PATIENCE_S

from cdigen.host.trust import untrusted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e

GPU = "nvidia.com/gpu"
# The host is a folder without real device nodes, so the cause node-unusable is ignored.
CONFIG = "health: {ignore: [node-unusable]}\ndaemon: {settle_timeout_s: 2}\nspec_dirs: [%s]\n"
RUN_DIR = "/run/cdigen-kubelet"


class Served:
    """A node with processes of cdigen in its namespaces; `root` contains the files of its two GPUs."""

    def __init__(self, node: Node, root: Path) -> None:
        self.node = node
        self.root = root
        self.config = node.folder / "config.yaml"
        self.log = node.folder / "cdigen.log"

    def command(self, *arguments: str) -> list[str | Path]:
        environment = ("env", f"PYTHONPATH={REPOSITORY}", "PATH=/usr/bin:/bin:/usr/sbin:/sbin")
        return self.node.enter(*environment, sys.executable, "-m", "cdigen", *arguments)

    @contextmanager
    def running(self, *arguments: str) -> Iterator[None]:
        with (
            self.log.open("ab") as log,
            subprocess.Popen(self.command(*arguments), stdout=log, stderr=log) as process,
        ):
            try:
                yield
            finally:
                # nsenter does not forward signals.
                subprocess.run(["pkill", "--parent", str(process.pid), "--signal", "KILL"], check=False)
                process.kill()

    def plugin(self) -> Any:
        options = ("--root", str(self.root), "--kubelet-dir", "/var/lib/kubelet", "--run-dir", RUN_DIR)
        return self.running("kubelet", *options)

    def has(self, count: int) -> None:
        eventually(
            lambda: self.node.allocatable(GPU) == count or None,
            f"{count} devices",
            details=lambda: self.log.read_text()[-3000:],
        )

    def rows(self, config: str = "") -> dict[str, dict[str, Any]]:
        """Return the doctor's results for the kubelet and for CDI in its runtime, by check."""
        self.config.write_text(CONFIG % self.node.specs + config)
        command = self.command("doctor", "--for", "kubelet", "--json", "--config", str(self.config))
        done = captured(command, timeout=HOST_PATIENCE_S)
        found = json.loads(done.stdout)
        assert isinstance(found, list), done.stdout
        relevant = [row for row in found if row["topic"] == "kubelet" or row["check"] == "containerd-cdi"]
        return {row["check"]: row for row in reversed(relevant)}

    def wrong(self, config: str = "") -> dict[str, str]:
        return {name: row["detail"] for name, row in self.rows(config).items() if not row["ok"]}


@pytest.fixture(scope="module", params=["forky", "trixie"])
def served(
    request: pytest.FixtureRequest,
    cache: Path,
    kubernetes_tree: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    assert kubernetes_tree.is_dir()
    root = tmp_path_factory.mktemp("host") / "root"
    driver_files.debian_13(root)
    write_kernel_side(root, example_gpus(2))
    for folder in ("run/cdi", "etc/cdigen"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "etc/cdigen/config.yaml").write_text(CONFIG % "/run/cdi")
    with running_node(cache, RELEASES[request.param]) as node:
        served = Served(node, root)
        with served.running("run", "--root", str(root)):
            yield served
            node.remove_pods()


def test_a_healthy_node_has_no_failed_check_and_faults_are_reported(served: Served) -> None:
    node = served.node
    # The kubelet is untrusted if other users can change it, for example in a checkout below /tmp.
    if reason := untrusted(str(node.tree / "bin/kubelet")):
        cannot_run(f"the doctor does not run an untrusted kubelet to read its version: {reason}")
    with served.plugin():
        served.has(2)
        rows = served.rows()
        assert {name: row["detail"] for name, row in rows.items() if not row["ok"]} == {}
        assert "kubelet 1.20.2 is running" in rows["kubelet-running"]["detail"]
        assert rows["kubelet-socket"]["checked"]
        assert GPU in rows["kubelet-registered"]["detail"]
        assert "2 of nvidia.com/gpu" in rows["kubelet-devices"]["detail"]
        assert f"(configuration: {node.folder}/config.toml" in rows["kubelet-runtime"]["detail"]
        assert "as annotation" in rows["kubelet-names"]["detail"]
        # This kubelet reads only the annotation.
        only = "kubelet: {device_list_strategy: [cdi_devices]}\n"
        assert "the kubelet 1.20.2 drops cdi_devices" in served.wrong(only)["kubelet-names"]
        # Another plugin registers the resource of cdigen.
        sockets = node.folder / "kubelet/device-plugins"
        with running_device_plugin(sockets, GPU, "envvar", "other", endpoint="nvidia-gpu.sock"):
            assert "nvidia.com/gpu (nvidia-gpu.sock)" in served.wrong()["kubelet-plugin-conflict"]
    # cdigen kubelet was killed.
    wrong = served.wrong()
    assert "cdigen kubelet is not running" in wrong["kubelet-plugin"]
    assert GPU in wrong["kubelet-stale-resource"]


def test_disabled_cdi_is_reported_with_the_configuration_file_of_the_runtime(served: Served) -> None:
    file = served.node.folder / "config.toml"
    text = file.read_text()
    file.write_text(text.replace("enable_cdi = true", "enable_cdi = false"))
    try:
        assert served.rows()["containerd-cdi"]["detail"] == f"CDI is disabled: {file} disables it"
    finally:
        file.write_text(text)


def test_a_stopped_kubelet_is_reported(served: Served) -> None:
    served.node.kubelet.stop()
    try:
        assert "no kubelet runs" in served.wrong()["kubelet-running"]
    finally:
        served.node.kubelet.start()
        served.node.is_ready()
