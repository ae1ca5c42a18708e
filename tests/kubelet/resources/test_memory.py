"""share_memory divides GPUs into memory units; ids contain the GPU, and the kubelet can read the list."""

import pytest
from hypothesis import example as case
from hypothesis import given
from hypothesis import strategies as st
from support.kubelet.advertised_resources import h100, in_mig, names_of, sized, with_gpus, with_memory
from support.values.unhealthy_gpus import example

from cdigen.config import SharedMemory
from cdigen.kubelet.resources.memory import AdvertisedMemory, _fitting, share_memory, unit_id, unit_mib
from cdigen.kubelet.resources.model import MAX_ID, MEMORY
from cdigen.kubelet.resources.naming import NamingCandidate, candidates
from cdigen.kubelet.wire.messages import write_devices
from cdigen.model.inventory import Accelerator, Inventory
from cdigen.model.profile import DEFAULT
from cdigen.value import replace


def known_of(host: dict[str, Inventory]) -> tuple[NamingCandidate, ...]:
    return candidates(host, (DEFAULT,), names_of(host).__contains__)[0]


def shared(*gpus: Accelerator, unit: str = "GiB") -> AdvertisedMemory:
    """Return the memory units of a host with eight GPUs: GPUS first, then GPUs of unknown memory."""
    devices = tuple(str(gpu.index) for gpu in gpus)
    return share_memory(known_of(with_gpus(*gpus)), SharedMemory(unit=unit, devices=devices))


def test_each_gpu_has_its_own_number_of_units() -> None:
    found = shared(sized(0, 81559), sized(1, 24 * 1024))
    assert [(gpu.index, gpu.units) for gpu in found.gpus] == [(0, 79), (1, 24)]
    assert len(found.resource.units) == 79 + 24
    assert found.resource.units[0].id == f"{h100(0).uuid}{MEMORY}0"
    assert found.findings == ()


@pytest.mark.parametrize(
    ("text", "mib"), [("GiB", 1024), ("MiB", 1), ("256MiB", 256), ("2GiB", 2048), ("08MiB", 8)]
)
def test_a_unit_size_is_read_in_mib(text: str, mib: int) -> None:
    assert unit_mib(text) == mib


@pytest.mark.parametrize("text", ["", "G", "0GiB", "-1GiB", "1.5GiB", "GB", "GiBGiB", "9999999MiB", "²GiB"])
def test_an_invalid_unit_size_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a unit size"):
        unit_mib(text)


def test_units_become_larger_with_a_finding_if_the_list_is_too_long_for_the_kubelet() -> None:
    found = shared(*(sized(index, 81559) for index in range(8)), unit="MiB")
    assert len(write_devices(found.resource.units)) <= 4 << 20
    assert found.unit_mib == 16
    assert [one.rule for one in found.findings] == ["shared-memory-unit"]
    assert "16 MiB, not 1" in found.findings[0].message
    assert "unit: 16MiB" in found.findings[0].hint


def test_a_gpu_whose_memory_is_unknown_or_smaller_than_a_unit_has_no_units() -> None:
    found = shared(sized(0, None), sized(1, 500))
    assert found.resource.units == ()
    assert [one.rule for one in found.findings] == ["shared-memory-unknown", "shared-memory-unit"]
    assert len(found.candidate_ids) == 2


def test_a_split_gpu_is_not_shared_by_memory() -> None:
    found = shared(in_mig(sized(0, 81559), "1g.10gb"), sized(1, 1024))
    assert [gpu.index for gpu in found.gpus] == [1]
    assert [one.rule for one in found.findings] == ["shared-memory-left-out"]


@pytest.mark.parametrize("name", ["ubuntu-flex170-sriov", "ubuntu-2xmi300x-cpx"])
def test_gpus_of_amd_and_intel_are_shared_by_their_memory_in_sysfs(name: str) -> None:
    ((vendor, inventory),) = example(name).items()
    whole = tuple(
        replace(gpu, partitioned=False, partitions=(), memory_mib=196_592) for gpu in inventory.accelerators
    )
    known = known_of({vendor: replace(inventory, accelerators=whole)})
    found = share_memory(known, SharedMemory(unit="GiB"))
    assert len(found.gpus) == len(known) > 1
    assert {gpu.units for gpu in found.gpus} == {191}
    assert found.findings == ()
    for unit in found.resource.units:
        gpu = found.gpu_of(unit.id)
        assert gpu is not None
        assert unit.id == f"{gpu.id}{MEMORY}{unit.replica}"
        assert len(unit.id) <= MAX_ID


def test_an_integrated_gpu_does_not_prevent_the_sharing_of_gpus_with_memory() -> None:
    """Annotations have only indices, so only one vendor's GPUs are shared. GPUs with memory have priority."""
    known = known_of({**example("ubuntu-flex170-sriov"), **with_memory(example(), 81559)})
    assert next(each.device.vendor for each in known) == "intel"
    found = share_memory(known, SharedMemory(unit="GiB"))
    assert len(found.gpus) == 8


