"""Command lines and files of the distributions' kubelets, and the doctor's results for such nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.doctor.bundles import packed
from support.doctor.kubernetes_host import PLUGINS

from cdigen.doctor.kubernetes_node.settings import installed_kubelet
from cdigen.host.root import Root

if TYPE_CHECKING:
    from pathlib import Path

    from support.doctor.kubernetes_host import KubeNode

    from cdigen.doctor.kubernetes_node.settings import Kubelet

UNITS = "usr/lib/systemd/system"


def kubelet(root: Path, unit: str, line: str, **files: str) -> Kubelet:
    """Return the kubelet that UNIT starts with LINE; FILES are texts by path, with __ instead of slashes."""
    for name, text in {f"{UNITS}/{unit}": f"[Service]\nExecStart={line}\n", **files}.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = installed_kubelet(Root(str(root)))
    assert found is not None
    return found


@pytest.mark.parametrize("texts", [("featureGates: x", "featureGates: {A: true}"), ("a: [x]", "a: {b: c}")])
def test_a_key_with_different_types_in_two_files_causes_no_problem(
    tmp_path: Path, texts: tuple[str, str]
) -> None:
    first, second = texts
    files = {"etc__k__1.conf": first, "etc__k__2.conf": second}
    found = kubelet(tmp_path, "kubelet.service", "/usr/bin/kubelet --config-dir /etc/k", **files)
    assert found.problems == ()


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("", "unix:///run/k3s/containerd/containerd.sock"),
        ("docker: true\n", "unix:///run/k3s/cri-dockerd/cri-dockerd.sock"),
        ("container-runtime-endpoint: /run/crio/crio.sock\n", "unix:///run/crio/crio.sock"),
    ],
)
@pytest.mark.parametrize("name", ["k3s", "rke2"])
def test_the_endpoint_is_read_from_the_configuration_of_the_distribution(
    tmp_path: Path, name: str, text: str, endpoint: str
) -> None:
    unit = {"k3s": "k3s.service", "rke2": "rke2-agent.service"}[name]
    files = {f"etc__rancher__{name}__config.yaml": text}
    assert kubelet(tmp_path, unit, f"/usr/local/bin/{name} agent", **files).endpoint == endpoint


@pytest.mark.parametrize("unit", ["k3s.service", "rke2-server.service", "k0sworker.service"])
def test_a_distribution_with_its_own_runtime_needs_no_package_of_the_runtime(
    node: KubeNode, unit: str
) -> None:
    (node.root / UNITS / "kubelet.service").unlink()
    (node.root / "usr/bin/containerd").unlink()
    node.put(f"{UNITS}/{unit}", "[Service]\nExecStart=/usr/local/bin/program\n")
    assert set(node.wrong()) <= {"kubelet-directory", "kubelet-socket"}


def test_a_runtime_is_recognized_by_the_name_of_its_socket(node: KubeNode) -> None:
    line = "--container-runtime-endpoint=unix:///run/docker/containerd/containerd.sock"
    node.put(f"{UNITS}/kubelet.service", f"[Service]\nExecStart=/usr/bin/kubelet {line}\n")
    assert node.wrong() == {}


def test_a_socket_among_a_thousand_files_is_found(node: KubeNode) -> None:
    for number in range(1001):
        (node.root / PLUGINS / f"a{number:04}").touch()
    assert node.wrong() == {}


def test_no_remedy_drops_options_that_an_administrator_added_to_the_unit(node: KubeNode) -> None:
    node.put(f"{UNITS}/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet --root-dir=/data/kubelet\n")
    unit = f"{UNITS}/cdigen-kubelet.service"
    text = (node.root / unit).read_text()
    node.put(
        unit, text.replace("/usr/bin/cdigen kubelet", "/usr/bin/cdigen kubelet --config /etc/other.yaml")
    )
    assert node.remedy_on_host(node.wrong()["kubelet-directory"]) == ""


@pytest.mark.parametrize(
    ("folder", "lines"),
    [
        ("/kubelet", ["ReadWritePaths=/kubelet"]),
        ("/home/k/kubelet", ["ReadWritePaths=/home/k", "ProtectHome=no"]),
        ("/var/lib/k0s/kubelet", []),
    ],
)
def test_the_drop_in_permits_the_unit_to_write_to_the_folder(
    node: KubeNode, folder: str, lines: list[str]
) -> None:
    node.put(f"{UNITS}/kubelet.service", f"[Service]\nExecStart=/usr/bin/kubelet --root-dir={folder}\n")
    script = node.remedy_on_host(node.wrong()["kubelet-directory"]).partition(" && systemctl")[0]
    node.shell(script.replace("/etc/systemd", f"{node.root}/etc/systemd"))
    made = (node.root / "etc/systemd/system/cdigen-kubelet.service.d/kubelet-dir.conf").read_text()
    assert made.splitlines()[3:] == lines


def test_the_bundle_omits_a_custom_folder_of_the_kubelet(node: KubeNode) -> None:
    node.put(f"{UNITS}/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet --root-dir=/data/customer\n")
    assert "customer" not in "".join(packed(node, "--for kubelet", code=1).values())
