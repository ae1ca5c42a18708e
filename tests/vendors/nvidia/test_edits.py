"""The drafts of specs from an inventory of NVIDIA's devices."""

import socket
import subprocess
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.abilities import cannot_run
from support.hosts.nvidia import delivered
from support.values import devices as values
from support.values.inventories import CAPABILITIES, hosts

from cdigen.cdi.build import build
from cdigen.cdi.render import render
from cdigen.model.cdi import ContainerEdits, Draft
from cdigen.model.inventory import Accelerator, DriverFile, Group, GroupDevice, HostNode, Inventory
from cdigen.model.profile import DEFAULT, Profile
from cdigen.value import replace
from cdigen.vendors.nvidia.edits import FILES_ALONE, drafts, group_drafts
from cdigen.vendors.nvidia.vendor import VENDOR

DEBIAN, RED_HAT = "/usr/lib/x86_64-linux-gnu", "/usr/lib64"


def node(path: str, *capabilities: str, host_path: str = "", mode: int = 0o666) -> HostNode:
    return values.host_node(path, host_path=host_path or path, mode=mode, capabilities=capabilities)


def gpu(index: int, uuid: str | None = None, *, usable: bool = True) -> Accelerator:
    own = (node(f"/dev/nvidia{index}"), node(f"/dev/dri/card{index}", "graphics")) if usable else ()
    return values.accelerator(index, "0000:01:00.0", uuid=uuid, minor=index, nodes=own, usable=usable)


def library(name: str, *capabilities: str) -> DriverFile:
    return DriverFile(kind="library", host_path=f"/host/{name}", capabilities=capabilities, names=(name,))


def inventory(
    *gpus: Accelerator,
    nodes: tuple[HostNode, ...] = (),
    files: tuple[DriverFile, ...] = (),
    machine: str = "x86_64",
) -> Inventory:
    driver = replace(values.DRIVER, architecture=machine)
    return values.inventory("nvidia", *gpus, driver=driver, nodes=nodes, files=files)


def draft(host: Inventory, *capabilities: str) -> Draft:
    (made,) = drafts(host, (Profile(name="p", device_class="gpu", capabilities=capabilities),))
    return delivered(made)


def devices(made: Draft) -> dict[str, list[str]]:
    """Return name -> paths of nodes, for each CDI device except the device `none`."""
    gpus = [device for device in made.devices if device != FILES_ALONE]
    return {device.name: [node.path for node in device.edits.device_nodes] for device in gpus}


def mounts(made: Draft) -> dict[str, str]:
    return {mount.container_path: mount.host_path for mount in made.edits.mounts}


def test_the_device_none_has_the_drivers_files_without_a_gpu() -> None:
    made = draft(inventory(gpu(0), nodes=(node("/dev/ctl"),), files=(library("libcuda.so.1"),)))
    (alone,) = [device for device in made.devices if device.name == "none"]
    assert alone.edits == ContainerEdits(env=("NVIDIA_VISIBLE_DEVICES=void",))
    document = build(made)
    assert [device["name"] for device in document["devices"]] == ["0", "none", "all"]
    assert "env" not in document["devices"][-1]["containerEdits"]


def test_a_host_without_a_usable_gpu_has_no_device_none() -> None:
    assert draft(inventory(replace(gpu(0), usable=False))).devices == ()


def test_a_gpu_is_named_by_its_index_and_its_uuid() -> None:
    own = ["/dev/nvidia0", "/dev/dri/card0"]
    assert devices(draft(inventory(gpu(0, "GPU-a")))) == {"0": own, "GPU-a": own}


def test_a_gpu_without_a_uuid_is_named_only_by_its_index() -> None:
    assert list(devices(draft(inventory(gpu(0), gpu(1, "GPU-b"))))) == ["0", "1", "GPU-b"]


def test_an_unusable_gpu_has_no_device_and_does_not_change_other_names() -> None:
    assert list(devices(draft(inventory(gpu(0, "GPU-a", usable=False), gpu(1))))) == ["1"]


def test_a_host_whose_gpus_are_all_unusable_has_no_device() -> None:
    assert draft(inventory(gpu(0, usable=False))).devices == ()


