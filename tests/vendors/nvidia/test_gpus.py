"""The GPUs of a host: their order, their names, and the findings about unusable GPUs."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.hosts.driver_files import link
from support.hosts.nvidia import boot, make_any_instead, make_instead, places
from support.hosts.nvidia_kernel import (
    Gpu,
    Node,
    example_gpus,
    information_text,
    make_node,
    write,
    write_driver,
    write_pci_device,
)

from cdigen.model.findings import Finding
from cdigen.model.inventory import Accelerator
from cdigen.vendors.nvidia.devices.gpus import NvidiaGpuReader
from cdigen.vendors.nvidia.devices.nodes import NvidiaNodeReader
from cdigen.vendors.nvidia.files.tables import GRAPHICS

pytestmark = pytest.mark.usefixtures("real_nodes")

PROC = "proc/driver/nvidia/gpus"
UNKNOWN = "GPU-????????-????-????-????-????????????"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a host with one GPU."""
    boot(tmp_path, 1)
    return tmp_path


def read(root: Path) -> tuple[tuple[Accelerator, ...], tuple[Finding, ...]]:
    reader = NvidiaGpuReader(places(root), NvidiaNodeReader(places(root)))
    return reader.read(), reader.findings


def usable(root: Path) -> list[int]:
    return [gpu.index for gpu in read(root)[0] if gpu.usable]


def problems(root: Path) -> list[tuple[str, str]]:
    return [(finding.severity, finding.rule) for finding in read(root)[1]]


def information(root: Path, gpu: Gpu) -> Path:
    return root / PROC / gpu.bdf / "information"


def test_a_gpu_is_read_as_the_driver_describes_it(tmp_path: Path) -> None:
    (gpu,) = boot(tmp_path, 1)
    ((found,), findings) = read(tmp_path)
    assert findings == ()
    assert (found.index, found.minor, found.uuid) == (0, 0, gpu.uuid)
    assert (found.address, found.model) == (gpu.bdf, gpu.model)
    assert (found.usable, found.problem) == (True, "")


def test_a_gpu_has_its_nvidia_node_and_its_drm_nodes(tmp_path: Path) -> None:
    (gpu,) = boot(tmp_path, 1)
    ((found,), _) = read(tmp_path)
    assert [
        (node.path, node.role, node.major, node.minor) for node in found.nodes if "by-path" not in node.path
    ] == [
        ("/dev/nvidia0", "gpu", 195, 0),
        (f"/dev/dri/card{gpu.card}", "card", 226, gpu.card),
        (f"/dev/dri/renderD{gpu.render}", "render", 226, gpu.render),
    ]


def test_a_node_has_the_mode_and_the_owner_of_the_hosts_node(root: Path) -> None:
    (root / "dev/nvidia0").chmod(0o640)
    os.chown(root / "dev/nvidia0", 3, 44)
    node = read(root)[0][0].nodes[0]
    assert (node.mode, node.uid, node.gid) == (0o640, 3, 44)


def test_a_node_that_is_a_link_has_the_target_as_its_host_path(root: Path) -> None:
    (root / "dev/char").mkdir()
    (root / "dev/nvidia0").rename(root / "dev/char/195:0")
    link(root / "dev/nvidia0", "/dev/char/195:0")
    node = read(root)[0][0].nodes[0]
    assert (node.path, node.host_path) == ("/dev/nvidia0", "/dev/char/195:0")


def test_gpus_are_numbered_by_address_and_not_by_minor(tmp_path: Path) -> None:
    one, two = example_gpus(2)
    boot(tmp_path, (replace(one, minor=1), replace(two, minor=0)))
    assert [(gpu.index, gpu.address, gpu.minor) for gpu in read(tmp_path)[0]] == [
        (0, one.bdf, 1),
        (1, two.bdf, 0),
    ]


def test_gpus_are_sorted_by_the_numbers_in_their_addresses(tmp_path: Path) -> None:
    addresses = [
        "0000:0a:00.0",
        "0000:9f:00.0",
        "000a:01:00.0",
        "ffff:01:00.0",
        "10000:01:00.0",
        "10000:e1:00.0",
    ]
    some = example_gpus(len(addresses))
    boot(tmp_path, tuple(replace(gpu, bdf=bdf) for gpu, bdf in zip(some, reversed(addresses), strict=True)))
    found, findings = read(tmp_path)
    assert [gpu.address for gpu in found] == addresses
    assert findings == ()


