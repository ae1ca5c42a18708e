"""Device families other than GPUs. A family has a kind if its nodes exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.hosts.driver_files import put
from support.hosts.nvidia import delivered, make_any_instead, places
from support.hosts.nvidia_kernel import Node, control_nodes, make_node, write
from support.values.devices import inventory

from cdigen.cdi.build import build
from cdigen.cdi.rules.document_rules import check
from cdigen.model.profile import DEFAULT
from cdigen.vendors.nvidia.devices import caps
from cdigen.vendors.nvidia.devices.families import management_group, read_groups
from cdigen.vendors.nvidia.devices.nodes import NvidiaNodeReader
from cdigen.vendors.nvidia.edits import group_drafts

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Group

pytestmark = pytest.mark.usefixtures("real_nodes")

CAPS_MAJOR = 511
CHANNELS = "/dev/nvidia-caps-imex-channels/channel"
KERNEL_MINORS = "config 1\nmonitor 2\ngpu0/gi0/access 3\n"


def nodes(root: Path, *paths: str, major: int = 240, mode: int = 0o666) -> None:
    for minor, path in enumerate(paths):
        make_node(root, Node(path=path, major=major, minor=minor), mode)


def capability(root: Path, name: str, minor: int) -> None:
    """Write the kernel's file of the capability NAME for the administration of MIG."""
    text = f"DeviceFileMinor: {minor}\nDeviceFileMode: 256\nDeviceFileModify: 1\n"
    write(root / f"proc/driver/nvidia/capabilities/mig/{name}", text)


