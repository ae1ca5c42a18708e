"""Public reports about the configurations of containerd and CRI-O."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.doctor.live_host import LiveHost, live_host
from support.nri.host import allowed, devices
from support.reports.kubernetes_nodes import (
    P100,
    TOOLKIT_HOOK,
    ReportedHost,
    driver,
    gpus,
    handler,
    no_driver,
    put,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.command.fixtures import Run

CONFIG = "/etc/containerd/config.toml"
CRI = '[plugins."io.containerd.grpc.v1.cri"]\n'
SHORT = """[plugins.cri.containerd]
default_runtime_name = "nvidia-container-runtime"
[plugins.cri.containerd.runtimes.nvidia-container-runtime]
runtime_type = "io.containerd.runtime.v1.linux"
"""
VFIO = """cdiVersion: "0.4.0"
kind: nvidia.com/gpu
devices:
- name: gpu0
  containerEdits: {deviceNodes: [{path: /dev/null}]}
- name: audio00
  containerEdits: {deviceNodes: [{path: /dev/null}]}
"""


@pytest.fixture
def live(tmp_path: Path, real_nodes: None) -> Iterator[LiveHost]:  # noqa: ARG001 - nodes must be real
    with live_host(tmp_path / "live") as host:
        host.run("cdigen generate --write --quiet")
        yield host


@pytest.fixture
def host(tmp_path: Path, cdigen: Run, real_nodes: None) -> ReportedHost:  # noqa: ARG001 - likewise
    return ReportedHost(tmp_path / "host", cdigen)


def details(rows: list[dict[str, Any]], check: str) -> str:
    return "\n".join(row["detail"] for row in rows if row["check"] == check)


def test_cdi_annotations_of_a_pod_and_names_of_another_tool(live: LiveHost) -> None:
    """https://github.com/containerd/containerd/issues/7329: devices are not injected into the container."""
    put(live, CONFIG, f"version = 2\n{CRI}{handler('kata')}")
    put(live, "/etc/cdi/nvidia-vfio.yaml", VFIO)
    live.install("containerd", "v1.7.20")
    row = live.wrong("--for", "containerd")["containerd-cdi"]
    assert (row["severity"], row["remedy"]) == ("error", "cdigen configure containerd")
    found = live.wrong("--for", "containerd", "--device", "nvidia.com/gpu=audio00")
    assert "/etc/cdi/nvidia-vfio.yaml" in found["spec-foreign"]["detail"]
    assert "device-unknown" not in found
    assert "device-unknown" in live.wrong("--for", "containerd", "--device", "nvidia.com/gpu=audio02")


@pytest.mark.parametrize("release", ["v1.3.0", "v1.7.20"])
def test_a_file_of_version_2_with_the_plugin_names_of_version_1(live: LiveHost, release: str) -> None:
    """https://github.com/containerd/containerd/issues/3843: NVIDIA's runtime is not used after an upgrade."""
    put(live, CONFIG, f"version = 2\n{SHORT}")
    live.install("containerd", release)
    rows = [row for row in live.doctor("--for", "containerd") if not row["ok"]]
    text = details(rows, "containerd-config")
    assert f"{CONFIG}, line 2: the plugin name cri is valid only in version 1" in text
    assert "the name in version 2 is io.containerd.grpc.v1.cri" in text
    assert ("install containerd 1.7 or newer" in details(rows, "containerd-version")) == (release == "v1.3.0")
    done = live.attempt("cdigen configure containerd")
    assert (done.returncode != 0, live.run(f"cat {CONFIG}").strip()) == (
        True,
        f"version = 2\n{SHORT}".strip(),
    )


def test_a_file_of_version_1_keeps_its_style(live: LiveHost) -> None:
    """https://github.com/containerd/containerd/issues/3843: the file has no line with a version."""
    put(live, CONFIG, SHORT)
    live.install("containerd", "v1.7.20")
    assert "containerd-config" not in live.wrong("--for", "containerd")
    live.attempt("cdigen configure containerd")
    assert "io.containerd.grpc.v1.cri" not in live.run(f"cat {CONFIG}")


