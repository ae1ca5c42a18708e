"""The driver's files that are not libraries: programs, firmware, data, X modules, sockets."""

import os
import socket
from pathlib import Path

import pytest
from support.hosts.driver_files import V535, V550, link, put
from support.hosts.nvidia import DRIVER, make_instead, places

from cdigen.model.findings import Finding
from cdigen.value import replace
from cdigen.vendors.nvidia.files import find_files

FIRMWARE = f"nvidia/{V550}/gsp_ga10x.bin"


def targets(root: Path, *library_folders: str) -> dict[str, str]:
    files, _, _ = find_files(places(root), DRIVER, library_folders)
    return {target: file.host_path for file in files for target in file.targets}


def findings(root: Path) -> list[Finding]:
    _, _, said = find_files(places(root), DRIVER, ())
    assert all(finding.line().isprintable() for finding in said)
    return said


def program(path: Path) -> None:
    put(path, b"\x7fELF", 0o755)


def test_a_host_without_files_is_told_what_was_looked_for(tmp_path: Path) -> None:
    files, sought, said = find_files(places(tmp_path), DRIVER, ())
    assert (files, said) == ([], [])
    assert {thing.reason for thing in sought} == {"no such file"}
    assert {thing.kind for thing in sought} == {"binary", "firmware", "config", "module", "socket"}
    assert all("{" not in thing.name for thing in sought)


def test_the_first_folder_of_the_search_path_gives_the_program(tmp_path: Path) -> None:
    for folder in ("bin", "usr/bin", "usr/local/bin"):
        program(tmp_path / folder / "nvidia-smi")
    assert targets(tmp_path) == {"/usr/bin/nvidia-smi": "/usr/local/bin/nvidia-smi"}


def test_a_program_of_the_administrator_stays_one(tmp_path: Path) -> None:
    program(tmp_path / "usr/sbin/nvidia-cuda-mps-server")
    assert targets(tmp_path) == {"/usr/sbin/nvidia-cuda-mps-server": "/usr/sbin/nvidia-cuda-mps-server"}


def test_a_program_beside_the_drivers_own_library_folder_is_found(tmp_path: Path) -> None:
    program(tmp_path / "opt/driver/bin/nvidia-smi")
    assert targets(tmp_path) == {}
    assert targets(tmp_path, "/opt/driver/lib64") == {"/usr/bin/nvidia-smi": "/opt/driver/bin/nvidia-smi"}


def test_binary_search_paths_replace_the_known_folders(tmp_path: Path) -> None:
    program(tmp_path / "usr/bin/nvidia-smi")
    program(tmp_path / "opt/tools/nvidia-smi")
    program(tmp_path / "opt/driver/bin/nvidia-debugdump")
    where = replace(places(tmp_path), binary_search_paths=("/opt/tools",))
    files, _, _ = find_files(where, DRIVER, ("/opt/driver/lib64",))
    assert [file.host_path for file in files] == ["/opt/tools/nvidia-smi"]


@pytest.mark.parametrize("name", ["nvidia_icd.json", "nvidia_icd.x86_64.json", "nvidia_icd_vksc.json"])
def test_the_manifest_of_vulkan_sc_is_found_by_each_of_its_names(tmp_path: Path, name: str) -> None:
    put(tmp_path / f"usr/share/vulkansc/icd.d/{name}", b"{}")
    put(tmp_path / "usr/share/vulkansc/icd.d/nvidia_icd.i686.json", b"{}")
    assert targets(tmp_path) == {f"/etc/vulkansc/icd.d/{name}": f"/usr/share/vulkansc/icd.d/{name}"}


def test_a_program_that_runs_as_root_for_everyone_is_not_given(tmp_path: Path) -> None:
    put(tmp_path / "usr/bin/nvidia-modprobe", b"\x7fELF", 0o4755)
    assert targets(tmp_path) == {}


@pytest.mark.parametrize("name", ["nv-fabricmanager", "nvidia-imex", "nvidia-imex-ctl", "nvidia-xconfig"])
def test_programs_that_few_hosts_have_are_found(tmp_path: Path, name: str) -> None:
    program(tmp_path / "usr/bin" / name)
    assert targets(tmp_path) == {f"/usr/bin/{name}": f"/usr/bin/{name}"}


