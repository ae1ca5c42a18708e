"""What the doctor says of the runtimes, on trees where none of their binaries is started."""

from typing import Any

import pytest
from support.doctor.broken_host import BrokenHost

CRI = '[plugins."io.containerd.cri.v1.runtime"]\n'
ALL = ("podman", "docker", "containerd", "crio")


def test_a_host_with_every_runtime_is_well(tmp_path_host: BrokenHost) -> None:
    rows = tmp_path_host.doctor(wrong=False)
    assert {f"{name}-devices" for name in ALL} <= {row["check"] for row in rows}


@pytest.mark.parametrize("runtime", ALL)
def test_only_the_runtime_that_was_asked_for_is_looked_at(tmp_path_host: BrokenHost, runtime: str) -> None:
    topics = {row["topic"] for row in tmp_path_host.doctor("--for", runtime, wrong=False)}
    assert topics & set(ALL) == {runtime}


def test_a_runtime_that_is_not_installed_is_the_cause_where_it_was_asked_for(host: BrokenHost) -> None:
    host.put("usr/bin/apt-get", "", mode=0o755)
    row = host.diagnosis("--for", "docker")
    assert row["check"] == "docker-installed"
    assert host.told(row) == "apt-get install --yes docker.io"


def test_a_host_without_any_runtime_is_judged_for_any(host: BrokenHost) -> None:
    host.path("usr/bin/podman").unlink()
    rows = host.doctor(wrong=False)
    assert {"runtime-installed", "devices"} < {row["check"] for row in rows}


BROKEN: dict[str, tuple[str, str]] = {
    "podman": ("etc/containers/containers.conf", "[engine\n"),
    "docker": ("etc/docker/daemon.json", "{\n  oops\n}"),
    "containerd": ("etc/containerd/config.toml", "version = \n"),
    "crio": ("etc/crio/crio.conf", "[crio\n"),
}


@pytest.mark.parametrize("runtime", ALL)
def test_a_configuration_that_cannot_be_parsed_is_named_with_its_line(
    tmp_path_host: BrokenHost, runtime: str
) -> None:
    file, text = BROKEN[runtime]
    tmp_path_host.put(file, text)
    row = tmp_path_host.diagnosis("--for", runtime)
    assert (row["check"], row["severity"]) == (f"{runtime}-config", "error")
    assert row["detail"].startswith(f"/{file} is not ")
    assert "(at line " in row["detail"]


DIRECTORIES: dict[str, tuple[str, str]] = {
    "podman": ("etc/containers/containers.conf", '[engine]\ncdi_spec_dirs = ["/srv/cdi"]\n'),
    "docker": ("etc/docker/daemon.json", '{"cdi-spec-dirs": ["/srv/cdi"]}'),
    "containerd": (
        "etc/containerd/config.toml",
        f'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n{CRI}cdi_spec_dirs = ["/srv/cdi"]\n',
    ),
    "crio": ("etc/crio/crio.conf", '[crio.runtime]\ncdi_spec_dirs = ["/srv/cdi"]\n'),
}


@pytest.mark.parametrize("runtime", ALL)
def test_directories_that_leave_ours_out_are_configured(tmp_path_host: BrokenHost, runtime: str) -> None:
    file, text = DIRECTORIES[runtime]
    tmp_path_host.put(file, text)
    row = tmp_path_host.diagnosis("--for", runtime)
    assert (row["check"], row["severity"]) == (f"{runtime}-directories", "error")
    tmp_path_host.fixed(row, "--for", runtime)


def test_containerd_with_cdi_off_is_configured(tmp_path_host: BrokenHost) -> None:
    text = 'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = false\n'
    tmp_path_host.put("etc/containerd/config.toml", text)
    row = tmp_path_host.diagnosis("--for", "containerd")
    assert row["check"] == "containerd-cdi"
    tmp_path_host.fixed(row, "--for", "containerd")


def test_containerd_with_cdi_off_is_a_warning_where_nobody_asked_for_it(tmp_path_host: BrokenHost) -> None:
    text = 'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = false\n'
    tmp_path_host.put("etc/containerd/config.toml", text)
    row = tmp_path_host.diagnosis()
    assert (row["check"], row["severity"]) == ("containerd-cdi", "warning")


def test_a_containerd_without_the_cri_plugin_needs_no_switch(tmp_path_host: BrokenHost) -> None:
    tmp_path_host.put(
        "etc/containerd/config.toml", 'disabled_plugins = ["io.containerd.grpc.v1.cri"]\nversion = 2\n'
    )
    assert tmp_path_host.result("containerd-cdi", "--for", "containerd")["ok"]


def test_what_needs_a_living_machine_is_not_checked_on_a_folder(tmp_path_host: BrokenHost) -> None:
    rows: list[dict[str, Any]] = tmp_path_host.doctor(wrong=False)
    unchecked = {row["check"] for row in rows if not row["checked"]}
    assert {"podman-version", "docker-version", "docker-running"} <= unchecked
