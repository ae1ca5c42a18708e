"""Public reports about podman, Docker and Nomad on hosts with NVIDIA GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.doctor.live_host import LiveHost, live_host
from support.hosts import driver_files
from support.reports.engines import DOCKER_SCRIPT, ReportHost, gpu

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.command.fixtures import Run

T4 = "Tesla T4", 0x1EB8
NVIDIA_RUNTIME = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": []}}}
STORE_FILE = "/nix/store/5f6g-daemon.json"
GPU_ALL = "nvidia.com/gpu=all"
SPEC_05 = """cdiVersion: "0.5.0"
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}
- name: all
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}
"""


@pytest.fixture
def report(tmp_path: Path, cdigen: Run, real_nodes: None) -> ReportHost:  # noqa: ARG001 - nodes must be real
    """Return an empty host."""
    return ReportHost(tmp_path / "host", cdigen)


@pytest.fixture
def live(tmp_path: Path, real_nodes: None) -> Iterator[LiveHost]:  # noqa: ARG001 - nodes must be real
    """Return a host whose runtimes report a version."""
    with live_host(tmp_path / "live") as host:
        yield host


def test_rootless_podman_fails_after_each_boot_until_root_has_run_once(report: ReportHost) -> None:
    """https://github.com/NVIDIA/nvidia-container-runtime/issues/85

    No service creates /dev/nvidia-uvm at boot, and a user cannot.
    """
    report.lay("418.87.00", gpu(0, "01", *T4), layout=driver_files.red_hat).program("podman")
    devices = (report.root / "proc/devices").read_text().splitlines(keepends=True)
    report.put("proc/devices", "".join(line for line in devices if "uvm" not in line))
    for name in ("nvidia-uvm", "nvidia-uvm-tools"):
        (report.root / "dev" / name).unlink()
    report.put("etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n")
    report.put("usr/lib/systemd/system/cdigen-nodes.service", "[Unit]\n")
    (report.root / "run/systemd/system").mkdir(parents=True)
    for options in ((), ("--user", "alice")):
        row = report.rows(*options)[0]
        assert row["check"] == "node-missing"
        assert row["detail"].startswith("/dev/nvidia-uvm does not exist")
        note = "enable cdigen-nodes.service, or list nvidia-uvm in /etc/modules-load.d"
        assert note in row["detail"]
        assert row["detail"].endswith("on that host: systemctl start cdigen-nodes.service")
    report.link(
        "etc/systemd/system/multi-user.target.wants/cdigen-nodes.service",
        "/usr/lib/systemd/system/cdigen-nodes.service",
    )
    assert "at each boot" not in report.rows()[0]["detail"]


def test_nvidias_hook_fails_because_ldconfig_is_a_script(report: ReportHost) -> None:
    """https://github.com/NVIDIA/nvidia-docker/issues/587

    cdigen's spec runs no ldconfig of the host, and the migration lists the runtime that does.
    """
    report.lay("375.66", gpu(0, "01", "GeForce GTX 1080 Ti", 0x1B06)).program("dockerd")
    report.put("usr/sbin/ldconfig", '#!/bin/sh\nexec /sbin/ldconfig.real "$@"\n', 0o755)
    report.put("usr/sbin/ldconfig.real", "\x7fELF", 0o755)
    key = '[nvidia-container-cli]\nldconfig = "@/sbin/ldconfig"\n'
    report.put("etc/nvidia-container-runtime/config.toml", key)
    report.put("etc/docker/daemon.json", NVIDIA_RUNTIME)
    report.write_specs()
    assert "ldconfig" not in str(report.spec)
    document = report.command("doctor", "--migrate", "--json").json
    (runtime,) = (one for one in document["leftovers"] if one["kind"] == "runtime")
    assert runtime["where"] == ["/etc/docker/daemon.json"]


def podman_rows(host: LiveHost, *, wrong: bool) -> dict[str, dict[str, Any]]:
    """Return the doctor's failures for podman and the device of the report; without WRONG, the others."""
    rows = host.doctor("--for podman", f"--device {GPU_ALL}")
    return {row["check"]: row for row in reversed(rows) if row["ok"] != wrong}


