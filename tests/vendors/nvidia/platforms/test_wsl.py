"""WSL2: one device, the driver store at its host path, and the small libraries that programs load."""

from __future__ import annotations

import os
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING

import pytest
from support.hosts.discovery import refused
from support.hosts.driver_files import AARCH64, X86_64, link, put
from support.hosts.nvidia import make_any_instead, make_instead, places
from support.hosts.nvidia_platforms import (
    INF,
    LIBRARIES,
    STORE,
    STORES,
    finding_keys,
    library,
    mounts,
    node,
    only_document,
    orin,
    store,
    wsl2,
)

from cdigen.model.errors import HostError
from cdigen.vendors.nvidia.platforms import is_wsl, wsl

if TYPE_CHECKING:
    from cdigen.model.inventory import Inventory

pytestmark = pytest.mark.usefixtures("real_nodes")

SYSTEM, LIB64 = "/usr/lib/x86_64-linux-gnu", "/usr/lib64"
FOLDER = f"{STORES}/{STORE}"
OLD_STORE = "nv_dispi.inf_amd64_0123456789abcdef"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    wsl2(tmp_path)
    return tmp_path


def discover(root: Path) -> Inventory:
    return wsl.discover(places(root))


def mounted(root: Path) -> dict[str, str]:
    return mounts(only_document(root, discover(root)))


def test_wsl_is_recognized_by_dxcore_and_its_node(host: Path) -> None:
    assert is_wsl(places(host))
    (host / "dev/dxg").unlink()
    assert not is_wsl(places(host))


def test_a_host_without_dxcore_is_not_wsl(tmp_path: Path) -> None:
    orin(tmp_path)
    node(tmp_path, "/dev/dxg", 10, 125)
    assert not is_wsl(places(tmp_path))


def test_there_is_one_device_with_one_node(host: Path) -> None:
    made = only_document(host, discover(host))
    assert made["kind"] == "nvidia.com/gpu"
    assert made["containerEdits"]["env"] == [
        "NVIDIA_VISIBLE_DEVICES=void",
        "TRITON_LIBCUDA_PATH=/usr/lib/x86_64-linux-gnu",
    ]
    (device,) = made["devices"]
    assert device["name"] == "all"
    assert [entry["path"] for entry in device["containerEdits"]["deviceNodes"]] == ["/dev/dxg"]


def test_the_files_of_the_store_are_mounted_at_their_host_paths(host: Path) -> None:
    found = mounted(host)
    names = {path.rpartition("/")[2] for path in found if path.startswith(f"{FOLDER}/")}
    assert names == {
        "libcuda.so.1.1",
        "libcuda_loader.so",
        "libnvidia-ptxjitcompiler.so.1",
        "libnvidia-ml.so.1",
        "libnvidia-ml_loader.so",
        "libnvdxgdmal.so.1",
        "libnvcuvid.so.1",
        "nvcubins.bin",
        "nvoptix.dll",
        "nvidia-smi",
    }
    assert all(found[f"{FOLDER}/{name}"] == f"{FOLDER}/{name}" for name in names)
    assert not any("iigd" in path for path in found)


def test_programs_load_the_small_libraries_instead_of_the_store_libraries(host: Path) -> None:
    found = mounted(host)
    for name in ("libcuda.so", "libcuda.so.1", "libdxcore.so", "libnvidia-ml.so.1", "libnvcuvid.so.1"):
        wanted = f"{LIBRARIES}/{name}"
        assert {found[f"{folder}/{name}"] for folder in (SYSTEM, LIB64, LIBRARIES)} == {wanted}


def test_a_small_library_with_another_soname_is_found_by_both_names(host: Path) -> None:
    found = mounted(host)
    assert found[f"{SYSTEM}/libnvoptix.so.1"] == f"{LIBRARIES}/libnvoptix.so.1"
    assert found[f"{SYSTEM}/libnvoptix_loader.so.1"] == f"{LIBRARIES}/libnvoptix.so.1"


def test_a_store_library_without_a_small_library_is_found_by_its_soname(host: Path) -> None:
    found = mounted(host)
    for name in ("libnvidia-ptxjitcompiler.so.1", "libnvdxgdmal.so.1"):
        assert {found[f"{folder}/{name}"] for folder in (SYSTEM, LIB64)} == {f"{FOLDER}/{name}"}


