"""DRM minors: the cards, render nodes and accelerator nodes of a device, and their names in /sys."""

import os
from pathlib import Path

import pytest
from support.hosts.driver_files import put

from cdigen.host.root import Root
from cdigen.vendors.kernel.drm import devices as drm
from cdigen.vendors.kernel.nodes import NodeReader

FOLDER = "/sys/devices/platform/amdgpu_xcp.7"


def minors(root: Path, subsystem: str = "drm") -> tuple[drm.DrmMinor, ...]:
    return drm.minors(Root(str(root)), FOLDER, subsystem)


def lay(root: Path, name: str, numbers: bytes = b"226:1\n", subsystem: str = "drm") -> None:
    put(root / FOLDER.lstrip("/") / subsystem / name / "dev", numbers)


def test_the_minors_of_a_device_are_its_cards_and_render_nodes(tmp_path: Path) -> None:
    for name in ("renderD129", "card1", "controlD64", "card1-HDMI-A-1", "renderDx", "card", "card²"):
        lay(tmp_path, name)
    os.mkdir(os.fsencode(tmp_path) + FOLDER.encode() + b"/drm/card\xff")
    found = [(minor.name, minor.role, minor.number, minor.path) for minor in minors(tmp_path)]
    assert found == [
        ("card1", "card", 1, "/dev/dri/card1"),
        ("renderD129", "render", 129, "/dev/dri/renderD129"),
    ]


def test_the_nodes_of_accelerators_that_are_not_gpus_are_in_the_folder_accel(tmp_path: Path) -> None:
    for name in ("accel10", "accel2", "accel_controlD2"):
        lay(tmp_path, name, b"261:2\n", "accel")
    found = [(minor.path, minor.numbers) for minor in minors(tmp_path, "accel")]
    assert found == [("/dev/accel/accel2", (261, 2)), ("/dev/accel/accel10", (261, 2))]
    assert minors(tmp_path) == ()


def test_a_removed_device_has_no_minors(tmp_path: Path) -> None:
    assert minors(tmp_path) == ()


@pytest.mark.parametrize(
    ("content", "numbers"),
    [(b"226:1\n", (226, 1)), (b"", None), (b"226\n", None), (b"226:-1\n", None), ("226:²".encode(), None)],
)
def test_the_numbers_of_a_node_are_read_from_sysfs(
    tmp_path: Path, content: bytes, numbers: tuple[int, int] | None
) -> None:
    lay(tmp_path, "card9", content)
    assert minors(tmp_path)[0].numbers == numbers


def test_a_missing_node_is_recorded_with_the_kernels_numbers(tmp_path: Path) -> None:
    lay(tmp_path, "renderD128", b"226:128\n")
    reader = NodeReader(Root(str(tmp_path)), drm.NODE_CREATION)
    node, problem = drm.read_node(reader, minors(tmp_path)[0])
    assert (node, problem) == (None, "/dev/dri/renderD128 does not exist")
    assert [(made.path, made.major, made.minor, made.mode) for made in reader.missing] == [
        ("/dev/dri/renderD128", 226, 128, 0o660)
    ]


def test_a_regular_file_instead_of_a_node_is_recorded_as_wrong(tmp_path: Path) -> None:
    lay(tmp_path, "renderD128", b"226:128\n")
    put(tmp_path / "dev/dri/renderD128")
    reader = NodeReader(Root(str(tmp_path)), drm.NODE_CREATION)
    assert drm.read_node(reader, minors(tmp_path)[0])[1] == (
        "/dev/dri/renderD128 is a regular file, not a character device"
    )
    assert [wrong.path for wrong in reader.wrong] == ["/dev/dri/renderD128"]