@pytest.mark.parametrize(("release", "is_replaced"), [("v1.5.8", True), ("v1.7.20", True), ("v2.1.0", False)])
def test_an_imported_file_replaces_the_table_with_nvidias_runtime(
    live: LiveHost, release: str, *, is_replaced: bool
) -> None:
    """https://github.com/NVIDIA/gpu-operator/issues/301: with an import, NVIDIA's runtime is unused."""
    imported = "/etc/containerd/config.d/registries.toml"
    text = 'version = 2\nimports = ["/etc/containerd/config.d/*.toml"]\n'
    put(live, CONFIG, f"{text}{CRI}enable_cdi = true\n{handler('nvidia', '/usr/bin/env')}")
    mirrors = CRI.replace('cri"', 'cri".registry.mirrors."docker.io"')
    put(live, imported, f'version = 2\n{mirrors}endpoint = ["https://mirror.example.com"]\n')
    live.install("containerd", release)
    rows = [row for row in live.doctor("--for", "containerd") if not row["ok"]]
    replaced = f'plugins."io.containerd.grpc.v1.cri" is ignored: the table in {imported} replaces this table'
    assert (f"{CONFIG}: {replaced}" in details(rows, "containerd-config")) == is_replaced
    assert bool(details(rows, "containerd-cdi")) == (release == "v1.7.20")
    if release == "v1.7.20":
        live.run("cdigen configure containerd")
        assert "enable_cdi = true" in live.run(f"cat {imported}")
        assert "containerd-cdi" not in live.wrong("--for", "containerd")


@pytest.mark.parametrize("is_default", [True, False])
def test_the_runtime_of_the_operator_does_not_exist(host: ReportedHost, *, is_default: bool) -> None:
    """https://github.com/NVIDIA/gpu-operator/issues/575: no pod starts, the runtime's program is missing."""
    program = "/opt/nvidia-runtime/toolkit/nvidia-container-runtime"
    text = f"version = 2\n{CRI}enable_cdi = true\n{handler('nvidia', program, is_default=is_default)}"
    lay = driver("525.85.12", *gpus("Tesla T4", 0x1EB8, "0000:00:1e.0"))
    host.lay(lay, {CONFIG[1:]: text, "usr/bin/containerd": "", "opt/nvidia-runtime/.keep": ""})
    host.write_specs()
    row = host.failures("--for", "containerd")[0]
    assert (row["check"], row["severity"]) == ("oci-runtime-program", "error" if is_default else "warning")
    assert f"{CONFIG}: the {'default ' * is_default}runtime nvidia" in row["detail"]
    assert f"{program}, which does not exist" in row["detail"]
    (step,) = (one for one in host.migration()["steps"] if one["step"] == "unregister")
    assert "nvidia" in step["by_hand"]
    assert CONFIG in step["by_hand"]
    host.put(program[1:], "")
    assert host.failures("--for", "containerd") == []


@pytest.mark.parametrize("release", ["1.4.8", "1.7.20"])
def test_pods_without_a_runtime_class_have_no_gpu(live: LiveHost, release: str) -> None:
    """https://github.com/NVIDIA/nvidia-container-runtime/issues/147: nvidia-smi is an empty file in pods."""
    text = f"version = 2\n{CRI}{handler('nvidia', '/usr/bin/nvidia-container-runtime')}"
    put(live, CONFIG, text)
    put(live, "/usr/bin/nvidia-container-runtime", "")
    put(live, "/usr/lib/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet\n")
    live.install("containerd", release)
    for target in ("containerd", "kubelet"):
        found = live.wrong("--for", target)
        if release == "1.4.8":
            assert "1.4.8 reads no CDI specs; install containerd 1.7" in found["containerd-version"]["detail"]
        else:
            assert found["containerd-cdi"]["remedy"] == "cdigen configure containerd"
    plan = live.attempt("cdigen doctor --migrate")
    assert plan.returncode == 1
    assert "remove the runtime nvidia from containerd" in plan.stdout
    mounts = live.spec()["containerEdits"]["mounts"]
    assert "/usr/bin/nvidia-smi" in {mount["containerPath"] for mount in mounts}


