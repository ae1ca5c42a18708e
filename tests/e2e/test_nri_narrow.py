"""`nri: {narrow: true}` with a real containerd: which files of a real driver a container's capabilities give.

The real cdigen writes the specs of a Debian host with two GPUs; containerd finds that host below a folder.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.containers.containerd_host import RELEASES, Containerd, running_containerd
from support.containers.gpu_hosts import GPUS, generate
from support.hosts.nvidia_kernel import write_kernel_side
from support.nri.containerd_plugins import Plugin, plugin_config, running_plugin
from support.own_trees import copied_tree

pytestmark = pytest.mark.e2e

ASKS = "NVIDIA_VISIBLE_DEVICES=0"
CUDA, NVML, GL, ENCODE = "libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-glcore", "libnvidia-encode.so.1"
SMI = "/usr/bin/nvidia-smi"
KINDS = ["nvidia.com-gpu-compute.json", "nvidia.com-gpu-graphics.json", "nvidia.com-gpu.json"]


@dataclass(frozen=True, kw_only=True)
class Narrow:
    """A containerd beside whose plugin the driver's files are narrowed."""

    containerd: Containerd
    plugin: Plugin

    def found(self, *env: str, **fields: Any) -> dict[str, bool]:
        """Return which of the driver's parts a container with ENV has; it asks for a GPU."""
        container = self.containerd.container(*env, **fields)
        names = container.sh(f"ls /usr/lib/x86_64-linux-gnu {SMI} /dev /dev/dri 2>/dev/null")
        assert "nvidia0" in names
        return {
            "compute": CUDA in names,
            "utility": NVML in names and SMI in names,
            "graphics": GL in names and "renderD129" in names,
            "video": ENCODE in names,
        }


@pytest.fixture(scope="module")
def specs(cache: Path, driver_tree: Path) -> Iterator[dict[str, Any]]:
    """Return the specs of a GPU host by the names of their files, with paths that containerd finds."""
    with copied_tree(driver_tree, cache) as root:
        written, config = root.parent / "specs", root.parent / "config.yaml"
        write_kernel_side(root, GPUS)
        written.mkdir()
        config.write_text("nri: {narrow: true}\n")
        files = ("--layout", "files", "--hook", "none")
        generate(root, "--config", config, *files, "--output-dir", written)
        yield {file.name: below(root, json.loads(file.read_text())) for file in sorted(written.iterdir())}


@pytest.fixture(scope="module")
def narrow(cache: Path, specs: dict[str, Any]) -> Iterator[Narrow]:
    with running_containerd(cache, RELEASES["forky"]) as containerd:
        lay(specs, containerd)
        with running_plugin(containerd, narrow=True) as plugin:
            yield Narrow(containerd=containerd, plugin=plugin)


@pytest.fixture
def host(narrow: Narrow) -> Iterator[Narrow]:
    yield narrow
    narrow.containerd.remove_all()


def lay(specs: dict[str, Any], containerd: Containerd) -> None:
    """Put SPECS where CONTAINERD finds them, each renamed into its place."""
    for name, spec in specs.items():
        made = containerd.specs / f".{name}.new"
        made.write_text(json.dumps(spec))
        made.rename(containerd.specs / name)


def below(root: Path, spec: Any) -> Any:
    """Return SPEC of the host ROOT as it would be if that host were this machine's folder."""
    for edits in (spec["containerEdits"], *(device["containerEdits"] for device in spec["devices"])):
        for mount in edits.get("mounts", ()):
            mount["hostPath"] = f"{root}{mount['hostPath']}"
        for node in edits.get("deviceNodes", ()):
            node["hostPath"] = f"{root}{node['path']}"
    return spec


def gives(*parts: str) -> dict[str, bool]:
    return {part: part in parts for part in ("compute", "utility", "graphics", "video")}


ALL = gives("compute", "utility", "graphics", "video")


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        (None, gives("compute", "utility")),
        ("compute,utility", gives("compute", "utility")),
        ("graphics", gives("compute", "utility", "graphics")),
        ("all", ALL),
    ],
)
def test_a_container_has_the_files_of_its_capabilities(
    host: Narrow, capabilities: str | None, expected: dict[str, bool]
) -> None:
    env = () if capabilities is None else (f"NVIDIA_DRIVER_CAPABILITIES={capabilities}",)
    assert host.found(ASKS, *env) == expected


def test_a_name_with_its_kind_brings_all_files(host: Narrow) -> None:
    assert host.found(annotations={"devices.cdigen.dev": "nvidia.com/gpu=0"}) == ALL


def test_while_a_part_is_not_written_the_whole_driver_is_given(host: Narrow, specs: dict[str, Any]) -> None:
    assert [*specs] == KINDS
    (host.containerd.specs / KINDS[0]).unlink()
    assert host.found(ASKS) == gives("compute", "utility", "graphics")
    (host.containerd.specs / KINDS[1]).unlink()
    assert host.found(ASKS) == ALL
    lay(specs, host.containerd)
    assert host.found(ASKS) == gives("compute", "utility")


def test_the_plugin_follows_the_key(host: Narrow) -> None:
    folder = host.plugin.run_dir.parent
    plugin_config(host.containerd, folder, narrow=False)
    assert host.found(ASKS) == ALL
    plugin_config(host.containerd, folder, narrow=True)
    assert host.found(ASKS) == gives("compute", "utility")