@pytest.mark.parametrize("kind", ["regular file", "dangling link", "looping link", "FIFO", "folder"])
def test_something_else_in_a_programs_place_is_named_and_left_out(tmp_path: Path, kind: str) -> None:
    program(tmp_path / "usr/bin/nvidia-smi")
    make_instead(tmp_path / "usr/bin/nvidia-smi", kind)
    assert targets(tmp_path) == {}
    assert [(f.severity, f.rule, f.path) for f in findings(tmp_path)] == [
        ("warning", "file-unusable", "/usr/bin/nvidia-smi")
    ]


def test_a_broken_program_does_not_hide_the_next_one(tmp_path: Path) -> None:
    link(tmp_path / "usr/local/bin/nvidia-smi", "nowhere")
    program(tmp_path / "usr/bin/nvidia-smi")
    assert targets(tmp_path) == {"/usr/bin/nvidia-smi": "/usr/bin/nvidia-smi"}


def test_firmware_comes_from_the_folder_that_the_kernel_would_ask_first(tmp_path: Path) -> None:
    put(tmp_path / "proc/sys/kernel/osrelease", b"6.12.30-amd64\n")
    places_in_order = (
        "srv/firmware",
        "lib/firmware/updates/6.12.30-amd64",
        "lib/firmware/updates",
        "lib/firmware/6.12.30-amd64",
        "lib/firmware",
    )
    for folder in places_in_order:
        put(tmp_path / folder / FIRMWARE, b"laid")
    put(tmp_path / "sys/module/firmware_class/parameters/path", b"/srv/firmware\n")
    for folder in places_in_order:
        assert targets(tmp_path) == {f"/lib/firmware/{FIRMWARE}": f"/{folder}/{FIRMWARE}"}
        (tmp_path / folder / FIRMWARE).unlink()


@pytest.mark.parametrize("name", ["gsp_ga10x.bin.xz", "gsp", "other.bin"])
def test_only_gsp_firmware_as_the_driver_names_it_is_given(tmp_path: Path, name: str) -> None:
    put(tmp_path / f"lib/firmware/nvidia/{V550}" / name, b"laid")
    assert targets(tmp_path) == {}


def test_firmware_of_another_version_is_not_given(tmp_path: Path) -> None:
    put(tmp_path / f"lib/firmware/nvidia/{V535}/gsp_ga10x.bin", b"laid")
    assert targets(tmp_path) == {}


@pytest.mark.parametrize("parameter", [b"", b"\n", b"relative\n", b"/nowhere\n", bytes(range(256))])
def test_an_unset_or_odd_firmware_folder_is_passed_over(tmp_path: Path, parameter: bytes) -> None:
    put(tmp_path / "sys/module/firmware_class/parameters/path", parameter)
    put(tmp_path / "lib/firmware" / FIRMWARE, b"laid")
    assert targets(tmp_path).keys() == {f"/lib/firmware/{FIRMWARE}"}


def test_a_file_in_etc_takes_the_place_of_the_packages_one(tmp_path: Path) -> None:
    for folder in ("etc", "usr/share"):
        put(tmp_path / folder / "glvnd/egl_vendor.d/10_nvidia.json", b"{}")
    assert targets(tmp_path) == {
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json": "/etc/glvnd/egl_vendor.d/10_nvidia.json"
    }


def test_every_egl_platform_of_nvidia_is_given_and_no_other(tmp_path: Path) -> None:
    folder = "usr/share/egl/egl_external_platform.d"
    names = ["09_nvidia_wayland2.json", "10_nvidia_wayland.json", "20_nvidia_xcb.json", "20_nvidia_xlib.json"]
    for name in [*names, "10_mesa.json", "nvidia.txt"]:
        put(tmp_path / folder / name, b"{}")
    assert list(targets(tmp_path)) == [f"/{folder}/{name}" for name in names]


def test_the_vulkan_driver_of_the_running_machine_is_given_and_no_other(tmp_path: Path) -> None:
    for name in (
        "nvidia_icd.json",
        "nvidia_icd.x86_64.json",
        "nvidia_icd.i686.json",
        "nvidia_icd.aarch64.json",
    ):
        put(tmp_path / "usr/share/vulkan/icd.d" / name, b"{}")
    assert targets(tmp_path).keys() == {
        "/etc/vulkan/icd.d/nvidia_icd.json",
        "/etc/vulkan/icd.d/nvidia_icd.x86_64.json",
    }