def test_podman_4_on_ubuntu_does_not_resolve_all_gpus(live: LiveHost) -> None:
    """https://github.com/NVIDIA/nvidia-container-toolkit/issues/146

    The doctor examines the podman that a shell starts, and names the other one.
    """
    live.run("mkdir -p /etc/cdi /run/cdi; rm -f /usr/local/bin/podman")
    for folder in ("/etc/cdi", "/var/run/cdi"):
        live.run(f"printf '%s' '{SPEC_05}' >{folder}/nvidia.yaml")
    live.install("podman", "3.4.4")
    row = podman_rows(live, wrong=True)["podman-version"]
    assert row["detail"].startswith("podman 3.4.4 reads no CDI specs")
    live.install("podman", "4.1.1")
    row = podman_rows(live, wrong=True)["spec-version"]
    assert "cdiVersion 0.5.0 is too new: podman 4.1.1 reads at most 0.4.0" in row["detail"]
    assert "target: [podman-4.1.1]" in row["remedy"]
    live.install("podman", "3.4.4")
    live.run("sed 's/3.4.4/4.4.1/' /usr/bin/podman >/usr/local/bin/podman; chmod 755 /usr/local/bin/podman")
    found = podman_rows(live, wrong=False)
    assert {"podman-devices", "spec-version", "spec-conflict"} <= found.keys()
    detail = found["podman-version"]["detail"]
    assert detail.startswith("podman 4.4.1 ")
    assert detail.endswith("examined: /usr/local/bin/podman, not examined: /usr/bin/podman")


@pytest.mark.parametrize("release", ["17.09.1", "20.10.8"])
def test_docker_builds_have_no_gpu_in_a_release_without_cdi(live: LiveHost, release: str) -> None:
    """https://github.com/NVIDIA/nvidia-container-toolkit/issues/122

    Old Docker reads no specs, and without the default runtime, builds have no GPU: the plan has both facts.
    """
    live.install("dockerd", release)
    live.run("mkdir -p /etc/docker")
    text = '{"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}'
    live.run(f"printf '%s' '{text}' >/etc/docker/daemon.json")
    row = live.wrong("--for docker")["docker-version"]
    assert "reads no CDI specs; install Docker 25 or newer" in row["detail"]
    plan = live.attempt("cdigen doctor --migrate").stdout
    assert "reads no CDI specs: install the release that 'cdigen doctor' names" in plan
    assert "cdigen configure docker" not in plan
    note = "then RUN steps of 'docker build' have no GPU without 'RUN --device' of BuildKit"
    assert note in plan


def test_docker_does_not_find_the_node_of_a_gpu_without_nvidias_driver(report: ReportHost) -> None:
    """https://github.com/kersny/airsim_nvidia_docker/issues/4

    nouveau holds the GPU and no module of NVIDIA is installed: the driver is missing, not its nodes.
    """
    card = gpu(0, "01", "GeForce GTX 1070", 0x1B81)
    report.lay("384.130", card, loaded=False).program("dockerd", "apt-get")
    report.bind(card.bdf, "nouveau")
    report.put("proc/sys/kernel/osrelease", "4.4.0-21-generic\n")
    report.put("lib/modules/4.4.0-21-generic/modules.dep", "kernel/drivers/gpu/drm/nouveau/nouveau.ko:\n")
    row = report.rows()[0]
    assert (row["check"], row["ok"], row["remedy"]) == ("driver-loaded", False, "")
    assert "1 GPU bound to the driver nouveau (0000:01:00.0)" in row["detail"]
    step = "no module for the kernel 4.4.0-21-generic; install the driver again"
    assert step in row["detail"]
    assert "mknod" not in str(report.rows())
    options = "--device /dev/nvidia0 --device=/dev/nvidiactl --device /dev/nvidia-uvm:/dev/nvidia-uvm"
    assert report.requests(f"docker run {options} image\n") == {
        "--device /dev/nvidia0": f"--device {GPU_ALL.replace('all', 'NAME')} of the GPU with this device "
        "node; 'cdigen inspect' shows it",
        "--device=/dev/nvidiactl": "remove it: each device of nvidia.com/gpu includes this device node",
        "--device /dev/nvidia-uvm": "remove it: each device of nvidia.com/gpu includes this device node",
    }


@pytest.mark.parametrize("loaded", [True, False])
def test_podman_as_docker_does_not_resolve_gpus_all(report: ReportHost, *, loaded: bool) -> None:
    """https://github.com/warmshao/FasterLivePortrait/issues/116

    The command docker is podman's emulation, so no Docker is to be installed, and the spec is missing.
    """
    card = gpu(0, "1e", *T4)
    report.lay("550.127.08", card, layout=driver_files.red_hat, loaded=loaded).program("podman", "dnf")
    report.put("usr/bin/docker", DOCKER_SCRIPT, 0o755)
    row = report.failures("--for", "docker")["docker-installed"]
    assert row["detail"].startswith("/usr/bin/docker is podman's emulation of Docker")
    assert row["remedy"] == f"cdigen doctor --for podman --root {report.root}"
    found = report.failures("--for", "podman")
    assert list(found)[:2] == (
        ["spec-missing", "podman-devices"] if loaded else ["driver-loaded", "spec-missing"]
    )
    write = f"cdigen generate --write --root {report.root}" if loaded else ""
    assert found["spec-missing"]["remedy"] == write
    assert report.requests("docker run --rm --gpus=all image\n") == {"--gpus=all": f"--device {GPU_ALL}"}


