"""The services on the page, except the daemon. The page reads the status file of each service."""

from pathlib import Path
from typing import Any

import pytest
from support.daemon.services import saved, served
from support.kubelet.resources import GPU
from support.values.page_samples import NOW_S

from cdigen.nri import status as nri
from cdigen.nri.injected_containers import InjectedContainer, InjectedContainers
from cdigen.nri.pods import ContainerName
from cdigen.nri.shared_state import NriMetrics
from cdigen.page.services import KUBELET, NRI, NriContainer, read_services
from cdigen.page.view import DeviceUser, DeviceUserSource, ServiceStatus
from cdigen.service.status import this_process
from cdigen.value import replace


def save_plugin_status(folder: Path, **more: Any) -> str:
    """Write the status of a plugin that has just started to FOLDER; return the path of FOLDER."""
    return saved(folder, {**nri.document(nri.PluginStatus(NriMetrics()), this_process()), **more})


def test_without_any_service_no_users_are_known(tmp_path: Path) -> None:
    found = read_services(str(tmp_path / "nri"), str(tmp_path / "kubelet"))
    assert found.services == ()
    assert [source.state for source in found.sources] == ["absent", "absent"]
    assert read_services("", "") == found


def test_containers_in_the_status_of_the_device_plugins_are_users(tmp_path: Path) -> None:
    found = read_services("", served(tmp_path / "kubelet"))
    assert found.users == (
        (f"{GPU}=0", DeviceUser(name="pod ml/train, container main", source="kubelet", since_s=NOW_S - 30)),
    )
    assert [(source.name, source.state) for source in found.sources] == [
        ("kubelet", "responded"),
        (NRI, "absent"),
    ]
    (service,) = found.services
    assert (service.name, service.state, service.status) == (KUBELET, "good", "registered")
    assert service.lines == (f"{GPU}: 2, 1 in use",)
    assert [(refusal.container, refusal.reason) for refusal in service.refusals] == [
        (f"a container that requested {GPU}", "no such device")
    ]


def test_containers_in_the_status_of_the_nri_plugin_are_returned(tmp_path: Path) -> None:
    containers = InjectedContainers()
    name = ContainerName(namespace="ml", pod="train", container="main")
    containers.add(InjectedContainer(id="c1", name=name, devices=(f"{GPU}=0",), at_s=NOW_S))
    containers.add_existing([InjectedContainer(id="c2", name=name, devices=(f"{GPU}=all",))])
    document = nri.document(nri.PluginStatus(NriMetrics(), containers), this_process())
    found = read_services(saved(tmp_path / "nri", document), "")
    user = DeviceUser(name="pod ml/train, container main", source=NRI, since_s=NOW_S)
    assert found.nri_containers == (
        NriContainer(id="c1", devices=(f"{GPU}=0",), user=user),
        NriContainer(id="c2", devices=(f"{GPU}=all",), user=replace(user, since_s=None)),
    )
    assert found.sources[1] == DeviceUserSource(name=NRI, state="responded")


@pytest.mark.parametrize("containers", [None, 5, [5], [{}], [{"id": 1, "at": 7}]])
def test_invalid_containers_of_the_plugin_are_reported(tmp_path: Path, containers: Any) -> None:
    found = read_services(save_plugin_status(tmp_path / "nri", injected_containers=containers), "")
    assert (found.nri_containers, found.sources[1].state) == ((), "no-response")


def test_a_plugin_that_is_not_yet_registered_has_the_state_waiting(tmp_path: Path) -> None:
    (service,) = read_services(save_plugin_status(tmp_path / "nri"), "").services
    assert (service.name, service.state, service.status) == (NRI, "waiting", "connecting")
    assert service.lines == ("since the plugin started: 0 injected containers, 0 refused containers",)


def test_refused_containers_are_listed(tmp_path: Path) -> None:
    row = {
        "at": "2026-11-23T12:00:00.000Z",
        "namespace": "ml",
        "pod": "p",
        "container": "c",
        "reason": "no GPU",
    }
    journal = [{**row, "outcome": "refuse"}, {**row, "outcome": "inject"}]
    (service,) = read_services(save_plugin_status(tmp_path / "nri", journal=journal), "").services
    assert [(one.container, one.reason) for one in service.refusals] == [("pod ml/p, container c", "no GPU")]


def test_a_killed_service_has_the_state_bad_and_reports_no_users(tmp_path: Path) -> None:
    gone = {"pid": 2**22 - 1}
    found = read_services(save_plugin_status(tmp_path / "nri", **gone), served(tmp_path / "kubelet", **gone))
    assert {(service.state, service.status) for service in found.services} == {("bad", "not running")}
    assert "new pods get no devices" in found.services[0].reason
    assert [service.hint for service in found.services] == [
        "start it with 'systemctl start cdigen-kubelet'",
        "start it with 'systemctl start cdigen-nri'",
    ]
    assert found.users == ()
    assert found.sources[0].state == "absent"


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"journal": [1]}, id="rows that are not objects"),
        pytest.param({"resources": {}, "journal": [{}]}, id="rows without members"),
        pytest.param({"resources": [{"resource": "x"}]}, id="resources without members"),
        pytest.param({"journal": None}, id="no journal"),
        pytest.param({"schema": 7}, id="another schema"),
    ],
)
def test_an_invalid_status_does_not_affect_the_other_service(tmp_path: Path, more: dict[str, Any]) -> None:
    found = read_services(save_plugin_status(tmp_path / "nri"), served(tmp_path / "kubelet", **more))
    assert [(service.name, service.state) for service in found.services] == [
        (KUBELET, "bad"),
        (NRI, "waiting"),
    ]
    assert found.users == ()
    assert isinstance(found.services[0], ServiceStatus)
