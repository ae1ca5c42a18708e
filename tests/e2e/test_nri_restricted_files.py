"""With `nri: {restrict_driver_files: true}`, containers have only the driver files of their capabilities.

containerd is real. cdigen writes the specs of a Debian host with two GPUs; the host is a folder.
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

REQUEST = "NVIDIA_VISIBLE_DEVICES=0"
CUDA, NVML, GL, ENCODE = "libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-glcore", "libnvidia-encode.so.1"
SMI = "/usr/bin/nvidia-smi"
KINDS = ["nvidia.com-gpu-compute.json", "nvidia.com-gpu-graphics.json", "nvidia.com-gpu.json"]


@dataclass(frozen=True, kw_only=True)
class RestrictedHost:
    """A containerd with a plugin that restricts the driver's files."""

    containerd: Containerd
    plugin: Plugin

    def found(self, *env: str, **fields: Any) -> dict[str, bool]:
        """Start a container with ENV (a GPU request); return, by capability, whether it has the files."""
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
    """Return the specs of a GPU host (file name -> spec), with paths of this machine."""
    with copied_tree(driver_tree, cache) as root:
        written, config = root.parent / "specs", root.parent / "config.yaml"
        write_kernel_side(root, GPUS)
        written.mkdir()
        config.write_text("nri: {restrict_driver_files: true}\n")
        layout = ("--layout", "files", "--hook", "none")
        generate(root, "--config", config, *layout, "--output-dir", written)
        yield {file.name: below(root, json.loads(file.read_text())) for file in sorted(written.iterdir())}


@pytest.fixture(scope="module")
def restricted(cache: Path, specs: dict[str, Any]) -> Iterator[RestrictedHost]:
    with running_containerd(cache, RELEASES["forky"]) as containerd:
        lay(specs, containerd)
        with running_plugin(containerd, restrict_driver_files=True) as plugin:
            yield RestrictedHost(containerd=containerd, plugin=plugin)


@pytest.fixture
def host(restricted: RestrictedHost) -> Iterator[RestrictedHost]:
    yield restricted
    restricted.containerd.remove_all()


def lay(specs: dict[str, Any], containerd: Containerd) -> None:
    """Write SPECS into the spec directory of CONTAINERD, each by a rename."""
    for name, spec in specs.items():
        made = containerd.specs / f".{name}.new"
        made.write_text(json.dumps(spec))
        made.rename(containerd.specs / name)


def below(root: Path, spec: Any) -> Any:
    """Change the host paths in SPEC to paths below the tree ROOT on this machine; return SPEC."""
    for edits in (spec["containerEdits"], *(device["containerEdits"] for device in spec["devices"])):
        for mount in edits.get("mounts", ()):
            mount["hostPath"] = f"{root}{mount['hostPath']}"
        for node in edits.get("deviceNodes", ()):
            node["hostPath"] = f"{root}{node.get('hostPath', node['path'])}"
    return spec


def files(*parts: str) -> dict[str, bool]:
    return {part: part in parts for part in ("compute", "utility", "graphics", "video")}


ALL = files("compute", "utility", "graphics", "video")


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        (None, files("compute", "utility")),
        ("compute,utility", files("compute", "utility")),
        ("graphics", files("compute", "utility", "graphics")),
        ("all", ALL),
    ],
)
def test_a_container_has_the_files_of_its_capabilities(
    host: RestrictedHost, capabilities: str | None, expected: dict[str, bool]
) -> None:
    env = () if capabilities is None else (f"NVIDIA_DRIVER_CAPABILITIES={capabilities}",)
    assert host.found(REQUEST, *env) == expected


def test_a_qualified_name_injects_all_driver_files(host: RestrictedHost) -> None:
    assert host.found(annotations={"devices.cdigen.dev": "nvidia.com/gpu=0"}) == ALL


def test_more_driver_files_are_injected_if_the_spec_of_a_capability_kind_is_missing(
    host: RestrictedHost, specs: dict[str, Any]
) -> None:
    assert [*specs] == KINDS
    (host.containerd.specs / KINDS[0]).unlink()
    assert host.found(REQUEST) == files("compute", "utility", "graphics")
    (host.containerd.specs / KINDS[1]).unlink()
    assert host.found(REQUEST) == ALL
    lay(specs, host.containerd)
    assert host.found(REQUEST) == files("compute", "utility")


def test_a_change_of_restrict_driver_files_applies_to_the_next_container(host: RestrictedHost) -> None:
    folder = host.plugin.run_dir.parent
    plugin_config(host.containerd, folder, restrict_driver_files=False)
    assert host.found(REQUEST) == ALL
    plugin_config(host.containerd, folder, restrict_driver_files=True)
    assert host.found(REQUEST) == files("compute", "utility")