@pytest.mark.parametrize("is_link", [False, True])
def test_nomad_does_not_find_the_runtime_nvidia_although_cdi_works(
    report: ReportHost, *, is_link: bool
) -> None:
    """https://github.com/hashicorp/nomad/issues/24990

    On NixOS no command edits the generated daemon.json, and a host with Nomad keeps the runtime.
    """
    report.lay("550.127.08", gpu(0, "01", "RTX 3090", 0x2204), layout=driver_files.nixos)
    report.put("nix/store/2c3d-system-path/bin/dockerd", mode=0o755)
    start = "[Service]\nExecStart=/run/current-system/sw/bin/dockerd"
    option = "" if is_link else f" --config-file={STORE_FILE}"
    report.put("etc/systemd/system/docker.service", f"{start}{option}\n")
    if is_link:
        report.link("etc/docker/daemon.json", STORE_FILE)
    report.put(STORE_FILE[1:], {"features": {"cdi": True}})
    report.write_specs()
    assert report.failures("--for", "docker") == {}
    content = {"features": {"cdi": False}, **NVIDIA_RUNTIME}
    file = report.put(STORE_FILE[1:], content)
    row = report.failures("--for", "docker")["docker-cdi"]
    setting = "set virtualisation.docker.daemon.settings.features.cdi = true in the configuration of NixOS"
    assert (setting in row["detail"], row["remedy"]) == (True, "")
    before = file.read_bytes()
    done = report.command("configure", "docker")
    assert done.failed(2, "is generated by NixOS", setting), done.err
    assert file.read_bytes() == before
    plan = report.command("doctor", "--migrate", "--json").json
    assert "cp -p" not in str(plan)
    (step,) = (one for one in plan["steps"] if one["step"] == "unregister")
    assert "change the configuration of NixOS" in step["by_hand"]
    report.put("etc/nomad.d/gpu.hcl", 'plugin "nomad-device-nvidia" {}\n')
    plan = report.command("doctor", "--migrate", "--json").json
    assert "unregister" not in {one["step"] for one in plan["steps"]}
    assert any("Nomad (/etc/nomad.d)" in text for text in plan["kept"])


@pytest.mark.parametrize("release", ["4.9.4", "5.0.3", "5.1.0"])
def test_podman_build_does_not_find_the_device_that_podman_run_finds(live: LiveHost, release: str) -> None:
    """https://github.com/containers/buildah/issues/5556

    Builds resolve names of CDI from podman 5.1 on; this is no failure, because containers get the device.
    """
    live.install("podman", release)
    live.run("cdigen generate --write --quiet")
    rows = {row["check"]: row for row in live.doctor("--for podman", f"--device {GPU_ALL}")}
    assert rows["podman-devices"]["ok"]
    is_old = release != "5.1.0"
    assert ("limit-podman-build-without-cdi" in rows) == is_old
    if is_old:
        detail = rows["limit-podman-build-without-cdi"]["detail"]
        assert "'podman build --device'" in detail
        assert "install podman 5.1 or newer" in detail


def test_old_images_fail_on_a_new_system_because_ldconfig_fails(report: ReportHost) -> None:
    """https://github.com/NVIDIA/nvidia-docker/issues/1760

    The host has no failure, no ldconfig runs for a CDI device, and the report's command has a replacement.
    """
    report.lay("530.41.03", gpu(0, "01", "RTX 2080", 0x1E87), layout=driver_files.arch).program("dockerd")
    report.put("etc/docker/daemon.json", NVIDIA_RUNTIME)
    report.write_specs()
    assert report.failures("--for", "docker") == {}
    assert "ldconfig" not in str(report.spec)
    text = "docker run -it --gpus all nvidia/cuda:10.1-base\n"
    assert report.requests(text) == {"--gpus all": f"--device {GPU_ALL}"}
    document = report.command("doctor", "--migrate", "--json").json
    assert "runtime" in {one["kind"] for one in document["leftovers"]}


def test_docker_compose_ignores_a_reservation_without_the_runtime(report: ReportHost) -> None:
    """https://github.com/cresset-template/cresset/issues/216

    A reservation without a count is for all GPUs; it and the line "runtime: nvidia" have replacements, also
    behind an anchor of YAML.
    """
    report.lay("550.54.14", gpu(0, "01", "RTX 3090", 0x2204)).program("dockerd").write_specs()
    report.put("etc/docker/daemon.json", NVIDIA_RUNTIME)
    found = report.requests(
        "x-common: &common\n  deploy: # API dependent on compose version.\n    resources:\n"
        "      reservations:\n        devices:\n          - driver: nvidia\n"
        "            capabilities: [ gpu ]\nservices:\n  train:\n    <<: *common\n    runtime: nvidia\n"
    )
    assert found["driver: nvidia"] == f'driver: cdi, and device_ids: ["{GPU_ALL}"]'
    assert found["runtime: nvidia"].startswith("remove it, and add devices: [nvidia.com/gpu=NAME]")
