"""Laws for any host and configuration: no device is in two resources, and no exception is raised."""

import re
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from support.kubelet.advertised_resources import h100, in_mig, offered, with_gpus
from support.values.inventories import inventories as any_inventories
from support.values.unhealthy_gpus import example

from cdigen.config import KubeletConfig, ResourceRow, SharingRow
from cdigen.config.settings import MIG_STRATEGIES
from cdigen.kubelet.resources.model import MAX_ID
from cdigen.kubelet.resources.resource_set import ResourceSet, advertise
from cdigen.model.inventory import Inventory
from cdigen.model.profile import DEFAULT
from cdigen.value import replace

# apimachinery, pkg/util/validation: a DNS subdomain, a slash, and a name that is also valid for labels.
QUALIFIED = re.compile(r"[a-z0-9][a-z0-9.-]*[a-z0-9]/[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
NAMES = st.sampled_from(["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu", "example.com/other"])
DEVICES = st.lists(
    st.sampled_from(["0", "1", "0:0", "0000:05:00.0", h100(2).uuid or ""]), max_size=2, unique=True
).map(tuple)
PATTERNS = st.lists(st.sampled_from(["*H100*", "*", "1g.*", "none"]), max_size=2, unique=True).map(tuple)
ROWS = st.builds(
    ResourceRow,
    name=NAMES,
    models=PATTERNS,
    profiles=PATTERNS,
    devices=DEVICES,
    min_memory_gb=st.sampled_from([0, 20, 80]),
    max_memory_gb=st.sampled_from([0, 40]),
)
SHARES = st.builds(
    SharingRow,
    resource=NAMES,
    replicas=st.sampled_from([1, 2, 60]),
    devices=DEVICES,
    rename=st.sampled_from(["", "nvidia.com/gpu", "example.com/shared"]),
    mps=st.booleans(),
)
SETTINGS = st.builds(
    KubeletConfig,
    mig_strategy=st.sampled_from(MIG_STRATEGIES),
    amd_strategy=st.sampled_from(["single", "mixed"]),
    resources=st.lists(ROWS, max_size=3).map(tuple),
    sharing=st.lists(SHARES, max_size=3).map(tuple),
    ignore=DEVICES,
    rename_shared=st.booleans(),
    fail_requests_greater_than_one=st.booleans(),
)
PROFILES = st.sampled_from(["1g.10gb", "2g.20gb"]) | st.text("1g.+ é/", max_size=4)
SPLITS = st.lists(st.lists(PROFILES, max_size=3), max_size=4)


def check(found: ResourceSet) -> None:
    """Check that each id, and all replicas of a device, are in one resource, and that names are valid."""
    units = [(one.name, unit) for one in found.resources for unit in one.units]
    assert len({unit.id for _, unit in units}) == len(units)
    assert all(len(unit.id) <= MAX_ID and unit.id.isprintable() for _, unit in units)
    assert all(QUALIFIED.fullmatch(one.name) for one in found.resources)
    owners: dict[str, set[str]] = {}
    for name, unit in units:
        for device in unit.cdi_names:
            owners.setdefault(device, set()).add(name)
    assert all(len(names) == 1 for names in owners.values())
    assert len({one.name for one in found.resources}) == len(found.resources)


@given(settings=SETTINGS, splits=SPLITS)
def test_no_device_is_in_two_resources(settings: KubeletConfig, splits: list[list[str]]) -> None:
    host = with_gpus(*(in_mig(h100(number), *profiles) for number, profiles in enumerate(splits)))
    every = {**host, **example("ubuntu-2xmi300x-cpx"), **example("ubuntu-flex170-sriov")}
    check(advertise(every, (DEFAULT,), lambda _: True, settings))


@given(settings=SETTINGS, inventory=any_inventories, vendor=st.sampled_from(["nvidia", "amd", "intel"]))
def test_no_inventory_raises_an_exception(settings: KubeletConfig, inventory: Inventory, vendor: str) -> None:
    check(advertise({vendor: replace(inventory, vendor=vendor)}, (DEFAULT,), lambda _: True, settings))


@given(settings=SETTINGS, splits=SPLITS, data=st.data())
def test_the_order_of_devices_does_not_change_the_resources(
    settings: KubeletConfig, splits: list[list[str]], data: st.DataObject
) -> None:
    host = with_gpus(*(in_mig(h100(number), *profiles) for number, profiles in enumerate(splits)))
    gpus = host["nvidia"].accelerators
    order = tuple(data.draw(st.permutations(gpus)))
    found = [
        {
            unit.id: (one.name, unit.cdi_names)
            for one in advertise(
                {"nvidia": replace(host["nvidia"], accelerators=each)}, (DEFAULT,), lambda _: True, settings
            ).resources
            for unit in one.units
        }
        for each in (gpus, order)
    ]
    assert found[0] == found[1]


@given(health=st.lists(st.sampled_from(["healthy", "unhealthy", "unknown"]), min_size=8, max_size=8))
def test_the_health_of_devices_changes_only_the_health_of_units(health: list[str]) -> None:
    host = example()
    gpus = tuple(
        replace(gpu, health=word) for gpu, word in zip(host["nvidia"].accelerators, health, strict=True)
    )
    units = offered({"nvidia": replace(host["nvidia"], accelerators=gpus)}).resources[0].units
    assert [unit.id for unit in units] == [unit.id for unit in offered(host).resources[0].units]
    assert Counter(unit.health for unit in units) == Counter(health)