def test_the_spec_sets_nvidia_visible_devices_to_void() -> None:
    assert draft(inventory(gpu(0))).edits.env == ("NVIDIA_VISIBLE_DEVICES=void",)


def test_a_host_path_is_written_only_if_it_differs_from_the_container_path() -> None:
    made = draft(inventory(nodes=(node("/dev/a"), node("/dev/b", host_path="/srv/dev/b", mode=0o640))))
    assert [(n.path, n.host_path, n.file_mode) for n in made.edits.device_nodes] == [
        ("/dev/a", None, 0o666),
        ("/dev/b", "/srv/dev/b", 0o640),
    ]


def test_libraries_are_mounted_into_the_folders_of_debians_and_red_hats_loaders() -> None:
    assert mounts(draft(inventory(files=(library("libcuda.so.1"),)))) == {
        f"{DEBIAN}/libcuda.so.1": "/host/libcuda.so.1",
        f"{RED_HAT}/libcuda.so.1": "/host/libcuda.so.1",
    }


def test_libraries_on_arm_are_mounted_into_the_folders_of_the_loaders_for_arm() -> None:
    made = draft(inventory(files=(library("libcuda.so.1"),), machine="aarch64"))
    assert mounts(made).keys() == {"/usr/lib/aarch64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1"}


def test_a_file_with_fixed_target_paths_is_mounted_only_at_these_paths() -> None:
    file = DriverFile(kind="binary", host_path="/opt/smi", capabilities=(), targets=("/usr/bin/nvidia-smi",))
    assert mounts(draft(inventory(files=(file,)))) == {"/usr/bin/nvidia-smi": "/opt/smi"}


def test_the_first_of_two_files_for_one_path_is_mounted() -> None:
    one, two = library("libcuda.so.1"), library("libcuda.so.1")
    made = draft(inventory(files=(one, replace(two, host_path="/other/libcuda.so.1"))))
    assert set(mounts(made).values()) == {"/host/libcuda.so.1"}
    assert len(made.edits.mounts) == 2


@pytest.mark.parametrize("kind", ["library", "binary", "firmware", "config", "module"])
def test_files_are_mounted_read_only(kind: str) -> None:
    file = replace(library("a"), kind=kind, targets=("/opt/a",))
    for mount in draft(inventory(files=(file,))).edits.mounts:
        assert mount.type == "bind"
        assert mount.options == ("ro", "nosuid", "nodev", "rbind", "rprivate")


def options_of(kind: str) -> tuple[str, ...]:
    file = replace(library("a"), kind=kind, targets=("/run/a/socket",))
    (made,) = drafts(inventory(files=(file,)), (Profile(name="mps", device_class="gpu", mps=True),))
    return delivered(made).edits.mounts[0].options


def test_sockets_and_pipes_are_mounted_with_noexec() -> None:
    assert options_of("socket") == ("nosuid", "nodev", "rbind", "rprivate", "noexec")
    assert {"ro", "nosuid", "nodev", "noexec"} < set(options_of("pipe"))


