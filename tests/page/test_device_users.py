"""The users of the devices: reports of several sources are combined, and missing sources are reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.values.page_samples import NOW_S, all_healthy
from support.values.unhealthy_gpus import example

from cdigen.daemon.stats import VendorStats
from cdigen.device_users.engines import EngineReport, UserContainer
from cdigen.device_users.open_nodes import NO_PTRACE, OpenDeviceNodes
from cdigen.model.profile import DEFAULT
from cdigen.model.stats import DeviceProcess, DeviceStats
from cdigen.page.services import NRI, NriContainer, ServiceStatuses
from cdigen.page.user_reports import DRIVER, ENGINES, OPEN, UserReports, pids_of, users_by_device
from cdigen.page.view import DeviceUser, DeviceUserSource
from cdigen.pipeline.device_names import known_devices
from cdigen.value import replace

if TYPE_CHECKING:
    from typing import Any

GPU = "nvidia.com/gpu"
FIRST, SECOND = ("0000:1b:00.0", ""), ("0000:43:00.0", "")
DEVICES = known_devices(all_healthy(example("debian13-8xh100")), (DEFAULT,))
NOTHING = UserReports(services=ServiceStatuses(), engines={}, running=None)
TRAINER = "pod ml/train, container main"


def report(*containers: UserContainer, **more: Any) -> EngineReport:
    return EngineReport(engine="Docker", containers=containers, **more)


def names(reports: UserReports) -> dict[str, list[tuple[str, str]]]:
    """Return the users of each GPU (by its index) with their sources."""
    found, _ = users_by_device(reports, DEVICES, NOW_S)
    index = {(one.accelerator.address, one.instance): str(one.accelerator.index) for one in DEVICES}
    return {index[key]: [(one.name, one.source) for one in users] for key, users in found.items()}


def test_without_any_report_no_user_is_known_and_the_reason_is_shown() -> None:
    found, sources = users_by_device(NOTHING, DEVICES, NOW_S)
    assert found == {}
    assert [(one.name, one.state) for one in sources] == [(ENGINES, "off")]
    assert "page: {sockets" in sources[0].detail


def test_a_user_that_several_sources_report_is_listed_once_with_all_sources() -> None:
    container = "a" * 64
    nri_containers = NriContainer(
        id=container, devices=(f"{GPU}=0",), user=DeviceUser(name=TRAINER, source=NRI, since_s=1.0)
    )
    stats = DeviceStats(address=FIRST[0], processes=(DeviceProcess(pid=7, name="python", memory=None),))
    reports = UserReports(
        services=ServiceStatuses(
            users=((f"{GPU}=0", DeviceUser(name=TRAINER, source="kubelet")),),
            nri_containers=(nri_containers,),
        ),
        engines={},
        running=frozenset({container}),
        stats=(VendorStats(vendor="nvidia", devices=(stats,)),),
        containers={7: container},
    )
    assert names(reports) == {"0": [(TRAINER, f"kubelet, {NRI}, {DRIVER}")]}
    (user,) = users_by_device(reports, DEVICES, NOW_S)[0][FIRST]
    assert user.since_s == 1.0
    assert pids_of(reports.stats, OpenDeviceNodes(nodes=((9, "195:0"), (7, "195:1")))) == [7, 9]


@pytest.mark.parametrize(
    ("running", "since_s", "is_shown"),
    [
        (frozenset({"c1"}), None, True),
        (frozenset(), None, False),
        (frozenset(), NOW_S - 3600, False),
        (frozenset(), NOW_S - 5, True),  # the container is being created
        (None, None, True),
    ],
)
def test_ended_containers_of_the_nri_plugin_are_left_out(
    running: frozenset[str] | None,
    since_s: float | None,
    is_shown: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    user = DeviceUser(name=TRAINER, source=NRI, since_s=since_s)
    services = ServiceStatuses(
        nri_containers=(NriContainer(id="c1", devices=(f"{GPU}=1",), user=user),),
        sources=(DeviceUserSource(name=NRI, state="responded"),),
    )
    reports = replace(NOTHING, services=services, running=running)
    assert names(reports) == ({"1": [(TRAINER, NRI)]} if is_shown else {})
    detail = users_by_device(reports, DEVICES, NOW_S)[1][0].detail
    assert ("may be listed" in detail) == (running is None)


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
def test_the_cdi_names_and_nodes_of_a_container_determine_its_devices(
    has: dict[str, Any], gpus: list[str]
) -> None:
    reports = replace(
        NOTHING, engines={"/run/docker.sock": report(UserContainer(id="c1", name="web", **has))}
    )
    assert names(reports) == {gpu: [("container web", "Docker")] for gpu in gpus}


def test_a_process_is_listed_as_its_container_if_the_container_is_known() -> None:
    processes = tuple(DeviceProcess(pid=pid, name=f"p{pid}", memory=None) for pid in (1, 2, 3, 4))
    web = report(UserContainer(id="f" * 64, name="web"))
    reports = replace(
        NOTHING,
        engines={"/run/docker.sock": web},
        stats=(VendorStats(vendor="nvidia", devices=(DeviceStats(address=SECOND[0], processes=processes),)),),
        containers={1: "f" * 64, 2: "e" * 64, 3: "e" * 64},
    )
    index = next(str(one.accelerator.index) for one in DEVICES if one.accelerator.address == SECOND[0])
    assert names(reports) == {
        index: [("container web", DRIVER), ("container eeeeeeeeeeee", DRIVER), ("process 4 (p4)", DRIVER)]
    }


def test_a_container_with_an_open_device_node_is_a_user_of_the_device() -> None:
    node = next(one for one in DEVICES if one.accelerator.index == 1).accelerator.nodes
    number = next(f"{each.major}:{each.minor}" for each in node if each.path == "/dev/nvidia1")
    reports = replace(
        NOTHING,
        engines={"/a": report(UserContainer(id="f" * 64, name="web"))},
        # Process 1 is nvidia-persistenced, which is in no container. 195:255 is /dev/nvidiactl.
        open_nodes=OpenDeviceNodes(nodes=((1, number), (2, number), (3, number), (3, "195:255"), (4, "1:3"))),
        containers={2: "f" * 64, 3: "e" * 64, 4: "d" * 64},
    )
    assert names(reports) == {"1": [("container web", OPEN), ("container eeeeeeeeeeee", OPEN)]}


@pytest.mark.parametrize(
    ("problem", "state"), [("", "responded"), ("2 processes", "no-response"), (NO_PTRACE, "off")]
)
def test_the_state_of_the_source_of_open_files_is_reported(problem: str, state: str) -> None:
    source = users_by_device(replace(NOTHING, open_nodes=OpenDeviceNodes(problem=problem)), DEVICES, NOW_S)[
        1
    ][-1]
    assert (source.name, source.state, source.detail) == (OPEN, state, problem)


def test_each_source_has_its_state() -> None:
    reports = replace(
        NOTHING,
        engines={
            "/a": None,
            "/b": EngineReport(engine="/b", problem="no response in time", has_failed=True),
            "/c": report(problem="only 256 containers were read"),
        },
        stats=(VendorStats(vendor="nvidia", problem="NVML hangs"),),
    )
    assert [(one.name, one.state, one.detail) for one in users_by_device(reports, DEVICES, NOW_S)[1]] == [
        ("/a", "no-response", "no response yet"),
        ("/b", "no-response", "no response in time"),
        ("Docker", "responded", "only 256 containers were read"),
        (DRIVER, "no-response", "NVML hangs"),
    ]
