"""What is made of the host for the kubelet, from the daemon's inventory and the specs."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import healthhost
import offering
import pytest

from cdigen.config import KubeletConfig, SharedMemory, SharingRow
from cdigen.frontend.host_state import HostSources, HostState, read_host_state
from cdigen.frontend.status import this_process
from cdigen.host.root import Root
from cdigen.kubelet.desks import Desk
from cdigen.kubelet.listing import ResourceStatus
from cdigen.kubelet.nvidia_settings import with_nvidia_file
from cdigen.kubelet.offering import HostOffering
from cdigen.kubelet.plugin_config import PluginConfig
from cdigen.kubelet.wire.server import Refused
from cdigen.model.profile import DEFAULT
from cdigen.value import replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.kubelet.answers import Answer
    from cdigen.kubelet.resources.memory import MemoryOffer
    from cdigen.kubelet.shares.agent import Agent
    from cdigen.model.inventory import Inventory

GPU = "nvidia.com/gpu"


def put(root: Path, inventories: dict[str, Inventory], *, names: set[str] | None = None) -> HostState:
    """Write the inventory and specs with NAMES, or all, below ROOT; return the host's state."""
    healthhost.save(root, inventories)
    folder = root / "run/cdi"
    folder.mkdir(parents=True, exist_ok=True)
    kinds: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(offering.names_of(inventories) if names is None else names):
        kind, _, device = name.partition("=")
        kinds.setdefault(kind, []).append({"name": device, "containerEdits": {"env": ["A=B"]}})
    for kind, devices in kinds.items():
        document = {"cdiVersion": "0.6.0", "kind": kind, "devices": devices}
        (folder / f"{kind.replace('/', '-')}.json").write_text(json.dumps(document))
    return state(root)


def state(root: Path) -> HostState:
    sources = HostSources(
        host=str(root), specs=str(root), spec_dirs=("/run/cdi",), runs=str(root), run_dir="/run/cdigen"
    )
    return read_host_state(sources, library="1.0.1")


def made(**settings: Any) -> HostOffering:
    return HostOffering(KubeletConfig(**settings), (DEFAULT,), "/var/lib/kubelet")


def desk(of: HostOffering, host: HostState, name: str = GPU) -> Desk:
    found = of.resources(host)
    assert found is not None
    (one,) = (one for resource, one in found if resource.name == name)
    assert isinstance(one, Desk)
    return one


def test_what_was_found_wrong_with_nvidias_file_is_shown(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text("version: v1\nflags: {migStrategy: single, strange: 1}")
    settings = KubeletConfig(nvidia_config="/nvidia.yaml", mig_strategy="none")
    read, found = with_nvidia_file(Root(str(tmp_path)), settings)
    assert read.mig_strategy == "single"
    of = made()
    sources = cast("HostSources", None)
    of.configure(PluginConfig(kubelet_dir="", run_dir="", sources=sources, settings=read), found)
    of.resources(put(tmp_path, healthhost.example()))
    assert [(row["severity"], row["message"]) for row in shown(of)["problems"]] == [
        ("warning", "/nvidia.yaml:2:30: flags.strange is unknown, and passed over")
    ]


def test_a_family_that_no_spec_offers_is_said_as_long_as_none_does(tmp_path: Path) -> None:
    of = made(families=("gds",))
    names = offering.names_of(healthhost.example())
    of.resources(put(tmp_path, healthhost.example()))
    assert [row["rule"] for row in shown(of)["problems"]] == ["resource-family-missing"]
    of.resources(put(tmp_path, healthhost.example(), names={*names, "nvidia.com/gds=all"}))
    assert shown(of)["problems"] == []


def test_a_vendor_that_the_daemon_alone_knows_costs_the_others_nothing(tmp_path: Path) -> None:
    host = healthhost.example()
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


def given(by: Desk, *ids: str) -> Answer:
    return asyncio.run(by.allocate(ids))


def shown(of: HostOffering) -> dict[str, Any]:
    row = ResourceStatus(
        resource=GPU,
        state="registered",
        reason="",
        since_s=0.0,
        socket="",
        count=8,
        healthy=8,
        registrations=1,
        is_confirmed=True,
    )
    of.set_statuses((row,), {})
    return json.loads(json.dumps(of.document(this_process())))  # type: ignore[no-any-return]


def test_a_container_gets_the_names_of_its_gpus(tmp_path: Path) -> None:
    of = made()
    found = desk(of, put(tmp_path, healthhost.example()))
    first, second = (unit.id for unit in found.resource.units[:2])

    assert given(found, first, second).cdi_devices == (f"{GPU}={first}", f"{GPU}={second}")


def test_a_spec_that_vanishes_after_the_list_was_made_is_a_refusal_that_the_journal_has(
    tmp_path: Path,
) -> None:
    of = made()
    found = desk(of, put(tmp_path, healthhost.example()))
    (tmp_path / "run/cdi/nvidia.com-gpu.json").unlink()
    of.resources(state(tmp_path))

    with pytest.raises(Refused, match="in no CDI spec now"):
        given(found, found.resource.units[0].id)

    assert [(row["state"], row["cause"]) for row in shown(of)["journal"]] == [("refused", "no_spec")]
    assert of.counts.refused[GPU, "no_spec"] == 1


def test_an_inventory_that_is_gone_changes_nothing_and_is_said(tmp_path: Path) -> None:
    of = made()
    found = desk(of, put(tmp_path, healthhost.example()))
    (tmp_path / "run/cdigen/inventory.json").unlink()

    assert of.resources(state(tmp_path)) is None
    assert shown(of)["stale"] == ["there is no inventory: the cdigen daemon has not written one"]
    assert len(shown(of)["resources"][0]["devices"]) == 8
    assert given(found, found.resource.units[0].id).names


def test_a_host_without_devices_offers_nothing(tmp_path: Path) -> None:
    assert made().resources(put(tmp_path, {})) == ()


def test_shares_are_spread_or_packed_as_configured(tmp_path: Path) -> None:
    host = put(tmp_path, healthhost.example())
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
    host = put(tmp_path, healthhost.example())
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
    sized = replace(offering.h100(0), memory_mib=81559)
    host = put(tmp_path, offering.with_gpus(sized))
    shared = SharedMemory(unit="GiB", devices=("0",))

    class Known:
        def show(self, shares: MemoryOffer) -> None:
            self.units = [gpu.units for gpu in shares.gpus]

    agent = Known()
    of = HostOffering(
        KubeletConfig(shared_memory=shared),
        (DEFAULT,),
        "/var/lib/kubelet",
        agents=lambda _: cast("Agent", agent),
    )
    found = {resource.name: len(resource.units) for resource, _ in of.resources(host) or ()}
    assert found == {GPU: 7, "aliyun.com/gpu-mem": 79}
    assert agent.units == [79]


def test_memory_is_not_offered_where_nobody_tells_whose_it_is(tmp_path: Path) -> None:
    sized = replace(offering.h100(0), memory_mib=81559)
    host = put(tmp_path, offering.with_gpus(sized))
    of = made(shared_memory=SharedMemory(unit="GiB", devices=("0",)))
    found = {resource.name: len(resource.units) for resource, _ in of.resources(host) or ()}
    assert found == {GPU: 7, "aliyun.com/gpu-mem": 0}
    assert [one.rule for one in of.findings()] == ["shared-memory-without-api"]