def test_without_a_small_libcuda_programs_load_libcuda_loader(host: Path) -> None:
    for name in ("libcuda.so", "libcuda.so.1", "libcuda.so.1.1"):
        (host / f".{LIBRARIES}/{name}").unlink()
    assert mounted(host)[f"{SYSTEM}/libcuda.so.1"] == f"{FOLDER}/libcuda_loader.so"


def test_nvidia_smi_is_found_by_its_name(host: Path) -> None:
    assert mounted(host)["/usr/bin/nvidia-smi"] == f"{FOLDER}/nvidia-smi"
    (host / f".{FOLDER}/nvidia-smi").unlink()
    assert mounted(host)["/usr/bin/nvidia-smi"] == f"{LIBRARIES}/nvidia-smi"


def test_the_inventory_has_the_mode_wsl(host: Path) -> None:
    inventory = discover(host)
    driver = inventory.driver
    assert (inventory.mode, driver.version, driver.flavour, driver.architecture) == (
        "wsl",
        "581.15",
        "wsl",
        "x86_64",
    )
    assert (inventory.accelerators, inventory.nodes, inventory.files) == ((), (), ())
    assert inventory.findings == ()
    assert all(each.found for each in inventory.searched)


def test_the_architecture_is_the_architecture_of_libcuda(host: Path) -> None:
    library(host, f"{FOLDER}/libcuda.so.1.1", "libcuda.so.1", AARCH64)
    assert discover(host).driver.architecture == "aarch64"


# The version.


@pytest.mark.parametrize(
    ("head", "version"),
    [
        (INF.encode(), "581.15"),
        (b"\xff\xfe" + INF.encode("utf-16-le"), "581.15"),
        (b"DriverVer=03/01/2023,31.0.15.3699 ; made by stampinf\n", "536.99"),
        (b"driverver = 09/30/2020, 27.21.14.5671\n", "456.71"),
        (b"DriverVer = 01/01/2026, 32.0.16.1088\n", "610.88"),
        (b"", ""),
        (b"\xff\xfe\0", ""),
        (b"DriverVer\n", ""),
        (b"DriverVer = \n", ""),
        (b"DriverVer = 08/14/2025, 32.0\n", ""),
        (b"DriverVer = 08/14/2025, 32.0.a.b\n", ""),
        (b"DriverVer = 08/14/2025, 32.0.15.8115a\n", ""),
        (b"DriverVer = 08/14/2025,\n32.0.15.8115\n", ""),
        (bytes(range(256)), ""),
    ],
)
def test_the_version_is_the_last_five_digits_of_the_windows_version(head: bytes, version: str) -> None:
    assert wsl.parse_inf(head) == version


@pytest.mark.wall_clock
@pytest.mark.parametrize("before", [b"", b"DriverVer", b"DriverVer = ,", b"DriverVer = 1, 1."])
def test_long_white_space_and_digits_are_parsed_in_half_a_second(before: bytes) -> None:
    for endless in (b"\n", b" ", b"\t\r\n", b"1", b"1.", b" ,"):
        begun = process_time()
        wsl.parse_inf((before + endless * wsl.INF_HEAD)[: wsl.INF_HEAD])
        assert process_time() - begun < 0.5


@pytest.mark.parametrize("kind", ["FIFO", "folder", "regular file", "dangling link"])
def test_a_store_without_a_version_is_used(host: Path, kind: str) -> None:
    make_instead(host / f".{FOLDER}/nv_dispi.inf", kind)
    inventory = discover(host)
    assert inventory.driver.version == ""
    assert finding_keys(inventory) == {("info", "wsl-version-unknown", f"{FOLDER}/nv_dispi.inf")}


# Several stores.


def age(root: Path, name: str, seconds: int) -> None:
    os.utime(root / f".{STORES}/{name}/libcuda.so.1.1", (seconds, seconds))


def test_the_store_with_the_loader_of_the_wsl_libraries_is_used(host: Path) -> None:
    store(host, OLD_STORE, "552.22")
    age(host, STORE, 1_000_000)
    age(host, OLD_STORE, 2_000_000)
    inventory = discover(host)
    assert finding_keys(inventory) == {("info", "wsl-several-stores", FOLDER)}
    assert OLD_STORE in inventory.findings[0].message
    assert not any(OLD_STORE in path for path in mounts(only_document(host, inventory)))


