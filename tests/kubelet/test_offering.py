"""What is made of the host for the kubelet, from the daemon's inventory and the specs."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from support.kubelet.host_offering import AnyPod, configure, desk, given, made, put, state
from support.kubelet.offering import names_of, sized, with_gpus
from support.kubelet.resources import GPU, status
from support.values import unhealthy_gpus

from cdigen.config import KubeletConfig, SharedMemory, SharingRow
from cdigen.frontend.status import this_process
from cdigen.host.root import Root
from cdigen.kubelet.nvidia_settings import with_nvidia_file
from cdigen.kubelet.wire.server import Refused
from cdigen.value import replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.kubelet.offering import HostOffering


def test_what_was_found_wrong_with_nvidias_file_is_shown(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text("version: v1\nflags: {migStrategy: single, strange: 1}")
    settings = KubeletConfig(nvidia_config="/nvidia.yaml", mig_strategy="none")
    read, found = with_nvidia_file(Root(str(tmp_path)), settings)
    assert read.mig_strategy == "single"
    of = made()
    configure(of, read, found)
    of.resources(put(tmp_path, unhealthy_gpus.example()))
    assert [(row["severity"], row["message"]) for row in shown(of)["problems"]] == [
        ("warning", "/nvidia.yaml:2:30: flags.strange is unknown, and passed over")
    ]


def test_a_family_that_no_spec_offers_is_said_as_long_as_none_does(tmp_path: Path) -> None:
    of = made(families=("gds",))
    names = names_of(unhealthy_gpus.example())
    of.resources(put(tmp_path, unhealthy_gpus.example()))
    assert [row["rule"] for row in shown(of)["problems"]] == ["resource-family-missing"]
    of.resources(put(tmp_path, unhealthy_gpus.example(), names={*names, "nvidia.com/gds=all"}))
    assert shown(of)["problems"] == []


def test_a_vendor_that_the_daemon_alone_knows_costs_the_others_nothing(tmp_path: Path) -> None:
    host = unhealthy_gpus.example()
    of = made()
    found = of.resources(put(tmp_path, {**host, "acme": replace(host["nvidia"], vendor="acme")}, names=set()))
    assert found is not None
    assert [(one.name, len(one.units)) for one, _ in found] == [(GPU, 8)]
    assert ("error", "acme") in [(row["severity"], row["path"]) for row in shown(of)["problems"]]


def test_a_file_of_nvidias_that_cannot_be_read_changes_nothing_and_is_said(tmp_path: Path) -> None:
    settings = KubeletConfig(nvidia_config="/nvidia.yaml")
    read, found = with_nvidia_file(Root(str(tmp_path)), settings)
    assert read == settings
    assert [one.severity for one in found] == ["error"]
    assert "nvidia.yaml cannot be read: No such file" in found[0].message
    (tmp_path / "nvidia.yaml").write_text("\n".join(f"k{n}: 1" for n in range(80)))
    assert with_nvidia_file(Root(str(tmp_path)), settings)[1][-1].message == "and 30 more"


def shown(of: HostOffering) -> dict[str, Any]:
    of.set_statuses((status("registered", registrations=1, is_confirmed=True),), {})
    return json.loads(json.dumps(of.document(this_process())))  # type: ignore[no-any-return]


def test_an_inventory_that_is_gone_changes_nothing_and_is_said(tmp_path: Path) -> None:
    of = made()
    found = desk(of, put(tmp_path, unhealthy_gpus.example()))
    (tmp_path / "run/cdigen/inventory.json").unlink()

    assert of.resources(state(tmp_path)) is None
    assert shown(of)["stale"] == ["there is no inventory: the cdigen daemon has not written one"]
    assert len(shown(of)["resources"][0]["devices"]) == 8
    assert given(found, found.resource.units[0].id).names


def test_a_host_without_devices_offers_nothing(tmp_path: Path) -> None:
    assert made().resources(put(tmp_path, {})) == ()


def test_shares_are_spread_or_packed_as_configured(tmp_path: Path) -> None:
    host = put(tmp_path, unhealthy_gpus.example())
    rows = (SharingRow(resource=GPU, replicas=4),)

    for word, gpus in (("distributed", 2), ("packed", 1)):
        found = desk(made(sharing=rows, shared_allocation=word), host)
        ids = tuple(unit.id for unit in found.resource.units)
        assert len({one.partition("::")[0] for one in found.prefer(ids, (), 2)}) == gpus


@pytest.fixture
def mps_root() -> Iterator[str]:
    """A folder whose path leaves room for a socket's: 107 bytes in all (unix(7))."""
    with TemporaryDirectory() as folder:
        yield folder


def test_whether_the_control_daemon_of_mps_listens_counts_at_the_moment_of_the_request(
    tmp_path: Path, mps_root: str
) -> None:
    host = put(tmp_path, unhealthy_gpus.example())
    rows = (SharingRow(resource=GPU, replicas=4, mps=True),)
    found = desk(made(sharing=rows, mps_root=mps_root), host)
    ids = (found.resource.units[0].id,)
    pipe = Path(mps_root, GPU, "pipe")
    pipe.mkdir(parents=True)

    with pytest.raises(Refused, match=f"{pipe}/control: No such file"):
        given(found, *ids)
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(pipe / "control"))
        with pytest.raises(Refused, match="no control daemon listens"):
            given(found, *ids)
        daemon.listen(0)
        assert given(found, *ids).folders[0].host_path == str(pipe)


def test_a_gpu_is_offered_whole_or_by_its_memory(tmp_path: Path) -> None:
    host = put(tmp_path, with_gpus(sized(0, 81559)))
    agent = AnyPod()
    of = made(agents=lambda _: agent, shared_memory=SharedMemory(unit="GiB", devices=("0",)))
    found = {resource.name: len(resource.units) for resource, _ in of.resources(host) or ()}
    assert found == {GPU: 7, "aliyun.com/gpu-mem": 79}
    assert agent.shown is not None
    assert [gpu.units for gpu in agent.shown.gpus] == [79]


def test_memory_is_not_offered_where_nobody_tells_whose_it_is(tmp_path: Path) -> None:
    host = put(tmp_path, with_gpus(sized(0, 81559)))
    of = made(shared_memory=SharedMemory(unit="GiB", devices=("0",)))
    found = {resource.name: len(resource.units) for resource, _ in of.resources(host) or ()}
    assert found == {GPU: 7, "aliyun.com/gpu-mem": 0}
    assert [one.rule for one in of.findings()] == ["shared-memory-without-api"]