def test_gpus_of_other_vendors_are_not_shared_with_mps() -> None:
    known = known_of(example("ubuntu-flex170-sriov"))
    assert share_memory(known, SharedMemory(unit="GiB")).candidate_ids != frozenset()
    found = share_memory(known, SharedMemory(unit="GiB", mps=True))
    assert found.candidate_ids == frozenset()
    reasons = {one.message.partition("by memory: ")[2] for one in found.findings}
    assert reasons == {"MPS supports NVIDIA's devices only"}


@pytest.mark.parametrize(("sizes", "unit"), [((5_000,), "MiB"), ((6_250,) * 8, "MiB")])
def test_a_message_with_thousands_of_ids_is_within_the_limit(sizes: tuple[int, ...], unit: str) -> None:
    """The message has the id, the health and the NUMA node of each device; its limit is 4 MiB."""
    found = shared(*(sized(index, mib) for index, mib in enumerate(sizes)), unit=unit)
    written = write_devices(found.resource.units)
    assert len(found.resource.units) == sum(sizes)
    assert found.unit_mib == 1
    assert len(written) <= 4 << 20
    unhealthy = [replace(one, health="unhealthy") for one in found.resource.units]
    assert len(write_devices(unhealthy)) <= 4 << 20


def test_gpus_of_a_second_vendor_are_not_shared_by_memory() -> None:
    host = {**example("ubuntu-flex170-sriov"), **with_gpus(sized(0, 81559))}
    found = share_memory(known_of(host), SharedMemory(unit="GiB"))
    assert {unit.id.partition(MEMORY)[0] for unit in found.resource.units} == {gpu.id for gpu in found.gpus}
    assert {one.rule for one in found.findings} >= {"shared-memory-left-out"}


# With units of 1 MiB, the lists for these sizes would be 3 to 50 times too long.
@given(sizes=st.lists(st.integers(50_000, 400_000), min_size=4, max_size=8), configured=st.integers(1, 16))
def test_a_unit_is_doubled_only_until_the_kubelet_can_read_the_list(
    sizes: list[int], configured: int
) -> None:
    gpus = [f"GPU-{index:08x}-1111-2222-3333-444444444444" for index in range(len(sizes))]
    size = _fitting(gpus, sizes, configured)
    assert _bytes(gpus, sizes, size) <= 4 << 20
    assert size == configured or _bytes(gpus, sizes, size // 2) > 0.98 * (4 << 20)
    assert (size // configured).bit_count() == 1


def _bytes(gpus: list[str], sizes: list[int], size: int) -> int:
    """Return the size of a list of all units in bytes: the ids, and 26 bytes for the rest of each unit."""
    counts = [mib // size for mib in sizes]
    digits = [
        sum(count - 10**width for width in range(1, 6) if count > 10**width) + count for count in counts
    ]
    return sum(
        count * (len(gpu) + len(MEMORY) + 26) + more
        for gpu, count, more in zip(gpus, counts, digits, strict=True)
    )


# Each GPU has some hundred units at most, because the time of an example grows with the units.
@given(
    sizes=st.lists(st.integers(0, 700) | st.none(), min_size=1, max_size=8),
    unit=st.sampled_from(["MiB", "7MiB", "256MiB"]),
)
@case(sizes=[400_000] * 8, unit="MiB")
@case(sizes=[81_559, 400_000, None], unit="7MiB")
@case(sizes=[81_559] * 8, unit="GiB")
def test_ids_contain_their_gpu_and_are_within_the_limits(sizes: list[int | None], unit: str) -> None:
    found = shared(*(sized(index, mib) for index, mib in enumerate(sizes)), unit=unit)
    ids = [each.id for each in found.resource.units]
    assert len(set(ids)) == len(ids) == sum(gpu.units for gpu in found.gpus)
    assert all(len(id_) <= MAX_ID for id_ in ids)
    # Another test measures the encoded message, because encoding takes longer than this test.
    assert sum(len(id_) + 26 for id_ in ids) <= 4 << 20
    for gpu in found.gpus:
        assert gpu.units == (sizes[gpu.index] or 0) // found.unit_mib
        assert found.gpu_of(unit_id(gpu.id, gpu.units - 1)) == gpu
        assert found.gpu_of(unit_id(gpu.id, gpu.units)) is None
    assert {found.gpu_of(id_).id for id_ in ids[:50] if found.gpu_of(id_)} <= {gpu.id for gpu in found.gpus}  # type: ignore[union-attr]
    assert found.gpu_of("GPU-x") is found.gpu_of(f"{MEMORY}1") is found.gpu_of("x-_-1") is None
