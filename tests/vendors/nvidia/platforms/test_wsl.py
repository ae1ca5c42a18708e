"""WSL2: one device, the store at its own path, the small libraries under the names that programs ask for."""

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
    library,
    mounts,
    node,
    only_document,
    orin,
    said,
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


def test_wsl_is_known_by_dxcore_and_its_node(host: Path) -> None:
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


def test_the_store_is_at_its_own_path(host: Path) -> None:
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


def test_programs_load_the_small_libraries_and_not_those_of_the_store(host: Path) -> None:
    found = mounted(host)
    for name in ("libcuda.so", "libcuda.so.1", "libdxcore.so", "libnvidia-ml.so.1", "libnvcuvid.so.1"):
        wanted = f"{LIBRARIES}/{name}"
        assert {found[f"{folder}/{name}"] for folder in (SYSTEM, LIB64, LIBRARIES)} == {wanted}


def test_a_small_library_is_found_by_its_soname_where_that_is_not_its_files_name(host: Path) -> None:
    found = mounted(host)
    assert found[f"{SYSTEM}/libnvoptix.so.1"] == f"{LIBRARIES}/libnvoptix.so.1"
    assert found[f"{SYSTEM}/libnvoptix_loader.so.1"] == f"{LIBRARIES}/libnvoptix.so.1"


def test_a_library_of_the_store_that_has_no_small_one_is_found_by_its_soname(host: Path) -> None:
    found = mounted(host)
    for name in ("libnvidia-ptxjitcompiler.so.1", "libnvdxgdmal.so.1"):
        assert {found[f"{folder}/{name}"] for folder in (SYSTEM, LIB64)} == {f"{FOLDER}/{name}"}


def test_the_stores_own_libcuda_is_hidden_from_the_loader_even_where_wsl_has_no_small_one(host: Path) -> None:
    for name in ("libcuda.so", "libcuda.so.1", "libcuda.so.1.1"):
        (host / f".{LIBRARIES}/{name}").unlink()
    assert mounted(host)[f"{SYSTEM}/libcuda.so.1"] == f"{FOLDER}/libcuda_loader.so"


def test_nvidia_smi_is_found_by_its_name(host: Path) -> None:
    assert mounted(host)["/usr/bin/nvidia-smi"] == f"{FOLDER}/nvidia-smi"
    (host / f".{FOLDER}/nvidia-smi").unlink()
    assert mounted(host)["/usr/bin/nvidia-smi"] == f"{LIBRARIES}/nvidia-smi"


def test_the_inventory_says_what_it_is(host: Path) -> None:
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
    assert all(thing.found for thing in inventory.sought)


def test_the_machine_is_that_of_libcuda(host: Path) -> None:
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
def test_the_version_is_the_last_five_digits_of_windows_version(head: bytes, version: str) -> None:
    assert wsl.parse_inf(head) == version


@pytest.mark.parametrize("before", [b"", b"DriverVer", b"DriverVer = ,", b"DriverVer = 1, 1."])
def test_white_space_and_digits_without_end_take_no_time(before: bytes) -> None:
    for endless in (b"\n", b" ", b"\t\r\n", b"1", b"1.", b" ,"):
        begun = process_time()
        wsl.parse_inf((before + endless * wsl.INF_HEAD)[: wsl.INF_HEAD])
        assert process_time() - begun < 0.5


@pytest.mark.parametrize("kind", ["FIFO", "folder", "regular file", "dangling link"])
def test_a_store_that_tells_no_version_is_served(host: Path, kind: str) -> None:
    make_instead(host / f".{FOLDER}/nv_dispi.inf", kind)
    inventory = discover(host)
    assert inventory.driver.version == ""
    assert said(inventory) == {("info", "wsl-version-unknown", f"{FOLDER}/nv_dispi.inf")}


# Several stores.


def age(root: Path, name: str, seconds: int) -> None:
    os.utime(root / f".{STORES}/{name}/libcuda.so.1.1", (seconds, seconds))


def test_of_two_stores_that_is_taken_whose_loader_windows_gave_to_wsl(host: Path) -> None:
    store(host, OLD_STORE, "552.22")
    age(host, STORE, 1_000_000)
    age(host, OLD_STORE, 2_000_000)
    inventory = discover(host)
    assert said(inventory) == {("info", "wsl-several-stores", FOLDER)}
    assert OLD_STORE in inventory.findings[0].message
    assert not any(OLD_STORE in path for path in mounts(only_document(host, inventory)))


