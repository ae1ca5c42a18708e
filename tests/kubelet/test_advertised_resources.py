"""AdvertisedResources computes the resources of a host from the daemon's inventory and the specs."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from support.kubelet.advertised_resources import names_of, sized, with_gpus
from support.kubelet.host_resources import (
    AnyPod,
    allocate,
    allocator,
    configure,
    made,
    preferred,
    put,
    state,
)
from support.kubelet.resources import GPU, status
from support.values import unhealthy_gpus

from cdigen.config import KubeletConfig, SharedMemory, SharingRow
from cdigen.host.root import Root
from cdigen.kubelet.resources.nvidia_file import with_nvidia_file
from cdigen.kubelet.wire.server import AllocateError
from cdigen.service.status import this_process
from cdigen.value import replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.kubelet.advertised_resources import AdvertisedResources


def test_findings_about_the_file_nvidia_config_are_in_the_status(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text("version: v1\nflags: {migStrategy: single, strange: 1}")
    settings = KubeletConfig(nvidia_config="/nvidia.yaml", mig_strategy="none")
    read, found = with_nvidia_file(Root(str(tmp_path)), settings)
    assert read.mig_strategy == "single"
    advertised = made()
    configure(advertised, read, found)
    advertised.resources(put(tmp_path, unhealthy_gpus.example()))
    assert [(row["severity"], row["message"]) for row in shown(advertised)["problems"]] == [
        ("warning", "/nvidia.yaml:2:30: flags.strange is unknown and ignored")
    ]


def test_a_configured_family_is_a_finding_until_a_spec_has_a_device_of_the_family(tmp_path: Path) -> None:
    advertised = made(families=("gds",))
    names = names_of(unhealthy_gpus.example())
    advertised.resources(put(tmp_path, unhealthy_gpus.example()))
    assert [row["rule"] for row in shown(advertised)["problems"]] == ["resource-family-missing"]
    advertised.resources(put(tmp_path, unhealthy_gpus.example(), names={*names, "nvidia.com/gds=all"}))
    assert shown(advertised)["problems"] == []


def test_a_vendor_without_an_installed_package_does_not_affect_other_vendors(tmp_path: Path) -> None:
    host = unhealthy_gpus.example()
    advertised = made()
    found = advertised.resources(
        put(tmp_path, {**host, "acme": replace(host["nvidia"], vendor="acme")}, names=set())
    )
    assert found is not None
    assert [(one.name, len(one.units)) for one, _ in found] == [(GPU, 8)]
    assert ("error", "acme") in [(row["severity"], row["path"]) for row in shown(advertised)["problems"]]


def test_an_unreadable_file_nvidia_config_changes_no_setting_and_is_a_finding(tmp_path: Path) -> None:
    settings = KubeletConfig(nvidia_config="/nvidia.yaml")
    read, found = with_nvidia_file(Root(str(tmp_path)), settings)
    assert read == settings
    assert [one.severity for one in found] == ["error"]
    assert "nvidia.yaml cannot be read: No such file" in found[0].message
    (tmp_path / "nvidia.yaml").write_text("\n".join(f"k{n}: 1" for n in range(80)))
    assert with_nvidia_file(Root(str(tmp_path)), settings)[1][-1].message == "30 more findings are not listed"


def shown(advertised: AdvertisedResources) -> dict[str, Any]:
    advertised.set_statuses((status("registered", registrations=1, is_confirmed=True),), {})
    return json.loads(json.dumps(advertised.document(this_process())))  # type: ignore[no-any-return]


def test_after_the_inventory_is_removed_the_resources_stay_and_the_status_is_stale(tmp_path: Path) -> None:
    advertised = made()
    found = allocator(advertised, put(tmp_path, unhealthy_gpus.example()))
    (tmp_path / "run/cdigen/inventory.json").unlink()

    assert advertised.resources(state(tmp_path)) is None
    assert shown(advertised)["stale"] == ["there is no inventory: the cdigen daemon has not written one"]
    assert len(shown(advertised)["resources"][0]["devices"]) == 8
    assert allocate(found, found.resource.units[0].id).names


def test_a_host_without_devices_advertises_no_resources(tmp_path: Path) -> None:
    assert made().resources(put(tmp_path, {})) == ()


def test_the_preferred_replicas_are_distributed_or_packed_as_configured(tmp_path: Path) -> None:
    host = put(tmp_path, unhealthy_gpus.example())
    rows = (SharingRow(resource=GPU, replicas=4),)

    for policy, gpus in (("distributed", 2), ("packed", 1)):
        found = allocator(made(sharing=rows, shared_allocation=policy), host)
        ids = tuple(unit.id for unit in found.resource.units)
        assert len({one.partition("::")[0] for one in preferred(found, ids, (), 2)}) == gpus


@pytest.fixture
def mps_root() -> Iterator[str]:
    """Yield a folder with a short path, because the path of a socket has at most 107 bytes (unix(7))."""
    with TemporaryDirectory() as folder:
        yield folder


def test_the_control_daemon_of_mps_is_checked_at_each_request(tmp_path: Path, mps_root: str) -> None:
    host = put(tmp_path, unhealthy_gpus.example())
    rows = (SharingRow(resource=GPU, replicas=4, mps=True),)
    found = allocator(made(sharing=rows, mps_root=mps_root), host)
    ids = (found.resource.units[0].id,)
    pipe = Path(mps_root, GPU, "pipe")
    pipe.mkdir(parents=True)

    with pytest.raises(AllocateError, match=f"{pipe}/control: No such file"):
        allocate(found, *ids)
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(pipe / "control"))
        with pytest.raises(AllocateError, match="no control daemon listens"):
            allocate(found, *ids)
        daemon.listen(0)
        assert allocate(found, *ids).folders[0].host_path == str(pipe)


def test_a_gpu_is_advertised_whole_or_in_memory_units(tmp_path: Path) -> None:
    host = put(tmp_path, with_gpus(sized(0, 81559)))
    agent = AnyPod()
    advertised = made(make_agent=lambda _: agent, shared_memory=SharedMemory(unit="GiB", devices=("0",)))
    found = {resource.name: len(resource.units) for resource, _ in advertised.resources(host) or ()}
    assert found == {GPU: 7, "aliyun.com/gpu-mem": 79}
    assert agent.advertised is not None
    assert [gpu.units for gpu in agent.advertised.gpus] == [79]


def test_without_an_agent_no_memory_unit_is_advertised(tmp_path: Path) -> None:
    host = put(tmp_path, with_gpus(sized(0, 81559)))
    advertised = made(shared_memory=SharedMemory(unit="GiB", devices=("0",)))
    found = {resource.name: len(resource.units) for resource, _ in advertised.resources(host) or ()}
    assert found == {GPU: 7, "aliyun.com/gpu-mem": 0}
    assert [one.rule for one in advertised.findings()] == ["shared-memory-without-api"]
