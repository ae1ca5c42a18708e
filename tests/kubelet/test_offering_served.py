"""The kubelet, the process, and what it makes of the host: one container's devices from end to end."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from support.kubelet.host_offering import GPU, put
from support.kubelet.link import status
from support.values import unhealthy_gpus
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.kubelet.double import Kubelet

pytest_plugins = ("support.kubelet.link",)

pytestmark = pytest.mark.process
SCRIPT = """
import sys
from cdigen.config import KubeletConfig
from cdigen.frontend.host_state import HostSources
from cdigen.frontend.log import make_logger
from cdigen.frontend.sd_notify import Notifier
from cdigen.frontend.signals import listen
from cdigen.kubelet.offering import HostOffering
from cdigen.kubelet.plugin import Plugin
from cdigen.kubelet.plugin_config import PluginConfig
from cdigen.model.profile import DEFAULT

root, kubelet_dir, run_dir = sys.argv[1:]
sources = HostSources(host=root, specs=root, spec_dirs=("/run/cdi",), runs=root, run_dir="/run/cdigen")
config = PluginConfig(kubelet_dir=kubelet_dir, run_dir=run_dir, sources=sources)
offering = HostOffering(KubeletConfig(), (DEFAULT,), kubelet_dir)
logger = make_logger()
Plugin(lambda _: config, lambda _: offering, notifier=Notifier(), logger=logger, signals=listen()).run()
"""


@contextmanager
def running(root: Path, folder: Path) -> Iterator[None]:
    command = [sys.executable, "-c", SCRIPT, str(root), str(folder), str(folder / "run")]
    with subprocess.Popen(command, cwd=Path(__file__).parent) as process:
        try:
            yield
        finally:
            process.kill()


def test_a_container_gets_its_gpu_by_name_and_the_journal_has_it(
    kubelet: Kubelet, folder: Path, tmp_path: Path
) -> None:
    host = unhealthy_gpus.example()
    put(tmp_path, host)
    ids = sorted(str(gpu.uuid) for gpu in host["nvidia"].accelerators)
    kubelet.start()
    with running(tmp_path, folder):
        assert until(lambda: sorted(kubelet.list_of(GPU)) == ids)
        plugin = kubelet.endpoints[GPU]
        chosen = plugin.prefer(ids, [ids[5]], 2)
        assert (len(chosen), chosen[0]) == (2, ids[5])

        container = plugin.allocate(*chosen)

        names = [f"{GPU}={one}" for one in chosen]
        assert [device.name for device in container.cdi_devices] == names
        assert dict(container.annotations) == {"cdi.k8s.io/cdigen_nvidia.com_gpu": ",".join(names)}
        assert [*container.envs, *container.mounts, *container.devices] == []
        with pytest.raises(grpc.RpcError) as refused:
            plugin.allocate("GPU-9")
        assert refused.value.details() == f"cdigen: {GPU} has no GPU-9 (any more); it has 8 devices now"
        # An unhealthy GPU is in the list, and is refused with its cause.
        put(tmp_path, unhealthy_gpus.ill(host, 0))
        assert until(lambda: "Unhealthy" in [one[0] for one in kubelet.list_of(GPU).values()])
        assert until(lambda: [row["state"] for row in status(folder).get("journal", [])][-1:] == ["refused"])