@pytest.mark.parametrize("version", ["581.15", None], ids=["one loader", "no loader"])
def test_the_newest_store_is_used_if_the_loaders_do_not_decide(host: Path, version: str | None) -> None:
    store(host, OLD_STORE)
    if version is None:
        (host / f".{LIBRARIES}/libcuda.so.1.1").unlink()
    age(host, STORE, 1_000_000)
    age(host, OLD_STORE, 2_000_000)
    inventory = discover(host)
    assert finding_keys(inventory) == {("warning", "wsl-several-stores", f"{STORES}/{OLD_STORE}")}


def test_a_store_is_recognized_by_its_libcuda_and_not_by_its_name(host: Path) -> None:
    os.rename(host / f".{FOLDER}", host / f".{STORES}/oem42.inf_amd64_1")
    assert f"{STORES}/oem42.inf_amd64_1/libcuda.so.1.1" in mounted(host)


def test_a_store_with_a_broken_libcuda_is_skipped(host: Path) -> None:
    store(host, OLD_STORE)
    put(host / f".{STORES}/{OLD_STORE}/libcuda.so.1.1", b"rubbish")
    assert f"{FOLDER}/libcuda.so.1.1" in mounted(host)


# Hosts without a usable GPU.


def test_a_host_without_a_store_is_an_error_with_the_missing_library(host: Path) -> None:
    (host / f".{FOLDER}").rename(host / "away")
    error = refused(discover, host)
    assert error.kind == "driver-not-found"
    assert "libcuda.so.1.1" in error.message


@pytest.mark.parametrize("content", [b"", b"rubbish", b"\x7fELF"])
@pytest.mark.parametrize("path", [f"{FOLDER}/libcuda.so.1.1", f"{LIBRARIES}/libdxcore.so"])
def test_a_host_with_a_broken_driver_is_an_error(host: Path, path: str, content: bytes) -> None:
    put(host / path.lstrip("/"), content)
    error = refused(discover, host)
    assert error.kind == "driver-broken"
    assert path in error.message


@pytest.mark.parametrize("kind", ["FIFO", "folder", "regular file", "dangling link", "block device"])
def test_a_host_whose_node_has_another_type_is_an_error(host: Path, kind: str) -> None:
    make_any_instead(host / "dev/dxg", kind)
    assert refused(discover, host).kind == "no-nodes"


# Invalid files.


def test_a_missing_core_file_of_the_store_is_a_finding(host: Path) -> None:
    for name in ("libnvidia-ml.so.1", "nvcubins.bin", "libnvdxgdmal.so.1"):
        (host / f".{FOLDER}/{name}").unlink()
    inventory = discover(host)
    assert finding_keys(inventory) == {("warning", "library-missing", "libnvidia-ml.so.1")}
    assert {each.name for each in inventory.searched if not each.found} == {
        "libnvidia-ml.so.1",
        "nvcubins.bin",
        "libnvdxgdmal.so.1",
    }


@pytest.mark.parametrize("kind", ["FIFO", "folder", "block device", "dangling link", "looping link"])
@pytest.mark.parametrize(
    ("name", "rule"), [("libnvcuvid.so.1", "library-unusable"), ("nvcubins.bin", "file-unusable")]
)
def test_a_path_that_is_not_a_regular_file_is_left_out(host: Path, kind: str, name: str, rule: str) -> None:
    make_any_instead(host / f".{FOLDER}/{name}", kind)
    assert finding_keys(discover(host)) == {("warning", rule, f"{FOLDER}/{name}")}
    assert f"{FOLDER}/{name}" not in mounted(host)


def test_any_empty_file_is_a_finding_or_an_error(host: Path) -> None:
    paths = [Path(folder, name) for folder, _, names in os.walk(host / "usr") for name in names]
    unused = {"nv_disp.cat", "libigd.so"}
    for path in (path for path in paths if path.name not in unused):
        if path.match("wsl/lib/nvidia-smi"):
            continue
        content = path.read_bytes()
        path.write_bytes(b"")
        try:
            findings: tuple[object, ...] = discover(host).findings
        except HostError as error:
            findings = (error,)
        assert findings, path
        path.write_bytes(content)


def test_a_link_out_of_the_root_is_resolved_in_the_root(tmp_path: Path) -> None:
    root = tmp_path / "host"
    wsl2(root)
    library(tmp_path, "/outside/libnvcuvid.so.1", "libnvcuvid.so.1", X86_64)
    link(root / f".{FOLDER}/libnvcuvid.so.1", "../" * 12 + "outside/libnvcuvid.so.1")
    assert finding_keys(discover(root)) == {("warning", "library-unusable", f"{FOLDER}/libnvcuvid.so.1")}
