"""The driver's files other than libraries: programs, firmware, data, X modules and sockets."""

import os
import socket
from pathlib import Path

import pytest
from support.hosts.driver_files import V535, V550, link, put
from support.hosts.nvidia import DRIVER, make_instead, places

from cdigen.model.findings import Finding
from cdigen.model.profile import DEFAULT
from cdigen.value import replace
from cdigen.vendors.nvidia.files.driver_files import find_files

FIRMWARE = f"nvidia/{V550}/gsp_ga10x.bin"


def targets(root: Path, *library_folders: str) -> dict[str, str]:
    files, _, _ = find_files(places(root), DRIVER, library_folders)
    return {target: file.host_path for file in files for target in file.targets}


def findings(root: Path) -> list[Finding]:
    _, _, found = find_files(places(root), DRIVER, ())
    assert all(finding.line().isprintable() for finding in found)
    return found


def program(path: Path) -> None:
    put(path, b"\x7fELF", 0o755)


def test_on_a_host_without_the_files_the_search_results_have_the_reason(tmp_path: Path) -> None:
    files, searched, findings = find_files(places(tmp_path), DRIVER, ())
    assert (files, findings) == ([], [])
    assert {thing.reason for thing in searched} == {"no such file"}
    assert {thing.kind for thing in searched} == {
        "binary",
        "firmware",
        "config",
        "library",
        "module",
        "socket",
    }
    assert all("{" not in thing.name for thing in searched)


def test_the_program_in_the_first_folder_of_the_search_path_is_used(tmp_path: Path) -> None:
    for folder in ("bin", "usr/bin", "usr/local/bin"):
        program(tmp_path / folder / "nvidia-smi")
    assert targets(tmp_path) == {"/usr/bin/nvidia-smi": "/usr/local/bin/nvidia-smi"}


def test_a_program_in_sbin_stays_in_sbin(tmp_path: Path) -> None:
    program(tmp_path / "usr/sbin/nvidia-cuda-mps-server")
    assert targets(tmp_path) == {"/usr/sbin/nvidia-cuda-mps-server": "/usr/sbin/nvidia-cuda-mps-server"}


def test_a_program_next_to_the_drivers_library_folder_is_found(tmp_path: Path) -> None:
    program(tmp_path / "opt/driver/bin/nvidia-smi")
    assert targets(tmp_path) == {}
    assert targets(tmp_path, "/opt/driver/lib64") == {"/usr/bin/nvidia-smi": "/opt/driver/bin/nvidia-smi"}


def test_the_setting_binary_search_paths_replaces_the_known_folders(tmp_path: Path) -> None:
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


def test_a_setuid_root_program_is_left_out(tmp_path: Path) -> None:
    put(tmp_path / "usr/bin/nvidia-modprobe", b"\x7fELF", 0o4755)
    assert targets(tmp_path) == {}


@pytest.mark.parametrize(
    "name",
    [
        *("nv-fabricmanager", "nvidia-imex", "nvidia-imex-ctl", "nvidia-xconfig"),
        *("nvidia-ngx-updater", "nvidia-pcc", "nvidia-powerd"),
    ],
)
def test_programs_that_few_hosts_have_are_found(tmp_path: Path, name: str) -> None:
    program(tmp_path / "usr/bin" / name)
    assert targets(tmp_path) == {f"/usr/bin/{name}": f"/usr/bin/{name}"}


@pytest.mark.parametrize("kind", ["regular file", "dangling link", "looping link", "FIFO", "folder"])
def test_a_file_of_another_type_at_a_programs_path_is_reported_and_left_out(
    tmp_path: Path, kind: str
) -> None:
    program(tmp_path / "usr/bin/nvidia-smi")
    make_instead(tmp_path / "usr/bin/nvidia-smi", kind)
    assert targets(tmp_path) == {}
    assert [(f.severity, f.rule, f.path) for f in findings(tmp_path)] == [
        ("warning", "file-unusable", "/usr/bin/nvidia-smi")
    ]


def test_a_broken_program_is_replaced_by_the_program_in_the_next_folder(tmp_path: Path) -> None:
    link(tmp_path / "usr/local/bin/nvidia-smi", "nowhere")
    program(tmp_path / "usr/bin/nvidia-smi")
    assert targets(tmp_path) == {"/usr/bin/nvidia-smi": "/usr/bin/nvidia-smi"}