def test_the_hook_of_crio_names_a_program_that_is_gone(host: ReportedHost) -> None:
    """https://github.com/NVIDIA/gpu-operator/issues/228: pods do not start before the toolkit pod ran."""
    folder = "/run/containers/oci/hooks.d"
    program = "/usr/local/nvidia/toolkit/nvidia-container-toolkit"
    hook = {**TOOLKIT_HOOK, "hook": {"path": program}}
    files = {
        "etc/os-release": 'ID="rhcos"\nID_LIKE="rhel fedora"\nVERSION_ID="4.8"\n',
        "etc/crio/crio.conf.d/00-default": f'[crio.runtime]\nhooks_dir = ["/etc/x", "{folder}"]\n',
        "usr/bin/crio": "",
        f"{folder[1:]}/oci-nvidia-hook.json": json.dumps(hook),
    }
    host.lay(no_driver(0x1EB8, "0000:00:1e.0"), files)
    rows = host.failures("--for", "crio")
    text = details(rows, "oci-hook-program")
    assert f"{folder}/oci-nvidia-hook.json: the hook's program {program} does not exist" in text
    assert "containers of crio do not start" in text
    assert "not loaded" in details(rows, "driver-loaded")
    passed = details(host.examined("--for", "crio"), "double-injection")
    assert "no spec is in use" in passed
    plan = host.migration()
    assert [one["where"] for one in plan["leftovers"]] == [[f"{folder}/oci-nvidia-hook.json"]]
    host.put(program[1:], "")
    assert details(host.failures("--for", "crio"), "oci-hook-program") == ""


def test_crio_does_not_read_the_folder_of_the_hook(live: LiveHost) -> None:
    """https://github.com/openshift-psap/special-resource-operator-deprecated/issues/22: no hook runs."""
    hook = "/etc/containers/oci/hooks.d/oci-nvidia-hook.json"
    put(live, "/etc/crio/crio.conf", '[crio.runtime]\nhooks_dir = ["/usr/share/containers/oci/hooks.d"]')
    put(live, hook, json.dumps(TOOLKIT_HOOK))
    live.install("crio", "1.16.6")
    rows = live.doctor("--for", "crio")
    assert "1.16.6 reads no CDI specs; install CRI-O 1.25" in details(rows, "crio-version")
    assert [row["check"] for row in rows if not row["ok"]] == ["crio-version"]
    assert hook not in details(rows, "double-injection")
    plan = json.loads(live.attempt("cdigen doctor --migrate --json").stdout)
    (found,) = (one for one in plan["leftovers"] if one["kind"] == "hook")
    assert (found["where"], found["detail"]) == ([hook], "no examined runtime reads its folder")


def test_an_old_crio_reads_no_specs(live: LiveHost) -> None:
    """https://github.com/NVIDIA/k8s-device-plugin/issues/62: the node has no nvidia.com/gpu."""
    put(live, "/etc/crio/crio.conf", '[crio.runtime]\nruntime = "/usr/bin/runc"')
    live.install("crio", "1.11.1")
    rows = [row for row in live.doctor("--for", "crio") if not row["ok"]]
    assert [row["check"] for row in rows] == ["crio-version"]


def test_enroot_needs_the_programs_of_the_toolkit(host: ReportedHost) -> None:
    """https://github.com/NVIDIA/pyxis/issues/101: enroot's hook does not find nvidia-container-cli."""
    hook = "/etc/enroot/hooks.d/98-nvidia.sh"
    host.lay(driver("515.65.01", *P100), {"etc/enroot/enroot.conf": "", hook[1:]: "#!/bin/bash\n"})
    host.write_specs()
    assert host.failures() == []
    assert host.migration()["steps"] == []
    host.put("usr/bin/nvidia-container-cli", "")
    host.put("var/lib/dpkg/info/libnvidia-container-tools.md5sums", "")
    plan = host.migration()
    assert not {"remove-packages", "remove-programs"} & {one["step"] for one in plan["steps"]}
    assert f"{hook} runs nvidia-container-cli" in plan["kept"][0]
    host.path(hook[1:]).unlink()
    assert "remove-packages" in {one["step"] for one in host.migration()["steps"]}


def test_the_nri_plugin_ignores_the_annotation_of_the_runtime_in_a_pod() -> None:
    """https://github.com/containerd/containerd/issues/7329: the plugin reads only its own annotations."""
    name = "nvidia.com/gpu=0"
    allow = {"allow": allowed("annotation", "environment")}
    assert devices(pod_annotations={"cdi.k8s.io/nvidia_devices0": name}, **allow) == ()
    assert devices(pod_annotations={"nvidia.cdi.k8s.io/container.main": name}, **allow) == (name,)