@pytest.mark.parametrize(
    "uuid", [UNKNOWN, "", "GPU-", "GPU-123", "N/A", "GPU-5a1c7e42-8f0e-4d3b-9c52-7b6d1e0fzzzz"]
)
def test_a_gpu_without_a_known_uuid_is_offered_by_its_index(tmp_path: Path, uuid: str) -> None:
    boot(tmp_path, (replace(example_gpus(1)[0], uuid=uuid),))
    assert [(gpu.uuid, gpu.usable) for gpu in read(tmp_path)[0]] == [(None, True)]
    assert problems(tmp_path) == [("warning", "uuid-unknown")]


def test_a_uuid_in_capital_letters_is_converted_to_nvidias_format(tmp_path: Path) -> None:
    (gpu,) = example_gpus(1)
    boot(tmp_path, (replace(gpu, uuid=gpu.uuid.upper()),))
    assert read(tmp_path)[0][0].uuid == gpu.uuid


def test_an_excluded_gpu_has_no_index_and_is_reported(tmp_path: Path) -> None:
    one, two, three = example_gpus(3)
    boot(tmp_path, (one, replace(two, excluded=True), three))
    assert [(gpu.index, gpu.address) for gpu in read(tmp_path)[0]] == [(0, one.bdf), (1, three.bdf)]
    assert problems(tmp_path) == [("info", "gpu-excluded")]
    assert read(tmp_path)[1][0].path == two.bdf


def test_gpus_without_a_node_are_unusable_and_other_gpus_keep_their_index(tmp_path: Path) -> None:
    for gpu in boot(tmp_path, 8)[::2]:
        (tmp_path / f"dev/nvidia{gpu.minor}").unlink()
    assert usable(tmp_path) == [1, 3, 5, 7]
    assert problems(tmp_path) == [("error", "gpu-node-missing")] * 4


@pytest.mark.parametrize("kind", ["regular file", "folder", "FIFO", "block device"])
def test_a_node_that_is_not_a_character_device_is_reported_with_its_type(root: Path, kind: str) -> None:
    node = root / "dev/nvidia0"
    make_any_instead(node, kind)
    assert usable(root) == []
    assert f"/dev/nvidia0 is a {kind}, not a character device" in read(root)[1][0].message


def test_a_gpu_has_udevs_names_of_its_drm_nodes(tmp_path: Path) -> None:
    (gpu,) = boot(tmp_path, 1)
    link(tmp_path / "dev/dri/by-path/pci-0000:00:02.0-render", "../renderD999")
    ((found,), findings) = read(tmp_path)
    assert findings == ()
    assert [
        (node.path, node.host_path, node.capabilities) for node in found.nodes if "by-path" in node.path
    ] == [
        (f"/dev/dri/by-path/pci-{gpu.bdf}-card", f"/dev/dri/card{gpu.card}", GRAPHICS),
        (f"/dev/dri/by-path/pci-{gpu.bdf}-render", f"/dev/dri/renderD{gpu.render}", GRAPHICS),
    ]


def test_a_missing_drm_node_affects_only_graphics(tmp_path: Path) -> None:
    (gpu,) = boot(tmp_path, 1)
    (tmp_path / f"dev/dri/renderD{gpu.render}").unlink()
    assert usable(tmp_path) == [0]
    assert problems(tmp_path) == [("warning", "drm-node-missing")]


TEXT = information_text(example_gpus(2)[1], "550.163.01").encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        TEXT[: TEXT.index(b"Device Minor")],
        TEXT[: TEXT.index(b"Device Minor") + 8],
        bytes(range(256)),
        TEXT + b"x" * (1 << 20),
        TEXT.replace(b"Device Minor: \t 1", b"Device Minor: \t one"),
        TEXT.replace(b"Device Minor: \t 1", b"Device Minor: \t -1"),
        TEXT.replace(b"Device Minor: \t 1", b"Device Minor: \t 1048576"),
        TEXT.replace(b"Device Minor: \t 1", "Device Minor: \t ²".encode()),
    ],
    ids=[
        "empty",
        "truncated",
        "cut in a word",
        "binary",
        "huge",
        "word",
        "negative",
        "too high",
        "superscript",
    ],
)
def test_invalid_information_of_a_gpu_does_not_affect_other_gpus(tmp_path: Path, content: bytes) -> None:
    broken = boot(tmp_path, 3)[1]
    information(tmp_path, broken).write_bytes(content)
    assert usable(tmp_path) == [0, 2]
    assert problems(tmp_path) == [("error", "gpu-information-unreadable")]
    assert broken.bdf in read(tmp_path)[1][0].message
    assert read(tmp_path)[1][0].message.isprintable()


