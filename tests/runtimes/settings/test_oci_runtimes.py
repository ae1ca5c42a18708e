"""Which OCI runtimes container runtimes know by name, and which of them is the default."""

from __future__ import annotations

import json

import pytest

from cdigen.runtimes.settings.oci_runtimes import OciRuntime

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
def test_without_configuration_none_is_registered(tree: Tree, runtime: str) -> None:
    assert tree.read(runtime, None).oci_runtimes == ()


def test_docker_has_them_in_its_file_and_on_its_command_line(tree: Tree) -> None:
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
def test_containerd_has_them_under_either_name_of_its_plugin(tree: Tree, version: int, plugin: str) -> None:
    tree.put(MAIN, f'version = {version}\nimports = ["/etc/containerd/conf.d/*.toml"]\n')
    table = f"plugins.'{plugin}'.containerd"
    tree.put(DROP_IN, f"version = {version}\n[{table}.runtimes.nvidia.options]\nBinaryName = '{WRAPPER}'\n")
    assert tree.read("containerd", None).oci_runtimes == (nvidia(DROP_IN),)
    main = f'version = {version}\nimports = ["/etc/containerd/conf.d/*.toml"]\n[{table}]\n'
    tree.put(MAIN, main + "default_runtime_name = 'nvidia'\n")
    assert tree.read("containerd", None).oci_runtimes == (nvidia(MAIN, DROP_IN, is_default=True),)


def test_of_crio_the_last_file_that_names_a_default_counts(tree: Tree) -> None:
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
def test_what_has_another_type_is_passed_over(tree: Tree, document: dict[str, object]) -> None:
    tree.put(DAEMON_JSON, json.dumps(document))
    assert tree.read("docker", None).oci_runtimes == ()


@pytest.mark.parametrize("entry", [None, 7, {}, {"path": 7}])
def test_a_runtime_without_a_program_is_known_by_its_name(tree: Tree, entry: object) -> None:
    tree.put(DAEMON_JSON, json.dumps({"runtimes": {"nvidia": entry}}))
    assert tree.read("docker", None).oci_runtimes == (nvidia(DAEMON_JSON, path=""),)
