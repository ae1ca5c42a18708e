"""The devices of whole machines with AMD's GPUs, their order, and whole specs, byte by byte.

`pytest --update-golden tests/vendors/amd/test_amd_machines.py` writes tests/golden/amd again. Read the
difference before you commit the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.golden import GOLDEN, compare
from support.hosts import amd_tree
from support.hosts.amd import discover, numbered, offered, places, refusal, rules
from support.hosts.amd_tree import AmdGpu, mi210, mi300x, mi308x, radeon
from support.hosts.nvidia import empty_root

from cdigen.pipeline import generate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")

AMDS = GOLDEN / "amd"
SPELLINGS = (amd_tree.UNDERSCORE, amd_tree.DOT)


def mi210_x8() -> tuple[AmdGpu, ...]:
    """Describe eight MI210."""
    return mi210()


def mi300x_x2_cpx() -> tuple[AmdGpu, ...]:
    """Describe two MI300X, each with eight partitions."""
    return mi300x(count=2)


def mi308x_x2_qpx() -> tuple[AmdGpu, ...]:
    """Describe two MI308X, each with four partitions."""
    return mi308x(count=2)


def radeon_desktop() -> tuple[AmdGpu, ...]:
    """Describe a desktop whose GPU is not in KFD."""
    return (radeon(),)


MACHINES = (mi210_x8, mi300x_x2_cpx, mi308x_x2_qpx, radeon_desktop)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_the_spec_of_an_amd_machine_equals_its_golden_file(
    machine: Callable[[], tuple[AmdGpu, ...]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    inventory = discover(tmp_path, *machine())
    (product,), broken = generate.generate_specs({"amd": inventory}, host=places(tmp_path).host)
    assert (product.kind, broken) == ("amd.com/gpu", {})
    compare(request, AMDS / f"{machine.__name__}.json", product.content.decode())


def test_every_golden_file_of_amd_has_a_machine() -> None:
    assert {path.stem for path in AMDS.iterdir()} == {machine.__name__ for machine in MACHINES}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_eight_mi300x_in_cpx_are_64_devices_in_amds_order(tmp_path: Path, spelling: str) -> None:
    inventory = discover(tmp_path, *mi300x(), spelling=spelling)
    assert inventory.findings == ()
    assert numbered(offered(tmp_path, inventory)) == [f"/dev/dri/renderD{128 + each}" for each in range(64)]
    assert numbered(offered(tmp_path, inventory)) == amd_tree.counted_by_amd(tmp_path)


def test_eight_mi308x_in_qpx_are_32_devices_and_unused_partitions_have_no_finding(tmp_path: Path) -> None:
    inventory = discover(tmp_path, *mi308x())
    assert inventory.findings == ()
    renders = [128 + 8 * gpu + part for gpu in range(8) for part in range(4)]
    assert numbered(offered(tmp_path, inventory)) == [f"/dev/dri/renderD{render}" for render in renders]


def test_a_gpu_that_is_not_partitioned_is_one_device(tmp_path: Path) -> None:
    inventory = discover(tmp_path, *mi300x(1))
    assert [gpu.partitioned for gpu in inventory.accelerators] == [False] * 8
    assert numbered(offered(tmp_path, inventory)) == amd_tree.counted_by_amd(tmp_path)
    assert inventory.accelerators[0].model == "AMD Instinct MI300X OAM (SPX, NPS1)"


def test_the_profile_of_a_partition_has_its_modes_as_in_amds_kubernetes_plugin(tmp_path: Path) -> None:
    gpu = discover(tmp_path, *mi300x(count=1)).accelerators[0]
    assert {part.profile for part in gpu.partitions} == {"cpx_nps1"}
    assert [part.instance for part in gpu.partitions][:2] == ["0000:05:00.0", "amdgpu_xcp_0"]


def test_gpus_that_kfd_does_not_list_are_numbered_after_compute_gpus(tmp_path: Path) -> None:
    compute = [AmdGpu(bdf="0000:65:00.0", render=129, card=2, unique_id=7)]
    inventory = discover(tmp_path, radeon(), *compute)
    offers = offered(tmp_path, inventory)
    assert offers["0"] == ["/dev/dri/card2", "/dev/dri/renderD129", "/dev/kfd"]
    assert offers["1"] == offers["0000:03:00.0"] == ["/dev/dri/card1", "/dev/dri/renderD128"]
    assert rules(inventory) == [("warning", "gpu-without-kfd")]


def test_a_profile_for_compute_has_no_gpu_that_cannot_compute(tmp_path: Path) -> None:
    compute = [AmdGpu(bdf="0000:65:00.0", render=129, card=2, unique_id=7)]
    inventory = discover(tmp_path, radeon(), *compute)
    offers = offered(tmp_path, inventory, capabilities=("compute",))
    assert offers["all"] == offers["0"] == ["/dev/dri/renderD129", "/dev/kfd"]
    assert "1" not in offers


def test_one_finding_lists_the_gpus_of_a_host_without_kfd(tmp_path: Path) -> None:
    inventory = discover(tmp_path, radeon(), radeon("0000:04:00.0"))
    assert rules(inventory)[0] == ("warning", "gpu-without-kfd")
    assert "0000:03:00.0, 0000:04:00.0 can be used for graphics only" in inventory.findings[0].message


def test_a_dkms_module_and_a_module_of_the_kernel_have_different_flavours(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi210(1), version="6.8.5")
    driver = discover(tmp_path).driver
    assert (driver.version, driver.flavour, driver.architecture) == ("6.8.5", "dkms", "x86_64")
    (tmp_path / "sys/module/amdgpu/version").unlink()
    driver = discover(tmp_path).driver
    assert (driver.version, driver.flavour) == ("6.8.0-60-generic", "in-tree")


@st.composite
def machines(draw: st.DrawFn) -> tuple[AmdGpu, ...]:
    """Draw a machine whose GPUs have 1, 2, 4 or 8 partitions. KFD lists all, some or no GPUs."""
    slots = st.tuples(st.integers(0, 2), st.integers(1, 255), st.integers(0, 31))
    places = draw(st.lists(slots, min_size=1, max_size=6, unique=True))
    starts = draw(st.permutations(range(len(places))))
    return tuple(
        AmdGpu(
            bdf="{:04x}:{:02x}:{:02x}.0".format(*place), render=128 + 8 * start, card=None,
            split=draw(st.sampled_from([1, 2, 4, 8])), places=8, kfd=draw(st.booleans()), unique_id=1 + start,
            pci_class=draw(st.sampled_from([0x030000, 0x120000])),
        )
        for place, start in zip(places, starts, strict=True)
    )  # fmt: skip


@given(machines(), st.sampled_from(SPELLINGS))
def test_the_gpus_of_any_machine_are_numbered_as_by_amd(machine: tuple[AmdGpu, ...], spelling: str) -> None:
    with empty_root() as root:
        amd_tree.write(root, machine, spelling=spelling)
        counted = amd_tree.counted_by_amd(root)
        for_graphics = sum(not gpu.kfd and gpu.pci_class == 0x030000 for gpu in machine)
        if not counted and not for_graphics:
            assert refusal(root).kind == ("no-usable-device" if machine else "no-gpu")
            return
        renders = numbered(offered(root))
        assert renders[: len(counted)] == counted
        assert len(renders) == len(counted) + for_graphics