@pytest.mark.usefixtures("own_mounts")
def test_a_nested_container_can_bind_a_socket_with_the_options_of_nvidias_tools(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    for name in ("outer", "inner"):
        (tmp_path / name).touch()
    flags = [option for option in options_of("socket") if option not in {"rbind", "rprivate"}]
    # The outer mount has the options as the runtime sets them. The inner mount is in a nested user namespace.
    # libnvidia-container replaces all options of such a mount.
    script = f"""
        mount --rbind socket outer && mount -o remount,bind,{",".join(flags)} outer
        exec unshare --user --map-root-user --mount sh -ec '
            mount --bind outer inner && mount -o remount,bind,rw,nosuid,nodev,noexec inner'
    """
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in done.stderr:
        cannot_run(f"namespaces within namespaces: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


def test_a_profile_has_the_files_and_nodes_with_its_capabilities_and_without_capabilities() -> None:
    host = inventory(
        gpu(0),
        nodes=(node("/dev/ctl"), node("/dev/uvm", "compute")),
        files=(library("a", "compute", "video"), library("b", "graphics"), library("c")),
    )
    made = draft(host, "compute")
    assert {mount.host_path for mount in made.edits.mounts} == {"/host/a", "/host/c"}
    assert [n.path for n in made.edits.device_nodes] == ["/dev/ctl", "/dev/uvm"]
    assert devices(made) == {"0": ["/dev/nvidia0"]}


def test_each_profile_has_a_draft_with_its_kind() -> None:
    profiles = (DEFAULT, Profile(name="video", device_class="video", capabilities=("video",)))
    kinds = [made.kind for made in VENDOR.edits(inventory(gpu(0)), profiles)]
    assert kinds == ["nvidia.com/gpu", "nvidia.com/video"]


PROFILES = st.lists(st.sampled_from(CAPABILITIES), unique=True, max_size=3).map(
    lambda wanted: Profile(name="p", device_class="gpu", capabilities=tuple(wanted))
)


def every_edit(made: Draft) -> list[ContainerEdits]:
    return [made.edits, *(device.edits for device in made.devices)]


@given(hosts(), PROFILES)
def test_every_path_of_a_draft_is_in_the_inventory(host: Inventory, profile: Profile) -> None:
    (made,) = drafts(host, (profile,))
    gpu_nodes = [node for accelerator in host.accelerators for node in accelerator.nodes]
    known_nodes = {(node.path, node.host_path) for node in (*host.nodes, *gpu_nodes)}
    for edits in every_edit(made):
        assert {(node.path, node.host_path) for node in edits.device_nodes} <= known_nodes
        assert {mount.host_path for mount in edits.mounts} <= {file.host_path for file in host.files}


@given(hosts(), PROFILES)
def test_no_name_and_no_path_is_used_twice(host: Inventory, profile: Profile) -> None:
    (made,) = drafts(host, (profile,))
    names = [device.name for device in made.devices]
    places = [mount.container_path for mount in made.edits.mounts]
    assert len(set(names)) == len(names)
    assert len(set(places)) == len(places)


@given(hosts())
def test_a_usable_gpu_has_all_its_names_and_an_unusable_gpu_has_no_name(host: Inventory) -> None:
    (made,) = drafts(host, (DEFAULT,))
    wanted = [name for a in host.accelerators if a.usable for name in (str(a.index), a.uuid) if name]
    assert [device.name for device in made.devices] == [*wanted, *["none"] * bool(wanted)]


@given(hosts(), PROFILES)
def test_a_profile_has_no_edit_that_the_default_profile_lacks(host: Inventory, profile: Profile) -> None:
    part, whole = (drafts(host, (each,))[0] for each in (profile, DEFAULT))
    for some, every in zip(every_edit(part), every_edit(whole), strict=True):
        assert set(some.device_nodes) <= set(every.device_nodes)
        assert set(some.mounts) <= set(every.mounts)


@given(hosts(), st.randoms(use_true_random=False))
def test_the_bytes_of_a_spec_do_not_depend_on_the_order_of_the_inventory(
    host: Inventory, random: Random
) -> None:
    def shuffled(values: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(random.sample(values, len(values)))

    other = replace(
        host,
        accelerators=shuffled(host.accelerators),
        nodes=shuffled(host.nodes),
        files=shuffled(host.files),
    )
    one, two = (render(build(drafts(each, (DEFAULT,))[0])) for each in (host, other))
    assert one == two


def test_the_kind_for_administration_has_only_the_step_for_forward_compatibility() -> None:
    held = (GroupDevice(name="all", nodes=(node("/dev/nvidiactl"),)),)
    kind = "management.nvidia.com/gpu"
    files = (library("libcuda.so.1"), library("libEGL_nvidia.so.0"))
    groups = (
        Group(device_class=kind, devices=held, files=files),
        Group(device_class="gdrcopy", devices=held),
    )
    management, gdrcopy = group_drafts(replace(inventory(), groups=groups), (DEFAULT,))
    assert (management.kind, management.yields) == (kind, True)
    assert (gdrcopy.kind, gdrcopy.yields) == ("nvidia.com/gdrcopy", False)
    assert management.payload is not None
    assert gdrcopy.payload is not None
    assert [step.name for step in management.payload.steps] == ["enable-cuda-compat"]
    assert gdrcopy.payload.steps == ()