def test_firmware_is_used_from_the_folder_that_the_kernel_searches_first(tmp_path: Path) -> None:
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
def test_other_files_in_the_firmware_folder_are_not_offered(tmp_path: Path, name: str) -> None:
    put(tmp_path / f"lib/firmware/nvidia/{V550}" / name, b"laid")
    assert targets(tmp_path) == {}


def test_firmware_of_another_version_is_not_offered(tmp_path: Path) -> None:
    put(tmp_path / f"lib/firmware/nvidia/{V535}/gsp_ga10x.bin", b"laid")
    assert targets(tmp_path) == {}


@pytest.mark.parametrize("parameter", [b"", b"\n", b"relative\n", b"/nowhere\n", bytes(range(256))])
def test_an_empty_or_invalid_firmware_parameter_is_ignored(tmp_path: Path, parameter: bytes) -> None:
    put(tmp_path / "sys/module/firmware_class/parameters/path", parameter)
    put(tmp_path / "lib/firmware" / FIRMWARE, b"laid")
    assert targets(tmp_path).keys() == {f"/lib/firmware/{FIRMWARE}"}


def test_a_file_in_etc_is_used_instead_of_the_packages_file(tmp_path: Path) -> None:
    for folder in ("etc", "usr/share"):
        put(tmp_path / folder / "glvnd/egl_vendor.d/10_nvidia.json", b"{}")
    assert targets(tmp_path) == {
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json": "/etc/glvnd/egl_vendor.d/10_nvidia.json"
    }


def test_only_the_egl_platforms_of_nvidia_are_offered(tmp_path: Path) -> None:
    folder = "usr/share/egl/egl_external_platform.d"
    names = ["09_nvidia_wayland2.json", "10_nvidia_wayland.json", "20_nvidia_xcb.json", "20_nvidia_xlib.json"]
    for name in [*names, "10_mesa.json", "nvidia.txt"]:
        put(tmp_path / folder / name, b"{}")
    assert list(targets(tmp_path)) == [f"/{folder}/{name}" for name in names]


def test_only_the_vulkan_manifests_of_the_hosts_architecture_are_offered(tmp_path: Path) -> None:
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


def test_the_vulkan_manifest_of_32_bit_programs_is_only_for_profiles_with_compat32(tmp_path: Path) -> None:
    put(tmp_path / "usr/share/vulkan/icd.d/nvidia_icd.i686.json", b"{}")
    files, _, _ = find_files(replace(places(tmp_path), compat32=True), DRIVER, ())
    assert [file.targets for file in files] == [("/etc/vulkan/icd.d/nvidia_icd.i686.json",)]
    assert [DEFAULT.includes(file) for file in files] == [False]
    assert [replace(DEFAULT, compat32=True).includes(file) for file in files] == [True]


