"""What the page says of the processes beside the daemon, by status files as these write them."""

from pathlib import Path
from typing import Any

import pytest
from support.daemon.peers import saved, served
from support.kubelet.resources import GPU
from support.values.page_samples import NOW_S

from cdigen.daemon.page.peers import KUBELET, NRI, Booked, read_peers
from cdigen.daemon.page.view import Holder, HolderSource, Peer
from cdigen.frontend.status import this_process
from cdigen.nri import status as nri
from cdigen.nri.book import Book, Held
from cdigen.nri.pods import ContainerName
from cdigen.nri.shared_state import NriMetrics
from cdigen.value import replace


def plugged(folder: Path, **more: Any) -> str:
    """Let the folder have the status of a plugin that has just started."""
    return saved(folder, {**nri.document(nri.PluginStatus(NriMetrics()), this_process()), **more})


def test_where_neither_has_run_nobody_knows_who_has_what(tmp_path: Path) -> None:
    found = read_peers(str(tmp_path / "nri"), str(tmp_path / "kubelet"))
    assert found.peers == ()
    assert [source.state for source in found.sources] == ["absent", "absent"]
    assert read_peers("", "") == found


def test_the_kubelets_devices_are_held_by_containers(tmp_path: Path) -> None:
    found = read_peers("", served(tmp_path / "kubelet"))
    assert found.holders == (
        (f"{GPU}=0", Holder(name="pod ml/train, container main", said_by="kubelet", since_s=NOW_S - 30)),
    )
    assert [(source.name, source.state) for source in found.sources] == [
        ("kubelet", "asked"),
        (NRI, "absent"),
    ]
    (peer,) = found.peers
    assert (peer.name, peer.state, peer.word) == (KUBELET, "good", "registered")
    assert peer.lines == (f"{GPU}: 2, 1 in use",)
    assert [(refusal.who, refusal.reason) for refusal in peer.refusals] == [
        (f"a container that asked for {GPU}", "no such device")
    ]


def test_the_plugins_book_is_read(tmp_path: Path) -> None:
    book = Book()
    name = ContainerName(namespace="ml", pod="train", container="main")
    book.note(Held(id="c1", name=name, devices=(f"{GPU}=0",), at_s=NOW_S))
    book.add([Held(id="c2", name=name, devices=(f"{GPU}=all",))])
    document = nri.document(nri.PluginStatus(NriMetrics(), book), this_process())
    found = read_peers(saved(tmp_path / "nri", document), "")
    holder = Holder(name="pod ml/train, container main", said_by=NRI, since_s=NOW_S)
    assert found.booked == (
        Booked(id="c1", devices=(f"{GPU}=0",), holder=holder),
        Booked(id="c2", devices=(f"{GPU}=all",), holder=replace(holder, since_s=None)),
    )
    assert found.sources[1] == HolderSource(name=NRI, state="asked")


@pytest.mark.parametrize("holders", [None, 5, [5], [{}], [{"id": 1, "at": 7}]])
def test_a_book_that_cannot_be_read_says_so(tmp_path: Path, holders: Any) -> None:
    found = read_peers(plugged(tmp_path / "nri", holders=holders), "")
    assert (found.booked, found.sources[1].state) == ((), "silent")


def test_a_plugin_that_registers_is_waited_for(tmp_path: Path) -> None:
    (peer,) = read_peers(plugged(tmp_path / "nri"), "").peers
    assert (peer.name, peer.state, peer.word) == (NRI, "waiting", "connecting")
    assert peer.lines == ("0 containers given devices, 0 refused since it started",)


def test_refused_containers_are_told(tmp_path: Path) -> None:
    row = {
        "at": "2026-11-23T12:00:00.000Z",
        "namespace": "ml",
        "pod": "p",
        "container": "c",
        "reason": "no GPU",
    }
    journal = [{**row, "outcome": "refuse"}, {**row, "outcome": "inject"}]
    (peer,) = read_peers(plugged(tmp_path / "nri", journal=journal), "").peers
    assert [(one.who, one.reason) for one in peer.refusals] == [("pod ml/p, container c", "no GPU")]


def test_one_that_was_killed_is_bad_news_and_no_source(tmp_path: Path) -> None:
    gone = {"pid": 2**22 - 1}
    found = read_peers(plugged(tmp_path / "nri", **gone), served(tmp_path / "kubelet", **gone))
    assert {(peer.state, peer.word) for peer in found.peers} == {("bad", "not running")}
    assert "new pods get no devices" in found.peers[0].reason
    assert found.holders == ()
    assert found.sources[0].state == "absent"


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"journal": [1]}, id="rows that are none"),
        pytest.param({"resources": {}, "journal": [{}]}, id="rows without members"),
        pytest.param({"resources": [{"resource": "x"}]}, id="resources without members"),
        pytest.param({"journal": None}, id="no journal"),
        pytest.param({"schema": 7}, id="another schema"),
    ],
)
def test_what_is_no_status_of_ours_costs_nothing_else(tmp_path: Path, more: dict[str, Any]) -> None:
    found = read_peers(plugged(tmp_path / "nri"), served(tmp_path / "kubelet", **more))
    assert [(peer.name, peer.state) for peer in found.peers] == [(KUBELET, "bad"), (NRI, "waiting")]
    assert found.holders == ()
    assert isinstance(found.peers[0], Peer)