def with_mig_administration(root: Path) -> None:
    (root / "proc/driver/nvidia/capabilities/gpu0/mig").mkdir(parents=True, exist_ok=True)
    write(root / "proc/devices", f"Character devices:\n{CAPS_MAJOR} nvidia-caps\n")
    write(root / "proc/driver/nvidia-caps/mig-minors", KERNEL_MINORS)
    for name, minor in (("config", 1), ("monitor", 2)):
        capability(root, name, minor)
        make_node(root, Node(path=caps.node_path(minor), major=CAPS_MAJOR, minor=minor), 0o400)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a host whose GPU has MIG, with the two nodes for the administration of MIG."""
    with_mig_administration(tmp_path)
    return tmp_path


def read(root: Path) -> tuple[dict[str, Group], tuple[Finding, ...]]:
    where = places(root)
    groups, findings = read_groups(where, NvidiaNodeReader(where))
    assert len({group.device_class for group in groups}) == len(groups)
    return {group.device_class: group for group in groups}, findings


def offered(root: Path) -> dict[str, dict[str, list[str]]]:
    """Return the devices as class -> device -> paths of nodes. There must be no finding."""
    groups, findings = read(root)
    assert findings == ()
    return {
        name: {device.name: [node.path for node in device.nodes] for device in group.devices}
        for name, group in groups.items()
    }


def documents(root: Path) -> dict[str, Any]:
    """Return the specs of the groups by kind. All specs must be valid."""
    where = places(root)
    groups, findings = read_groups(where, NvidiaNodeReader(where))
    found = inventory("nvidia", findings=findings, groups=groups)
    made = {draft.kind: build(delivered(draft)) for draft in group_drafts(found, (DEFAULT,))}
    assert [finding for document in made.values() for finding in check(document)] == []
    return made


SWITCHES = ("/dev/nvidia-nvswitchctl", *(f"/dev/nvidia-nvswitch{number}" for number in range(12)))
ADAPTERS = ("/dev/infiniband/uverbs0", "/dev/infiniband/uverbs10", "/dev/infiniband/rdma_cm")
NO_ADAPTERS = ("/dev/infiniband/issm0", "/dev/infiniband/umad0")


@pytest.mark.parametrize(
    ("family", "members", "others"),
    [
        ("", (), ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/null")),
        ("nvswitch", SWITCHES, ()),
        ("mofed", ADAPTERS, NO_ADAPTERS),
        ("", (), ("/dev/infiniband/rdma_cm",)),
        ("gdrcopy", ("/dev/gdrdrv",), ()),
    ],
    ids=["no family", "NVSwitches of a DGX", "adapters of MOFED", "rdma_cm without an adapter", "GDRCopy"],
)
def test_the_nodes_of_a_family_are_one_device(
    tmp_path: Path, family: str, members: tuple[str, ...], others: tuple[str, ...]
) -> None:
    nodes(tmp_path, *members, *others)
    assert offered(tmp_path) == ({family: {"all": list(members)}} if family else {})


def test_a_gb200_offers_its_imex_channels_by_number_in_natural_order(tmp_path: Path) -> None:
    nodes(tmp_path, *(f"{CHANNELS}{number}" for number in (0, 2, 10, 2047)))
    wanted = {str(number): [f"{CHANNELS}{number}"] for number in (0, 2, 10, 2047)}
    assert offered(tmp_path) == {"imex-channel": wanted}
    assert list(offered(tmp_path)["imex-channel"]) == ["0", "2", "10", "2047"]


def test_every_imex_channel_of_a_rack_is_a_device_and_is_in_the_device_all(tmp_path: Path) -> None:
    nodes(tmp_path, *(f"{CHANNELS}{number}" for number in range(300)))
    document = documents(tmp_path)["nvidia.com/imex-channel"]
    assert [device["name"] for device in document["devices"]] == [*map(str, range(300)), "all"]
    assert len(document["devices"][-1]["containerEdits"]["deviceNodes"]) == 300


def test_the_nodes_of_gds_are_offered_with_the_files_of_libcufile(tmp_path: Path) -> None:
    nodes(tmp_path, *(f"/dev/nvidia-fs{number}" for number in range(16)))
    put(tmp_path / "etc/cufile.json", b"{}\n")
    (tmp_path / "run/udev/data").mkdir(parents=True)
    document = documents(tmp_path)["nvidia.com/gds"]
    (device,) = document["devices"]
    assert device["name"] == "all"
    assert len(device["containerEdits"]["deviceNodes"]) == 16
    mounts = document["containerEdits"]["mounts"]
    assert [(mount["hostPath"], mount["containerPath"]) for mount in mounts] == [
        (path, path) for path in ("/etc/cufile.json", "/run/udev")
    ]
    assert all("ro" in mount["options"] for mount in mounts)


def test_gds_is_offered_without_the_files_that_a_host_lacks(tmp_path: Path) -> None:
    nodes(tmp_path, "/dev/nvidia-fs0")
    groups, findings = read(tmp_path)
    assert groups["gds"].files == ()
    assert findings == ()


@pytest.mark.parametrize("path", ["etc/cufile.json", "run/udev"])
def test_gds_is_offered_without_a_file_that_is_empty_or_of_another_type(tmp_path: Path, path: str) -> None:
    nodes(tmp_path, "/dev/nvidia-fs0")
    put(tmp_path / path)
    groups, findings = read(tmp_path)
    assert groups["gds"].files == ()
    assert [(finding.severity, finding.rule, finding.path, finding.hint) for finding in findings] == [
        ("warning", "file-unusable", f"/{path}", "see 'gdscheck -p'")
    ]


def test_gds_uses_the_drivers_configuration_instead_of_the_hosts(tmp_path: Path) -> None:
    nodes(tmp_path, "/dev/nvidia-fs0")
    put(tmp_path / "etc/cufile.json", b"{}")
    put(tmp_path / "run/nvidia/driver/etc/cufile.json", b"{}")
    where = places(tmp_path, driver="/run/nvidia/driver")
    (group,), _ = read_groups(where, NvidiaNodeReader(where))
    assert [(file.host_path, file.targets) for file in group.files] == [
        ("/run/nvidia/driver/etc/cufile.json", ("/etc/cufile.json",))
    ]


def test_each_group_has_exactly_one_device_all(tmp_path: Path) -> None:
    nodes(tmp_path, "/dev/gdrdrv", f"{CHANNELS}0")
    made = documents(tmp_path)
    assert [device["name"] for device in made["nvidia.com/gdrcopy"]["devices"]] == ["all"]
    assert [device["name"] for device in made["nvidia.com/imex-channel"]["devices"]] == ["0", "all"]


def test_a_spec_of_a_group_sets_nvidia_visible_devices_to_void(tmp_path: Path) -> None:
    nodes(tmp_path, "/dev/gdrdrv")
    assert documents(tmp_path)["nvidia.com/gdrcopy"]["containerEdits"] == {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"]
    }


@pytest.mark.parametrize(
    "name", ["channel", "channelx", "channel-1", "channel01", "channel12345678", "channel٣", "xchannel0"]
)
def test_a_file_whose_name_is_not_a_channel_name_is_skipped(tmp_path: Path, name: str) -> None:
    nodes(tmp_path, f"/dev/nvidia-caps-imex-channels/{name}")
    assert offered(tmp_path) == {}


@pytest.mark.parametrize(
    "kind", ["FIFO", "folder", "block device", "regular file", "dangling link", "looping link"]
)
@pytest.mark.parametrize(
    ("path", "other"),
    [
        (f"{CHANNELS}1", f"{CHANNELS}0"),
        ("/dev/nvidia-nvswitch1", "/dev/nvidia-nvswitch0"),
        ("/dev/nvidia-fs1", "/dev/nvidia-fs0"),
        ("/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"),
        ("/dev/gdrdrv", "/dev/nvidia-fs0"),
    ],
)
def test_a_file_that_is_not_a_node_is_left_out_and_other_nodes_are_offered(
    tmp_path: Path, path: str, other: str, kind: str
) -> None:
    nodes(tmp_path, other)
    make_any_instead(tmp_path / path.lstrip("/"), kind)
    groups, findings = read(tmp_path)
    served = [node.path for group in groups.values() for device in group.devices for node in device.nodes]
    assert served == [other]
    assert [(finding.severity, finding.rule, finding.path) for finding in findings] == [
        ("warning", "family-node-unusable", path)
    ]


def test_a_node_behind_a_link_has_the_target_as_its_host_path(tmp_path: Path) -> None:
    nodes(tmp_path, "/dev/gpu/gdrdrv")
    (tmp_path / "dev/gdrdrv").symlink_to("/dev/gpu/gdrdrv")
    groups, _ = read(tmp_path)
    (node,) = groups["gdrcopy"].devices[0].nodes
    assert (node.path, node.host_path) == ("/dev/gdrdrv", "/dev/gpu/gdrdrv")


def test_nodes_are_searched_below_the_dev_root(tmp_path: Path) -> None:
    nodes(tmp_path / "driver", "/dev/gdrdrv")
    where = places(tmp_path, dev="/driver")
    (group,), _ = read_groups(where, NvidiaNodeReader(where))
    (node,) = group.devices[0].nodes
    assert (node.path, node.host_path) == ("/dev/gdrdrv", "/driver/dev/gdrdrv")


def test_the_kind_mig_has_two_devices_for_the_administration(root: Path) -> None:
    wanted = {"mig-config": [caps.node_path(1)], "mig-monitor": [caps.node_path(2)]}
    assert offered(root) == {"mig": wanted}
    names = [device["name"] for device in documents(root)["nvidia.com/mig"]["devices"]]
    assert names == ["mig-config", "mig-monitor", "all"]


def test_without_a_gpu_with_mig_the_kind_mig_does_not_exist(root: Path) -> None:
    (root / "proc/driver/nvidia/capabilities/gpu0/mig").rmdir()
    assert offered(root) == {}


@pytest.mark.parametrize("only", ["capabilities", "mig-minors"])
def test_each_of_the_two_kernel_files_is_sufficient_for_the_minors(root: Path, only: str) -> None:
    other = {"capabilities": "nvidia-caps/mig-minors", "mig-minors": "nvidia/capabilities/mig"}[only]
    (root / "proc/driver" / other).rename(root / "away")
    assert offered(root)["mig"].keys() == {"mig-config", "mig-monitor"}


def test_a_device_without_its_administration_node_is_left_out_and_the_node_can_be_created(
    root: Path,
) -> None:
    (root / f".{caps.node_path(1)}").unlink()
    where = places(root)
    reader = NvidiaNodeReader(where)
    (group,), findings = read_groups(where, reader)
    assert [device.name for device in group.devices] == ["mig-monitor"]
    assert [(finding.severity, finding.rule, finding.path) for finding in findings] == [
        ("info", "mig-admin-node-missing", "mig-config")
    ]
    assert [(node.path, node.major, node.minor, node.mode) for node in reader.missing] == [
        (caps.node_path(1), CAPS_MAJOR, 1, 0o400)
    ]


def test_an_administration_node_with_another_minor_is_not_used(root: Path) -> None:
    make_node(root, Node(path=caps.node_path(2), major=CAPS_MAJOR, minor=9))
    groups, findings = read(root)
    assert [device.name for device in groups["mig"].devices] == ["mig-config"]
    assert [finding.rule for finding in findings] == ["mig-admin-node-missing"]


def test_a_capability_with_different_minors_in_two_kernel_files_has_no_device(root: Path) -> None:
    capability(root, "config", 7)
    groups, findings = read(root)
    assert [device.name for device in groups["mig"].devices] == ["mig-monitor"]
    assert "the minor number is 7" in findings[0].message


@pytest.mark.parametrize(
    "content",
    ["", "rubbish", "DeviceFileMinor: many\n", "DeviceFileMinor: -1\n", f"DeviceFileMinor: {1 << 20}\n"],
)
def test_a_capability_without_a_minor_has_no_device_and_a_finding(root: Path, content: str) -> None:
    (root / "proc/driver/nvidia-caps/mig-minors").unlink()
    write(root / "proc/driver/nvidia/capabilities/mig/config", content)
    groups, findings = read(root)
    assert [device.name for device in groups["mig"].devices] == ["mig-monitor"]
    (finding,) = findings
    assert finding.path == "mig-config"
    assert "/mig/config contains no minor number" in finding.message


def test_the_group_management_has_every_node_except_nodes_with_a_separate_kind(tmp_path: Path) -> None:
    management = [
        *("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia10"),
        *(node.path for node in control_nodes()),
        *(caps.node_path(1), caps.node_path(2), f"{CHANNELS}0"),
    ]
    others = ("/dev/nvidia-fs0", "/dev/nvidia-nvswitch0", "/dev/nvidia-nvswitchctl", "/dev/nvidia-nvlink")
    nodes(tmp_path, *management, *others, "/dev/gdrdrv", "/dev/null")
    put(tmp_path / "dev/nvidia-notes.txt", b"no node")
    where = places(tmp_path)
    group = management_group(where, NvidiaNodeReader(where))
    assert group is not None
    assert group.device_class == "management"
    (device,) = group.devices
    assert device.name == "all"
    assert {node.path for node in device.nodes} == set(management)
    paths = [node.path for node in device.nodes]
    assert paths.index("/dev/nvidia1") < paths.index("/dev/nvidia10")


def test_a_host_without_nodes_has_no_management_group(tmp_path: Path) -> None:
    where = places(tmp_path)
    assert management_group(where, NvidiaNodeReader(where)) is None
