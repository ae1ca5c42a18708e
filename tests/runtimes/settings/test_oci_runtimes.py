"""The OCI runtimes that the configuration of a container runtime registers, and the default OCI runtime."""

from __future__ import annotations

import json

import pytest

from cdigen.runtimes.settings.config_files import OciRuntime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from support.hosts.runtime_config import Tree

WRAPPER = "/usr/bin/nvidia-container-runtime"
DAEMON_JSON, MAIN, DROP_IN = (
    "/etc/docker/daemon.json",
    "/etc/containerd/config.toml",
    "/etc/containerd/conf.d/99-nvidia.toml",
)


def nvidia(*files: str, path: str = WRAPPER, is_default: bool = False) -> OciRuntime:
    return OciRuntime(name="nvidia", path=path, files=files, is_default=is_default)


@pytest.mark.parametrize("runtime", ["docker", "containerd", "cri-o", "podman"])
def test_without_configuration_no_runtime_is_registered(tree: Tree, runtime: str) -> None:
    assert tree.read(runtime, None).oci_runtimes == ()


def test_docker_registers_runtimes_in_its_file_and_its_command_line(tree: Tree) -> None:
    tree.put(
        DAEMON_JSON, json.dumps({"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": WRAPPER}}})
    )
    assert tree.read("docker", None).oci_runtimes == (nvidia(DAEMON_JSON, is_default=True),)
    unit = "/usr/lib/systemd/system/docker.service"
    tree.put(DAEMON_JSON, "{}")
    start = f"dockerd --add-runtime=nvidia={WRAPPER} --default-runtime nvidia"
    tree.put(unit, f"[Service]\nExecStart={start}\n")
    assert tree.read("docker", None).oci_runtimes == (nvidia(unit, is_default=True),)


@pytest.mark.parametrize(
    ("version", "plugin"), [(2, "io.containerd.grpc.v1.cri"), (3, "io.containerd.cri.v1.runtime")]
)
def test_containerd_registers_runtimes_under_both_names_of_its_plugin(
    tree: Tree, version: int, plugin: str
) -> None:
    tree.put(MAIN, f'version = {version}\nimports = ["/etc/containerd/conf.d/*.toml"]\n')
    table = f"plugins.'{plugin}'.containerd"
    tree.put(DROP_IN, f"version = {version}\n[{table}.runtimes.nvidia.options]\nBinaryName = '{WRAPPER}'\n")
    assert tree.read("containerd", None).oci_runtimes == (nvidia(DROP_IN),)
    main = f'version = {version}\nimports = ["/etc/containerd/conf.d/*.toml"]\n[{table}]\n'
    tree.put(MAIN, main + "default_runtime_name = 'nvidia'\n")
    assert tree.read("containerd", None).oci_runtimes == (nvidia(MAIN, DROP_IN, is_default=True),)


def test_the_last_default_runtime_of_crio_applies(tree: Tree) -> None:
    first, last = "/etc/crio/crio.conf", "/etc/crio/crio.conf.d/99-nvidia.toml"
    tree.put(first, "[crio.runtime]\ndefault_runtime = 'crun'\n")
    tree.put(last, f"[crio.runtime.runtimes.nvidia]\nruntime_path = '{WRAPPER}'\n")
    crun, found = tree.read("cri-o", None).oci_runtimes
    assert (crun.name, crun.path, crun.is_default, found) == ("crun", "", True, nvidia(last))
    tree.put(
        last, f"[crio.runtime]\ndefault_runtime = 'nvidia'\nruntimes.nvidia.runtime_path = '{WRAPPER}'\n"
    )
    crun, found = tree.read("cri-o", None).oci_runtimes
    assert (crun.is_default, found) == (False, nvidia(last, is_default=True))


@pytest.mark.parametrize(
    "document",
    [{"runtimes": []}, {"runtimes": "nvidia"}, {"default-runtime": ["nvidia"]}, {"default-runtime": ""}],
)
def test_values_of_a_wrong_type_are_ignored(tree: Tree, document: dict[str, object]) -> None:
    tree.put(DAEMON_JSON, json.dumps(document))
    assert tree.read("docker", None).oci_runtimes == ()


@pytest.mark.parametrize("entry", [None, 7, {}, {"path": 7}])
def test_a_runtime_without_a_program_has_only_its_name(tree: Tree, entry: object) -> None:
    tree.put(DAEMON_JSON, json.dumps({"runtimes": {"nvidia": entry}}))
    assert tree.read("docker", None).oci_runtimes == (nvidia(DAEMON_JSON, path=""),)