def test_application_profiles_are_those_of_the_running_version(tmp_path: Path) -> None:
    for version in (V550, V535):
        put(tmp_path / f"usr/share/nvidia/nvidia-application-profiles-{version}-rc", b"laid")
    name = f"/usr/share/nvidia/nvidia-application-profiles-{V550}-rc"
    assert targets(tmp_path) == {name: name}


def test_a_file_of_odd_name_that_leads_to_a_plain_one_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "usr/share/egl/egl_external_platform.d"
    put(folder / "plain", b"{}")
    link(folder / "1\n_nvidia_2.json", "plain")
    assert targets(tmp_path) == {}
    assert [finding.rule for finding in findings(tmp_path)] == ["file-unusable"]


def test_firmware_of_odd_name_is_refused(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path / f"lib/firmware/nvidia/{V550}")
    os.makedirs(folder)
    os.close(os.open(folder + b"/gsp\xff.bin", os.O_CREAT))
    assert targets(tmp_path) == {}
    assert [finding.rule for finding in findings(tmp_path)] == ["file-unusable"]


def test_an_x_module_link_to_another_drivers_file_is_passed_over(tmp_path: Path) -> None:
    modules = tmp_path / "usr/lib/xorg/modules/extensions"
    put(tmp_path / f"usr/lib/nvidia/old/libglxserver_nvidia.so.{V535}", b"laid")
    link(modules / "libglxserver_nvidia.so", f"/usr/lib/nvidia/old/libglxserver_nvidia.so.{V535}")
    _, sought, _ = find_files(places(tmp_path), DRIVER, ())
    assert targets(tmp_path) == {}
    assert [thing.found for thing in sought if "glxserver" in thing.name] == [()]


@pytest.mark.parametrize("name", ["nvidia-persistenced", "nvidia-fabricmanager"])
@pytest.mark.parametrize("folder", ["run", "var/run"])
def test_a_daemons_socket_is_given_at_run(tmp_path: Path, folder: str, name: str) -> None:
    path = tmp_path / folder / name
    path.mkdir(parents=True)
    descriptor = os.open(path, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{descriptor}/socket")  # an address has 107 bytes at the utmost
        os.close(descriptor)
        assert targets(tmp_path) == {f"/run/{name}/socket": f"/{folder}/{name}/socket"}


def test_a_file_in_a_sockets_place_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "run/nvidia-persistenced/socket")
    assert targets(tmp_path) == {}
    assert [finding.rule for finding in findings(tmp_path)] == ["file-unusable"]


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        ("usr/bin/nvidia-smi", 0o755),
        (f"lib/firmware/{FIRMWARE}", 0o644),
        ("usr/share/nvidia/nvoptix.bin", 0o644),
        ("usr/lib/xorg/modules/drivers/nvidia_drv.so", 0o644),
    ],
)
def test_an_empty_file_is_named_and_left_out(tmp_path: Path, path: str, mode: int) -> None:
    put(tmp_path / path, b"", mode)
    assert targets(tmp_path) == {}
    assert {(finding.rule, finding.message) for finding in findings(tmp_path)} == {
        ("file-unusable", f"/{path} is empty; it is left out")
    }


def test_an_empty_program_gives_way_to_the_next_folders(tmp_path: Path) -> None:
    put(tmp_path / "usr/bin/nvidia-smi", b"", 0o755)
    program(tmp_path / "usr/local/nvidia/bin/nvidia-smi")
    program(tmp_path / "bin/nvidia-smi")
    assert len(targets(tmp_path)) == 1


@pytest.mark.parametrize("parameter", [b"/a\0b\n", b"/x\ny", b"/\x1b[0m"])
def test_a_firmware_folder_that_can_be_no_path_is_ignored(tmp_path: Path, parameter: bytes) -> None:
    put(tmp_path / "sys/module/firmware_class/parameters/path", parameter)
    put(tmp_path / "proc/sys/kernel/osrelease", b"6.12\0\n")
    put(tmp_path / "lib/firmware" / FIRMWARE, b"laid")
    assert list(targets(tmp_path)) == [f"/lib/firmware/{FIRMWARE}"]
