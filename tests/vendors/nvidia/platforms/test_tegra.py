"""Tegra boards: the files in the lists reach the container, and no content causes a traceback."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.hosts.discovery import refused
from support.hosts.driver_files import put
from support.hosts.nvidia import make_any_instead, places
from support.hosts.nvidia_platforms import (
    LISTS,
    OPENRM,
    OWN,
    SYSTEM,
    board,
    finding_keys,
    list_gpu,
    mounts,
    only_document,
    only_files,
    orin,
    release,
    thor,
    write_list,
)

from cdigen.vendors.nvidia.platforms import is_tegra, tegra

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.model.inventory import Inventory

LIB64 = "/usr/lib64"


def discover(root: Path) -> Inventory:
    return tegra.discover(places(root))


def mounted(root: Path) -> dict[str, str]:
    return mounts(only_document(root, discover(root)))


@pytest.fixture
def an_orin(tmp_path: Path, real_nodes: None) -> Path:  # noqa: ARG001 - nodes must be real
    orin(tmp_path)
    return tmp_path


@pytest.fixture
def a_thor(tmp_path: Path, real_nodes: None) -> Path:  # noqa: ARG001 - nodes must be real
    thor(tmp_path)
    return tmp_path


# The recognition of a board.


@pytest.mark.parametrize("layout", [orin, thor])
def test_a_jetson_with_the_nvidia_module_is_a_tegra_board(layout: Callable[[Path], None], root: Path) -> None:
    layout(root)
    assert (root / "proc/driver/nvidia/version").exists()
    assert is_tegra(places(root))


@pytest.mark.parametrize("family", ["Tegra\n", "tegra234\n", "Tegra210"])
def test_a_board_without_a_release_file_is_recognized_by_its_soc(tmp_path: Path, family: str) -> None:
    put(tmp_path / "sys/devices/soc0/family", family.encode())
    assert is_tegra(places(tmp_path))


@pytest.mark.parametrize("family", [None, "", "jep106:036b\n", "Samsung Exynos\n", "NVIDIA Tegra\n"])
def test_a_host_with_another_soc_is_not_a_board(tmp_path: Path, family: str | None) -> None:
    if family is not None:
        put(tmp_path / "sys/devices/soc0/family", family.encode())
    assert not is_tegra(places(tmp_path))


def test_a_board_with_the_desktop_driver_and_a_discrete_gpu_is_no_tegra_host(
    tmp_path: Path,
) -> None:
    release(tmp_path, 36, "4.3")
    list_gpu(tmp_path, "NVIDIA RTX A6000", bdf="0005:09:00.0")
    assert not is_tegra(places(tmp_path))


def test_a_listed_gpu_without_a_pci_device_is_not_discrete(tmp_path: Path) -> None:
    release(tmp_path, 36, "4.3")
    list_gpu(tmp_path, "Unknown", bdf="0000:00:00.0", on_pci=False)
    assert is_tegra(places(tmp_path))


def test_a_host_with_an_integrated_and_a_discrete_gpu_is_a_board(tmp_path: Path) -> None:
    release(tmp_path, 38, "4.0")
    list_gpu(tmp_path, "NVIDIA Thor")
    list_gpu(tmp_path, "NVIDIA RTX PRO 6000", 1, bdf="0003:01:00.0")
    assert is_tegra(places(tmp_path))


# Whole boards.


def test_the_devices_0_and_all_of_an_orin_have_every_node(an_orin: Path) -> None:
    devices = only_document(an_orin, discover(an_orin))["devices"]
    assert [device["name"] for device in devices] == ["0", "all"]
    paths = [entry["path"] for entry in devices[0]["containerEdits"]["deviceNodes"]]
    assert paths == [
        "/dev/dri/card0",
        "/dev/dri/card1",
        "/dev/dri/renderD128",
        "/dev/dri/renderD129",
        "/dev/nvgpu/igpu0/as",
        "/dev/nvgpu/igpu0/channel",
        "/dev/nvhost-ctrl-gpu",
        "/dev/nvhost-gpu",
        "/dev/nvidia0",
        "/dev/nvidia-modeset",
        "/dev/nvidiactl",
        "/dev/nvmap",
    ]
    assert devices[0]["containerEdits"] == devices[1]["containerEdits"]


def test_nodes_of_the_group_video_keep_the_group(an_orin: Path) -> None:
    edits = only_document(an_orin, discover(an_orin))["devices"][0]["containerEdits"]
    assert edits["additionalGids"] == [44]
    assert {entry["path"]: entry.get("gid") for entry in edits["deviceNodes"]}["/dev/nvmap"] == 44


def test_the_files_of_an_orin_are_mounted_at_the_listed_paths(an_orin: Path) -> None:
    found = mounted(an_orin)
    wanted = {
        "/etc/nv_tegra_release": "/etc/nv_tegra_release",
        "/dev/dri/by-path": "/dev/dri/by-path",
        f"{OWN}/libcuda.so.1.1": f"{OWN}/libcuda.so.1.1",
        "/lib/firmware/tegra23x/nvhost_nvdec050_desc_prod.bin": (
            "/usr/lib/firmware/tegra23x/nvhost_nvdec050_desc_prod.bin"
        ),
        "/usr/sbin/nvidia-smi": "/usr/sbin/nvidia-smi",
        # A link is mounted as its target.
        "/etc/vulkan/icd.d/nvidia_icd.json": f"{OWN}/nvidia_icd.json",
        f"{SYSTEM}/libcuda.so": f"{OWN}/libcuda.so.1.1",
        f"{OWN}/libcuda.so.1": f"{OWN}/libcuda.so.1.1",
        f"{SYSTEM}/tegra": OWN,
    }
    assert {path: found.get(path) for path in wanted} == wanted


def test_the_containers_loader_finds_an_orins_libraries_without_a_hook(an_orin: Path) -> None:
    found = mounted(an_orin)
    for name, path in (
        ("libcuda.so.1", f"{OWN}/libcuda.so.1.1"),
        ("libnvos.so", f"{OWN}/libnvos.so"),
        ("libnvidia-ptxjitcompiler.so.1", f"{OWN}/libnvidia-ptxjitcompiler.so.540.3.0"),
        ("libEGL_nvidia.so.0", f"{SYSTEM}/tegra-egl/libEGL_nvidia.so.0"),
        ("libv4l2.so.0", f"{OWN}/libv4l2.so.0.0.999999"),
    ):
        assert (found[f"{SYSTEM}/{name}"], found[f"{LIB64}/{name}"]) == (path, path)
    assert f"{SYSTEM}/libgstnvjpeg.so" not in found


def test_missing_files_of_the_lists_are_findings_of_the_severity_info(an_orin: Path) -> None:
    inventory = discover(an_orin)
    assert finding_keys(inventory) == {
        ("info", "csv-path-missing", "/dev/fb0"),
        ("info", "csv-path-missing", f"{OWN}/libnvdla_compiler.so"),
    }
    assert "drivers.csv:6)" in next(f.message for f in inventory.findings if "nvdla" in f.path)


def test_the_inventory_of_an_orin_has_the_mode_csv(an_orin: Path) -> None:
    inventory = discover(an_orin)
    driver = inventory.driver
    assert (inventory.mode, driver.version, driver.flavour, driver.architecture) == (
        "csv",
        "540.4.0",
        "tegra",
        "aarch64",
    )
    assert (inventory.accelerators, inventory.nodes, inventory.files) == ((), (), ())


def test_a_thor_gets_libcuda_from_the_folder_in_l4t_csv(a_thor: Path) -> None:
    found = mounted(a_thor)
    assert {found[f"{folder}/libcuda.so.1"] for folder in (SYSTEM, LIB64)} == {f"{OPENRM}/libcuda.so.1.1"}
    assert found[f"{SYSTEM}/libcuda.so"] == f"{OPENRM}/libcuda.so.1.1"
    assert finding_keys(discover(a_thor)) == set()


def test_wildcards_within_a_path_find_a_thors_nodes(a_thor: Path) -> None:
    (group,) = discover(a_thor).groups
    paths = {each.path for each in group.devices[0].nodes}
    assert {path for path in paths if "nvgpu" in path} == {
        "/dev/nvgpu/igpu-0000:01:00.0/channel",
        "/dev/nvgpu/igpu-0000:01:00.0/ctrl",
    }


def test_lists_without_libcuda_are_a_warning(a_thor: Path) -> None:
    (a_thor / LISTS / "l4t.csv").unlink()
    assert finding_keys(discover(a_thor)) == {("warning", "library-missing", "libcuda")}


def test_a_discrete_gpu_of_a_thor_is_reported(a_thor: Path) -> None:
    list_gpu(a_thor, "NVIDIA RTX PRO 6000", 1, bdf="0003:01:00.0")
    (finding,) = discover(a_thor).findings
    assert (finding.severity, finding.rule) == ("info", "csv-discrete-gpu")
    assert "RTX PRO 6000" in finding.message


# The version.


@pytest.mark.parametrize("module", [None, "NVRM version: 35.4.1\n", "rubbish"])
def test_the_release_file_has_the_version_if_the_module_has_none(root: Path, module: str | None) -> None:
    board(root)
    release(root, 35, "4.1")
    if module is not None:
        put(root / "proc/driver/nvidia/version", module.encode())
    assert discover(root).driver.version == "35.4.1"


def test_a_board_without_a_known_version_is_supported(root: Path) -> None:
    board(root)
    inventory = discover(root)
    assert inventory.driver.version == ""
    assert finding_keys(inventory) == {("info", "tegra-release-unknown", "/etc/nv_tegra_release")}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic\n# KERNEL_VARIANT: oot\n", "36.4.3"),
        ("# R32 (release), REVISION: 7.1, GCID: 29818004, BOARD: t210ref", "32.7.1"),
        ("# R39 (release), REVISION: 2\n", "39.2"),
        ("", ""),
        ("# R36 (release)\n", ""),
        ("# X36 (release), REVISION: 4.3\n", ""),
        ("# R36 (release), REVISION: x\n", ""),
        ("# R36 (release), REVISION: ٣\n", ""),
    ],
)
def test_the_release_is_read_from_its_first_line(text: str, version: str) -> None:
    assert tegra.parse_release(text) == version


# Invalid lists.


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "csv-unreadable"),
        (b"# nothing\n", "csv-unreadable"),
        (b"#" * (tegra.MAX_LIST + 1), "csv-unreadable"),
        (bytes(range(256)) * 40, "csv-line-unknown"),
    ],
    ids=["empty", "comments", "too large", "binary"],
)
def test_an_invalid_list_is_a_finding_and_other_lists_are_read(root: Path, content: bytes, rule: str) -> None:
    board(root)
    put(root / LISTS / "drivers.csv", content)
    inventory = discover(root)
    assert rule in {finding.rule for finding in inventory.findings}
    assert all(finding.message.isprintable() for finding in inventory.findings)


@pytest.mark.parametrize("kind", ["FIFO", "folder", "dangling link", "looping link", "character device"])
def test_a_list_that_is_not_a_regular_file_does_not_affect_other_lists(root: Path, kind: str) -> None:
    board(root)
    make_any_instead(root / LISTS / "drivers.csv", kind)
    rules = {finding.rule for finding in discover(root).findings}
    assert ("csv-unreadable" in rules) == (kind != "dangling link")


def test_lists_with_other_names_are_not_read(root: Path) -> None:
    board(root)
    write_list(root, "cuda.csv", "dir, /usr/local/cuda\n")
    (root / "usr/local/cuda").mkdir(parents=True)
    assert only_files(discover(root)) == ()


def test_a_board_without_listed_files_is_an_error(tmp_path: Path) -> None:
    assert refused(discover, tmp_path).kind == "driver-not-found"
    write_list(tmp_path, "devices.csv", "")
    error = refused(discover, tmp_path)
    assert error.kind == "driver-not-found"
    assert "contains no entry" in error.message


@pytest.mark.parametrize("line", ["dev, /dev/nvmap\n", "lib, /etc/hostname\n", "dev, /dev/log\n"])
def test_a_board_without_nodes_is_an_error(tmp_path: Path, line: str) -> None:
    write_list(tmp_path, "devices.csv", line)
    put(tmp_path / "dev/log", b"no node")
    assert refused(discover, tmp_path).kind == "no-nodes"


@pytest.mark.parametrize("layout", [orin, thor])
def test_any_empty_file_of_a_board_is_a_finding(layout: Callable[[Path], None], root: Path) -> None:
    layout(root)
    before = set(discover(root).findings)
    paths = [Path(folder, name) for folder, _, names in os.walk(root) for name in names]
    # Without the kernel module's version, cdigen uses the release file, and reports nothing.
    files = [path for path in paths if path.is_file() and not path.is_symlink()]
    for path in (path for path in files if not path.is_relative_to(root / "proc")):
        if path.name in {"devices.csv", "family"}:
            continue
        content = path.read_bytes()
        path.write_bytes(b"")
        assert set(discover(root).findings) - before, path
        path.write_bytes(content)
