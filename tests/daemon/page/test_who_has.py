"""Who has which device: what several know is put together, and what nobody knows is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.values.page_samples import NOW_S, well
from support.values.unhealthy_gpus import example

from cdigen.daemon.figures import VendorFigures
from cdigen.daemon.page.holders import DRIVER, ENGINES, OPEN, Heard, pids_of, who_has
from cdigen.daemon.page.peers import NRI, Booked, Peers
from cdigen.daemon.page.view import Holder, HolderSource
from cdigen.holders.model import Container, Told
from cdigen.holders.open_nodes import NO_RIGHT, Open
from cdigen.model.figures import DeviceFigures, DeviceProcess
from cdigen.model.profile import DEFAULT
from cdigen.pipeline.device_names import known_devices
from cdigen.value import replace

if TYPE_CHECKING:
    from typing import Any

GPU = "nvidia.com/gpu"
FIRST, SECOND = ("0000:1b:00.0", ""), ("0000:43:00.0", "")
DEVICES = known_devices(well(example("debian13-8xh100")), (DEFAULT,))
NOTHING = Heard(peers=Peers(), engines={}, living=None)
TRAINER = "pod ml/train, container main"


def told(*containers: Container, **more: Any) -> Told:
    return Told(engine="Docker", containers=containers, **more)


def names(heard: Heard) -> dict[str, list[tuple[str, str]]]:
    """Return who has which GPU (by its index) by whose word."""
    found, _ = who_has(heard, DEVICES, NOW_S)
    index = {(one.accelerator.address, one.instance): str(one.accelerator.index) for one in DEVICES}
    return {index[key]: [(one.name, one.said_by) for one in those] for key, those in found.items()}


def test_without_any_word_nobody_is_known_and_why_is_said() -> None:
    found, sources = who_has(NOTHING, DEVICES, NOW_S)
    assert found == {}
    assert [(one.name, one.state) for one in sources] == [(ENGINES, "off")]
    assert "page: {sockets" in sources[0].detail


def test_one_that_several_know_is_named_once_with_all_of_them() -> None:
    container = "a" * 64
    booked = Booked(
        id=container, devices=(f"{GPU}=0",), holder=Holder(name=TRAINER, said_by=NRI, since_s=1.0)
    )
    figures = DeviceFigures(address=FIRST[0], processes=(DeviceProcess(pid=7, name="python", memory=None),))
    heard = Heard(
        peers=Peers(holders=((f"{GPU}=0", Holder(name=TRAINER, said_by="kubelet")),), booked=(booked,)),
        engines={},
        living=frozenset({container}),
        figures=(VendorFigures(vendor="nvidia", devices=(figures,)),),
        containers={7: container},
    )
    assert names(heard) == {"0": [(TRAINER, f"kubelet, {NRI}, {DRIVER}")]}
    (holder,) = who_has(heard, DEVICES, NOW_S)[0][FIRST]
    assert holder.since_s == 1.0
    assert pids_of(heard.figures, Open(nodes=((9, "195:0"), (7, "195:1")))) == [7, 9]


@pytest.mark.parametrize(
    ("living", "since_s", "is_shown"),
    [
        (frozenset({"c1"}), None, True),
        (frozenset(), None, False),
        (frozenset(), NOW_S - 3600, False),
        (frozenset(), NOW_S - 5, True),  # it is being created
        (None, None, True),
    ],
)
def test_who_has_ended_is_not_in_the_plugins_book(
    living: frozenset[str] | None,
    since_s: float | None,
    is_shown: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    holder = Holder(name=TRAINER, said_by=NRI, since_s=since_s)
    peers = Peers(
        booked=(Booked(id="c1", devices=(f"{GPU}=1",), holder=holder),),
        sources=(HolderSource(name=NRI, state="asked"),),
    )
    heard = replace(NOTHING, peers=peers, living=living)
    assert names(heard) == ({"1": [(TRAINER, NRI)]} if is_shown else {})
    detail = who_has(heard, DEVICES, NOW_S)[1][0].detail
    assert ("may be among them" in detail) == (living is None)


@pytest.mark.parametrize(
    ("has", "gpus"),
    [
        ({"devices": (f"{GPU}=1",)}, ["1"]),
        ({"devices": (f"{GPU}=all",)}, [str(n) for n in range(8)]),
        ({"devices": (f"{GPU}=77", "no name", "")}, []),
        ({"nodes": ("/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm")}, ["1"]),
        ({"nodes": ("/dev", "/dev/", "/", "", "/etc")}, []),
        ({"devices": (f"{GPU}=1",), "nodes": ("/dev/nvidia1",)}, ["1"]),
    ],
)
def test_containers_of_engines_have_what_their_names_and_nodes_give(
    has: dict[str, Any], gpus: list[str]
) -> None:
    heard = replace(NOTHING, engines={"/run/docker.sock": told(Container(id="c1", name="web", **has))})
    assert names(heard) == {gpu: [("container web", "Docker")] for gpu in gpus}


def test_processes_are_named_by_their_containers_as_far_as_those_are_known() -> None:
    processes = tuple(DeviceProcess(pid=pid, name=f"p{pid}", memory=None) for pid in (1, 2, 3, 4))
    web = told(Container(id="f" * 64, name="web"))
    heard = replace(
        NOTHING,
        engines={"/run/docker.sock": web},
        figures=(
            VendorFigures(vendor="nvidia", devices=(DeviceFigures(address=SECOND[0], processes=processes),)),
        ),
        containers={1: "f" * 64, 2: "e" * 64, 3: "e" * 64},
    )
    index = next(str(one.accelerator.index) for one in DEVICES if one.accelerator.address == SECOND[0])
    assert names(heard) == {
        index: [("container web", DRIVER), ("container eeeeeeeeeeee", DRIVER), ("process 4 (p4)", DRIVER)]
    }


def test_containers_whose_processes_have_nodes_open_have_the_device() -> None:
    node = next(one for one in DEVICES if one.accelerator.index == 1).accelerator.nodes
    number = next(f"{each.major}:{each.minor}" for each in node if each.path == "/dev/nvidia1")
    heard = replace(
        NOTHING,
        engines={"/a": told(Container(id="f" * 64, name="web"))},
        # The first is nvidia-persistenced's, which is in no container; 195:255 is /dev/nvidiactl.
        open_nodes=Open(nodes=((1, number), (2, number), (3, number), (3, "195:255"), (4, "1:3"))),
        containers={2: "f" * 64, 3: "e" * 64, 4: "d" * 64},
    )
    assert names(heard) == {"1": [("container web", OPEN), ("container eeeeeeeeeeee", OPEN)]}


@pytest.mark.parametrize(("problem", "state"), [("", "asked"), ("2 processes", "silent"), (NO_RIGHT, "off")])
def test_without_the_right_to_look_it_is_said(problem: str, state: str) -> None:
    source = who_has(replace(NOTHING, open_nodes=Open(problem=problem)), DEVICES, NOW_S)[1][-1]
    assert (source.name, source.state, source.detail) == (OPEN, state, problem)


def test_sources_say_who_was_heard() -> None:
    heard = replace(
        NOTHING,
        engines={
            "/a": None,
            "/b": Told(engine="/b", problem="no answer in time", is_silent=True),
            "/c": told(problem="only 256 containers were looked at"),
        },
        figures=(VendorFigures(vendor="nvidia", problem="NVML hangs"),),
    )
    assert [(one.name, one.state, one.detail) for one in who_has(heard, DEVICES, NOW_S)[1]] == [
        ("/a", "silent", "no answer yet"),
        ("/b", "silent", "no answer in time"),
        ("Docker", "asked", "only 256 containers were looked at"),
        (DRIVER, "silent", "NVML hangs"),
    ]