def test_missing_information_of_a_gpu_does_not_affect_other_gpus(tmp_path: Path) -> None:
    information(tmp_path, boot(tmp_path, 3)[1]).unlink()
    assert usable(tmp_path) == [0, 2]
    assert problems(tmp_path) == [("error", "gpu-information-unreadable")]


@pytest.mark.parametrize("kind", ["FIFO", "folder", "looping link"])
def test_an_information_file_of_another_type_does_not_affect_other_gpus(tmp_path: Path, kind: str) -> None:
    path = information(tmp_path, boot(tmp_path, 3)[1])
    make_instead(path, kind)
    assert usable(tmp_path) == [0, 2]


def test_the_second_gpu_with_the_same_minor_is_unusable(tmp_path: Path) -> None:
    one, two = example_gpus(2)
    boot(tmp_path, (one, replace(two, minor=one.minor)))
    found, findings = read(tmp_path)
    assert [(gpu.usable, bool(gpu.nodes)) for gpu in found] == [(True, True), (False, False)]
    assert found[1].problem == "its minor number 0 is also the number of GPU 0"
    assert [(finding.severity, finding.rule) for finding in findings] == [("error", "gpu-repeated")]


def test_the_second_gpu_with_the_same_uuid_has_no_uuid(tmp_path: Path) -> None:
    one, two = example_gpus(2)
    boot(tmp_path, (one, replace(two, uuid=one.uuid)))
    assert [(gpu.uuid, gpu.usable) for gpu in read(tmp_path)[0]] == [(one.uuid, True), (None, True)]
    assert problems(tmp_path) == [("error", "gpu-repeated")]


def test_a_gpu_of_another_kernel_driver_is_reported_and_not_offered(root: Path) -> None:
    vfio_gpu = example_gpus(2)[1]
    write_pci_device(root / "sys", vfio_gpu)
    link(root / f"sys/bus/pci/devices/{vfio_gpu.bdf}/driver", "../../../bus/pci/drivers/vfio-pci")
    (root / "sys/bus/pci/drivers/vfio-pci").mkdir()
    assert usable(root) == [0]
    assert problems(root) == [("info", "gpu-not-bound")]
    assert f"{vfio_gpu.bdf} is bound to the driver vfio-pci" in read(root)[1][0].message


def test_a_gpu_without_any_kernel_driver_is_reported(root: Path) -> None:
    unbound = example_gpus(2)[1]
    write_pci_device(root / "sys", unbound)
    (root / f"sys/bus/pci/devices/{unbound.bdf}/driver").unlink()
    assert problems(root) == [("warning", "gpu-not-bound")]
    assert "is bound to no driver" in read(root)[1][0].message


@pytest.mark.parametrize("device_id", [0x1B80, 0x1DB1, 0x1E02, 0x2204])
@pytest.mark.parametrize("open_module", [False, True])
def test_the_hint_names_the_module_that_supports_an_old_gpu(
    root: Path, device_id: int, *, open_module: bool
) -> None:
    unbound = replace(example_gpus(2)[1], device_id=device_id)
    write_pci_device(root / "sys", unbound)
    (root / f"sys/bus/pci/devices/{unbound.bdf}/driver").unlink()
    write_driver(root / "proc/driver/nvidia", "580.95.05", open_module=open_module)
    (finding,) = read(root)[1]
    needs_other_module = open_module and device_id < 0x1E02
    assert ("install the proprietary module" in finding.hint) == needs_other_module


@pytest.mark.parametrize(
    "name",
    [b"not-an-address", b"0000:1b:00", b"0000:1g:00.0", b"two\nlines", b"\xff\xfe", b"0000:1b:00.0 ", b"..."],
)
def test_a_folder_whose_name_is_not_a_pci_address_is_skipped(root: Path, name: bytes) -> None:
    os.mkdir(os.fsencode(root / PROC) + b"/" + name)
    assert usable(root) == [0]
    assert problems(root) == [("warning", "gpu-address-unknown")]
    assert read(root)[1][0].line().isprintable()


def test_a_gpu_that_fell_off_the_bus_is_reported_and_other_gpus_keep_their_index(tmp_path: Path) -> None:
    lost = boot(tmp_path, 3)[1]
    shutil.rmtree(tmp_path / PROC / lost.bdf)
    found, findings = read(tmp_path)
    assert [(gpu.index, gpu.address, gpu.usable) for gpu in found][1] == (1, lost.bdf, False)
    assert usable(tmp_path) == [0, 2]
    assert [(finding.severity, finding.rule, finding.path) for finding in findings] == [
        ("error", "gpu-lost", lost.bdf)
    ]


