"""The doctor's checks of the runtimes, on hosts in a folder, whose binaries are never run."""

from typing import Any

import pytest
from support.doctor.broken_host import BINARIES, BrokenHost
from support.doctor.requests import doctor_context

from cdigen.doctor.examine import examine
from cdigen.runtimes.installed import InstalledRuntime
from cdigen.runtimes.releases import RUNTIME_NAMES

CRI = '[plugins."io.containerd.cri.v1.runtime"]\n'
ALL = ("podman", "docker", "containerd", "crio")


def test_a_host_with_every_runtime_has_no_failure(tmp_path_host: BrokenHost) -> None:
    rows = tmp_path_host.doctor(wrong=False)
    assert {f"{name}-devices" for name in ALL} <= {row["check"] for row in rows}


@pytest.mark.parametrize("runtime", ALL)
def test_only_the_requested_runtime_is_checked(tmp_path_host: BrokenHost, runtime: str) -> None:
    topics = {row["topic"] for row in tmp_path_host.doctor("--for", runtime, wrong=False)}
    assert topics & set(ALL) == {runtime}


def test_a_requested_runtime_that_is_not_installed_is_the_first_failure(host: BrokenHost) -> None:
    host.put("usr/bin/apt-get", "", mode=0o755)
    row = host.diagnosis("--for", "docker")
    assert row["check"] == "docker-installed"
    assert host.remedy_on_host(row) == "apt-get install --yes docker.io"


def test_a_host_without_runtimes_is_checked_for_any_runtime(host: BrokenHost) -> None:
    host.path("usr/bin/podman").unlink()
    rows = host.doctor(wrong=False)
    assert {"runtime-installed", "devices"} < {row["check"] for row in rows}


@pytest.mark.parametrize(
    ("runtime", "release"),
    [("podman", (3, 4, 4)), ("docker", (20, 10, 24)), ("containerd", (1, 6, 20)), ("crio", (1, 20, 0))],
)
def test_a_release_without_cdi_is_the_only_failure(
    tmp_path_host: BrokenHost, runtime: str, release: tuple[int, int, int]
) -> None:
    root = tmp_path_host.root
    context = doctor_context(
        str(root),
        vendors=("nvidia",),
        runtimes=(runtime,),
        spec_dirs=(f"{root}/etc/cdi", f"{root}/run/cdi"),
        state_dir=f"{root}/var/lib/cdigen",
    )
    # The test sets the release, because no test machine has a binary of this release.
    binary = f"/usr/bin/{BINARIES[runtime]}"
    old = InstalledRuntime(runtime=RUNTIME_NAMES[runtime], binary=binary, release=release)
    context.__dict__["installed"] = {runtime: old}
    wrong = [result for result in examine(context) if not result.ok]
    assert [result.check for result in wrong] == [f"{runtime}-version"]
    assert "reads no CDI specs" in wrong[0].detail


BROKEN: dict[str, tuple[str, str]] = {
    "podman": ("etc/containers/containers.conf", "[engine\n"),
    "docker": ("etc/docker/daemon.json", "{\n  oops\n}"),
    "containerd": ("etc/containerd/config.toml", "version = \n"),
    "crio": ("etc/crio/crio.conf", "[crio\n"),
}


@pytest.mark.parametrize("runtime", ALL)
def test_an_invalid_configuration_is_reported_with_its_line(tmp_path_host: BrokenHost, runtime: str) -> None:
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
def test_the_remedy_configures_missing_spec_directories(tmp_path_host: BrokenHost, runtime: str) -> None:
    file, text = DIRECTORIES[runtime]
    tmp_path_host.put(file, text)
    row = tmp_path_host.diagnosis("--for", runtime)
    assert (row["check"], row["severity"]) == (f"{runtime}-directories", "error")
    tmp_path_host.fixed(row, "--for", runtime)


def test_the_remedy_configures_containerd_with_disabled_cdi(tmp_path_host: BrokenHost) -> None:
    text = 'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = false\n'
    tmp_path_host.put("etc/containerd/config.toml", text)
    row = tmp_path_host.diagnosis("--for", "containerd")
    assert row["check"] == "containerd-cdi"
    tmp_path_host.fixed(row, "--for", "containerd")


def test_disabled_cdi_of_containerd_is_a_warning_without_the_option_for(tmp_path_host: BrokenHost) -> None:
    text = 'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = false\n'
    tmp_path_host.put("etc/containerd/config.toml", text)
    row = tmp_path_host.diagnosis()
    assert (row["check"], row["severity"]) == ("containerd-cdi", "warning")


def test_a_containerd_without_the_cri_plugin_passes_the_cdi_check(tmp_path_host: BrokenHost) -> None:
    tmp_path_host.put(
        "etc/containerd/config.toml", 'disabled_plugins = ["io.containerd.grpc.v1.cri"]\nversion = 2\n'
    )
    assert tmp_path_host.result("containerd-cdi", "--for", "containerd")["ok"]


def test_checks_that_need_a_running_machine_are_skipped_for_a_host_in_a_folder(
    tmp_path_host: BrokenHost,
) -> None:
    rows: list[dict[str, Any]] = tmp_path_host.doctor(wrong=False)
    skipped = {row["check"] for row in rows if not row["checked"]}
    assert {"podman-version", "docker-version", "docker-running"} <= skipped
