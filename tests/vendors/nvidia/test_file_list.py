"""The driver's own list of its files adds files that are not in cdigen's tables, and removes no file.

The drivers in Debian's packages have no list. The lists in these tests have the format that other programs
read.
"""

import json
from pathlib import Path

import pytest
from support.hosts import driver_files
from support.hosts.driver_files import V550, put, write_library
from support.hosts.nvidia import boot, discover, places, rules

from cdigen.model.inventory import DriverFile, Inventory
from cdigen.value import replace
from cdigen.vendors.nvidia.vendor import VENDOR

pytestmark = pytest.mark.usefixtures("real_nodes")

LIST = "usr/share/nvidia/files.d/sandboxutils-filelist.json"
FOLDER = "usr/lib/x86_64-linux-gnu"


def entry(name: str, kind: str, *categories: str, **more: object) -> dict[str, object]:
    return {"name": name, "type": kind, "category": list(categories), **more}


ENTRIES = (
    entry("firmware/gsp_ga10x.bin", "FIRMWARE", "firmware"),
    entry("nvidia-modprobe", "BINARY", "modprobe"),
    entry("nvidia-smi", "BINARY", "nvml"),
    entry("nvidia-future", "BINARY", "vulkansc", optional=True),
    entry("libnvidia-new.so.2.1.0", "LIB", "vulkan"),
    entry("libnvidia-new.so.2.1.0", "LIB", "cuda"),
    entry(f"libnvidia-next.so.{V550}", "LIB", "video"),
    entry("libnvidia-other.so.3", "LIB", "something else"),
    entry("libEGL.so.1.1.0", "LIB", "glvnd"),
    entry("libnvidia-stale.so.535.261.03", "LIB", "cuda"),
    entry("nvidia_icd.json", "ICD", "vulkan"),
)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    driver_files.ubuntu(tmp_path)
    boot(tmp_path)
    for name, soname in (
        ("libnvidia-new.so.2.1.0", "libnvidia-new.so.2"),
        (f"libnvidia-next.so.{V550}", "libnvidia-next.so.1"),
        ("libnvidia-other.so.3", "libnvidia-other.so.3"),
        ("libEGL.so.1.1.0", "libEGL.so.1"),
        ("libnvidia-stale.so.535.261.03", "libnvidia-stale.so.1"),
    ):
        write_library(tmp_path / FOLDER / name, soname)
    for name in ("nvidia-modprobe", "nvidia-future"):
        put(tmp_path / "usr/bin" / name, b"\x7fELF", 0o755)
    return tmp_path


def added(before: Inventory, after: Inventory) -> dict[str, DriverFile]:
    # cdigen finds libnvidia-next without the list, by the version in the name. The list adds capabilities.
    assert {file for file in before.files if "libnvidia-next" not in file.host_path} <= set(after.files)
    new = set(after.files) - set(before.files)
    return {file.host_path.rpartition("/")[2]: file for file in new}


def test_files_that_only_the_list_has_are_added_with_their_capabilities(host: Path) -> None:
    before = discover(host)
    put(host / LIST, json.dumps(ENTRIES).encode())
    after = discover(host)
    new = added(before, after)
    assert {name: file.capabilities for name, file in new.items()} == {
        "libnvidia-new.so.2.1.0": ("compute", "display", "graphics", "video"),
        f"libnvidia-next.so.{V550}": ("video",),
        "libnvidia-other.so.3": (),
        "nvidia-future": ("display", "graphics"),
    }
    assert new["libnvidia-new.so.2.1.0"].names == ("libnvidia-new.so.2",)
    assert new["nvidia-future"].targets == ("/usr/bin/nvidia-future",)
    assert rules(after) == {"other-driver-version": "info"}


def test_files_that_do_not_belong_to_the_driver_are_not_added_even_if_the_list_has_them(host: Path) -> None:
    for name, soname in (("libc.so.6", "libc.so.6"), ("libstdc++.so.6.0.30", "libstdc++.so.6")):
        write_library(host / FOLDER / name, soname)
    put(host / "usr/bin/sh", b"\x7fELF", 0o755)
    before = discover(host)
    named = (
        entry("libc.so.6", "LIB", "cuda"),
        entry("libstdc++.so.6.0.30", "LIB", "cuda"),
        entry("../bin/sh", "BINARY", "utils"),
        entry("libnvidia-new.so.2.1.0", "LIB", "cuda"),
    )
    put(host / LIST, json.dumps(named).encode())
    assert added(before, discover(host)).keys() == {"libnvidia-new.so.2.1.0"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        "[]",
        "7",
        "[[[" * 5000,
        '["libcuda.so.1"]',
        '[{"name": "libcuda.so.1", "type": "LIB"}]',
        '[{"name": 7, "type": "LIB", "category": []}]',
        '[{"name": "../..", "type": "LIB", "category": ["cuda"]}]',
        '[{"file": "libcuda.so.1", "kind": "LIB", "category": []}]',
        '[{"name": "libc.so.6", "type": "LIB", "category": ["cuda"]}]',
        json.dumps([entry(f"libnvidia-new.so.2.1.{number}", "LIB") for number in range(5000)]),
    ],
)
def test_a_list_in_another_format_is_reported_and_changes_nothing(host: Path, text: str) -> None:
    before = discover(host)
    put(host / LIST, text.encode())
    after = discover(host)
    assert after.files == before.files
    assert rules(after) == {"file-list-unreadable": "info"}


def test_a_list_that_is_not_a_regular_file_is_reported(host: Path) -> None:
    (host / LIST).mkdir(parents=True)
    assert rules(discover(host)) == {"file-list-unreadable": "info"}


def test_the_daemon_watches_the_list_and_the_programs_in_the_search_paths(tmp_path: Path) -> None:
    watched = VENDOR.watches(places(tmp_path)).files
    assert {f"{tmp_path}/{LIST}", f"{tmp_path}/usr/bin/nvidia-smi"} <= set(watched)
    moved = replace(places(tmp_path), config_search_paths=("/own/share",), binary_search_paths=("/own/bin",))
    watched = VENDOR.watches(moved).files
    assert f"{tmp_path}/own/share/nvidia/files.d/sandboxutils-filelist.json" in watched
    assert f"{tmp_path}/own/bin/nvidia-smi" in watched
    assert not {f"{tmp_path}/{LIST}", f"{tmp_path}/usr/bin/nvidia-smi"} & set(watched)