def test_a_pci_function_of_another_class_is_not_reported_as_a_lost_gpu(root: Path) -> None:
    write_pci_device(root / "sys", replace(example_gpus(2)[1], pci_class=0x040300))
    assert read(root)[1] == ()


def test_gpus_that_cannot_be_listed_are_not_reported_as_lost(tmp_path: Path) -> None:
    boot(tmp_path, 2)
    shutil.rmtree(tmp_path / PROC)
    (tmp_path / PROC).symlink_to("gpus")
    assert usable(tmp_path) == []
    assert problems(tmp_path) == [("error", "gpu-information-unreadable")]
    assert "Too many levels of symbolic links" in read(tmp_path)[0][0].problem


def test_a_node_with_another_major_is_not_used(root: Path) -> None:
    make_node(root, Node(path="/dev/nvidia0", major=1, minor=0))
    assert usable(root) == []
    assert "/dev/nvidia0 has the numbers 1:0, but the kernel's numbers are 195:0" in read(root)[1][0].message


def test_an_unknown_major_is_not_compared(root: Path) -> None:
    (root / "proc/devices").unlink()
    make_node(root, Node(path="/dev/nvidia0", major=240, minor=0))
    assert usable(root) == [0]


def test_a_drm_node_with_other_numbers_affects_only_graphics(tmp_path: Path) -> None:
    (gpu,) = boot(tmp_path, 1)
    make_node(tmp_path, Node(path=f"/dev/dri/card{gpu.card}", major=226, minor=0))
    ((found,), (finding,)) = read(tmp_path)
    assert [node.role for node in found.nodes] == ["gpu", "render", "render"]
    assert finding.rule == "drm-node-missing"
    assert "has the numbers 226:0, but the kernel's numbers are 226:1" in finding.message


def test_a_control_node_with_another_major_is_not_used(root: Path) -> None:
    make_node(root, Node(path="/dev/nvidia-uvm", major=511, minor=0))
    reader = NvidiaGpuReader(places(root), NvidiaNodeReader(places(root)))
    assert "/dev/nvidia-uvm" not in [node.path for node in reader.read_control_nodes()]
    assert [finding.rule for finding in reader.findings] == ["control-node-missing"]


@pytest.mark.parametrize("path", ["proc/devices", "proc/driver/nvidia/params"])
@pytest.mark.parametrize("content", ["", "rubbish\n", "\0"])
def test_a_kernel_file_without_usable_content_is_reported(root: Path, path: str, content: str) -> None:
    write(root / path, content)
    assert usable(root) == [0]
    (finding,) = read(root)[1]
    assert (finding.severity, finding.rule, finding.path) == ("warning", "kernel-file-unusable", f"/{path}")


def test_a_created_node_is_never_executable_or_setuid(root: Path) -> None:
    (root / "dev/nvidia0").unlink()
    path = root / "proc/driver/nvidia/params"
    text = path.read_text().replace("DeviceFileMode: 438", f"DeviceFileMode: {0o4777}")
    write(path, text.replace("DeviceFileUID: 0", "DeviceFileUID: 9999999999"))
    nodes = NvidiaNodeReader(places(root))
    NvidiaGpuReader(places(root), nodes).read()
    assert [(node.mode, node.uid) for node in nodes.missing] == [(0o666, 0xFFFFFFFE)]


def test_a_gpu_with_a_domain_of_eight_digits_is_not_reported_as_lost(tmp_path: Path) -> None:
    boot(tmp_path, (replace(example_gpus(1)[0], bdf="00000002:02:00.0"),))
    assert [(gpu.address, gpu.usable) for gpu in read(tmp_path)[0]] == [("0002:02:00.0", True)]
    assert problems(tmp_path) == []


def test_a_gpu_that_is_not_in_sys_is_reported_and_offered(tmp_path: Path) -> None:
    boot(tmp_path, 2)
    address = example_gpus(2)[1].bdf
    (tmp_path / f"sys/bus/pci/devices/{address}").unlink()
    assert usable(tmp_path) == [0, 1]
    (finding,) = read(tmp_path)[1]
    assert (finding.severity, finding.rule, finding.path) == ("warning", "gpu-without-device", address)