def test_the_libraries_for_wine_are_next_to_libglx_nvidia(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib64/nvidia/wine"
    for name in ("_nvngx.dll", "nvngx.dll", "README"):
        put(folder / name, b"MZ")
    put(folder / "nvngx_dlssg.dll", b"")
    files, _, _ = find_files(places(tmp_path), DRIVER, ("/usr/lib", "/usr/lib64"))
    assert [(file.host_path, file.names) for file in files] == [
        (f"/usr/lib64/nvidia/wine/{name}", (f"nvidia/wine/{name}",)) for name in ("_nvngx.dll", "nvngx.dll")
    ]


@pytest.mark.parametrize("name", ["10-nvidia.conf", "nvidia.conf", "nvidia-drm-outputclass.conf"])
def test_the_configuration_of_xorg_is_found_by_each_of_its_names(tmp_path: Path, name: str) -> None:
    put(tmp_path / "usr/share/X11/xorg.conf.d" / name, b"Section")
    path = f"/usr/share/X11/xorg.conf.d/{name}"
    assert targets(tmp_path) == {path: path}


def test_x_modules_also_have_their_paths_on_the_host(tmp_path: Path) -> None:
    folder = "usr/lib/x86_64-linux-gnu/nvidia/xorg"
    put(tmp_path / folder / "nvidia_drv.so", b"laid")
    put(tmp_path / folder / f"libglxserver_nvidia.so.{V550}", b"laid")
    found = targets(tmp_path)
    assert found[f"/{folder}/nvidia_drv.so"] == f"/{folder}/nvidia_drv.so"
    assert found["/usr/lib/xorg/modules/drivers/nvidia_drv.so"] == f"/{folder}/nvidia_drv.so"
    # xorg.conf contains the folder, and Xorg loads the module by the name without a version.
    assert found[f"/{folder}/libglxserver_nvidia.so"] == f"/{folder}/libglxserver_nvidia.so.{V550}"


def test_only_the_application_profile_of_the_running_version_is_offered(tmp_path: Path) -> None:
    for version in (V550, V535):
        put(tmp_path / f"usr/share/nvidia/nvidia-application-profiles-{version}-rc", b"laid")
    name = f"/usr/share/nvidia/nvidia-application-profiles-{V550}-rc"
    assert targets(tmp_path) == {name: name}


def test_a_link_with_an_unprintable_name_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "usr/share/egl/egl_external_platform.d"
    put(folder / "plain", b"{}")
    link(folder / "1\n_nvidia_2.json", "plain")
    assert targets(tmp_path) == {}
    assert [finding.rule for finding in findings(tmp_path)] == ["file-unusable"]


def test_firmware_with_an_invalid_name_is_left_out(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path / f"lib/firmware/nvidia/{V550}")
    os.makedirs(folder)
    os.close(os.open(folder + b"/gsp\xff.bin", os.O_CREAT))
    assert targets(tmp_path) == {}
    assert [finding.rule for finding in findings(tmp_path)] == ["file-unusable"]


def test_an_x_module_link_to_another_drivers_file_is_skipped(tmp_path: Path) -> None:
    modules = tmp_path / "usr/lib/xorg/modules/extensions"
    put(tmp_path / f"usr/lib/nvidia/old/libglxserver_nvidia.so.{V535}", b"laid")
    link(modules / "libglxserver_nvidia.so", f"/usr/lib/nvidia/old/libglxserver_nvidia.so.{V535}")
    _, searched, _ = find_files(places(tmp_path), DRIVER, ())
    assert targets(tmp_path) == {}
    assert [thing.found for thing in searched if "glxserver" in thing.name] == [()]


@pytest.mark.parametrize("name", ["nvidia-persistenced", "nvidia-fabricmanager"])
@pytest.mark.parametrize("folder", ["run", "var/run"])
def test_the_socket_of_a_daemon_is_mounted_below_run(tmp_path: Path, folder: str, name: str) -> None:
    path = tmp_path / folder / name
    path.mkdir(parents=True)
    descriptor = os.open(path, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{descriptor}/socket")  # an address has at most 107 bytes
        os.close(descriptor)
        assert targets(tmp_path) == {f"/run/{name}/socket": f"/{folder}/{name}/socket"}


def test_a_regular_file_at_a_sockets_path_is_left_out(tmp_path: Path) -> None:
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
def test_an_empty_file_is_reported_and_left_out(tmp_path: Path, path: str, mode: int) -> None:
    put(tmp_path / path, b"", mode)
    assert targets(tmp_path) == {}
    assert {(finding.rule, finding.message) for finding in findings(tmp_path)} == {
        ("file-unusable", f"/{path} is empty; the file is left out")
    }


def test_an_empty_program_is_replaced_by_the_program_in_the_next_folder(tmp_path: Path) -> None:
    put(tmp_path / "usr/bin/nvidia-smi", b"", 0o755)
    program(tmp_path / "usr/local/nvidia/bin/nvidia-smi")
    program(tmp_path / "bin/nvidia-smi")
    assert len(targets(tmp_path)) == 1


@pytest.mark.parametrize("parameter", [b"/a\0b\n", b"/x\ny", b"/\x1b[0m"])
def test_a_firmware_folder_with_an_invalid_path_is_ignored(tmp_path: Path, parameter: bytes) -> None:
    put(tmp_path / "sys/module/firmware_class/parameters/path", parameter)
    put(tmp_path / "proc/sys/kernel/osrelease", b"6.12\0\n")
    put(tmp_path / "lib/firmware" / FIRMWARE, b"laid")
    assert list(targets(tmp_path)) == [f"/lib/firmware/{FIRMWARE}"]