@pytest.mark.parametrize("version", ["581.15", None], ids=["one loader", "no loader"])
def test_of_two_stores_that_cannot_be_told_apart_the_newest_is_taken(host: Path, version: str | None) -> None:
    store(host, OLD_STORE)
    if version is None:
        (host / f".{LIBRARIES}/libcuda.so.1.1").unlink()
    age(host, STORE, 1_000_000)
    age(host, OLD_STORE, 2_000_000)
    inventory = discover(host)
    assert said(inventory) == {("warning", "wsl-several-stores", f"{STORES}/{OLD_STORE}")}


def test_a_store_is_known_by_its_libcuda_whatever_its_name(host: Path) -> None:
    os.rename(host / f".{FOLDER}", host / f".{STORES}/oem42.inf_amd64_1")
    assert f"{STORES}/oem42.inf_amd64_1/libcuda.so.1.1" in mounted(host)


def test_a_store_with_a_broken_libcuda_is_passed_over_for_another(host: Path) -> None:
    store(host, OLD_STORE)
    put(host / f".{STORES}/{OLD_STORE}/libcuda.so.1.1", b"rubbish")
    assert f"{FOLDER}/libcuda.so.1.1" in mounted(host)


# Hosts that cannot be served.


def test_a_host_without_a_store_is_told_what_to_install(host: Path) -> None:
    (host / f".{FOLDER}").rename(host / "away")
    error = refused(discover, host)
    assert error.kind == "driver-not-found"
    assert "libcuda.so.1.1" in error.message


@pytest.mark.parametrize("content", [b"", b"rubbish", b"\x7fELF"])
@pytest.mark.parametrize("path", [f"{FOLDER}/libcuda.so.1.1", f"{LIBRARIES}/libdxcore.so"])
def test_a_host_whose_driver_cannot_work_is_refused(host: Path, path: str, content: bytes) -> None:
    put(host / path.lstrip("/"), content)
    error = refused(discover, host)
    assert error.kind == "driver-broken"
    assert path in error.message


@pytest.mark.parametrize("kind", ["FIFO", "folder", "regular file", "dangling link", "block device"])
def test_a_host_whose_node_is_something_else_is_refused(host: Path, kind: str) -> None:
    make_any_instead(host / "dev/dxg", kind)
    assert refused(discover, host).kind == "no-nodes"


# Files that are not as they should be.


def test_a_missing_file_of_the_store_is_a_finding_if_it_matters(host: Path) -> None:
    for name in ("libnvidia-ml.so.1", "nvcubins.bin", "libnvdxgdmal.so.1"):
        (host / f".{FOLDER}/{name}").unlink()
    inventory = discover(host)
    assert said(inventory) == {("warning", "library-missing", "libnvidia-ml.so.1")}
    assert {thing.name for thing in inventory.sought if not thing.found} == {
        "libnvidia-ml.so.1",
        "nvcubins.bin",
        "libnvdxgdmal.so.1",
    }


@pytest.mark.parametrize("kind", ["FIFO", "folder", "block device", "dangling link", "looping link"])
@pytest.mark.parametrize(
    ("name", "rule"), [("libnvcuvid.so.1", "library-unusable"), ("nvcubins.bin", "file-unusable")]
)
def test_what_is_no_file_is_left_out(host: Path, kind: str, name: str, rule: str) -> None:
    make_any_instead(host / f".{FOLDER}/{name}", kind)
    assert said(discover(host)) == {("warning", rule, f"{FOLDER}/{name}")}
    assert f"{FOLDER}/{name}" not in mounted(host)


def test_every_file_may_be_empty_and_each_is_a_finding_or_the_reason(host: Path) -> None:
    paths = [Path(folder, name) for folder, _, names in os.walk(host / "usr") for name in names]
    passed_over = {"nv_disp.cat", "libigd.so"}
    for path in (path for path in paths if path.name not in passed_over):
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


def test_a_link_out_of_the_root_stays_within_it(tmp_path: Path) -> None:
    root = tmp_path / "host"
    wsl2(root)
    library(tmp_path, "/outside/libnvcuvid.so.1", "libnvcuvid.so.1", X86_64)
    link(root / f".{FOLDER}/libnvcuvid.so.1", "../" * 12 + "outside/libnvcuvid.so.1")
    assert said(discover(root)) == {("warning", "library-unusable", f"{FOLDER}/libnvcuvid.so.1")}
