"""KubeletLink registers a resource, and registers it again after a kubelet restart or a removed socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest
from support.kubelet.advertised import listing, registered
from support.kubelet.double import leave_socket
from support.kubelet.resources import GPU
from support.waiting import until

from cdigen.kubelet.pods import PodDevices, PodList
from cdigen.kubelet.registration.sockets import remove_dead_sockets

if TYPE_CHECKING:
    from support.kubelet.double import Kubelet

    from cdigen.kubelet.registration.link import KubeletLink


def state(link: KubeletLink) -> str:
    return link.statuses()[0].state


def test_a_resource_is_registered_listed_and_allocated(kubelet: Kubelet, link: KubeletLink) -> None:
    endpoint = registered(kubelet, link, "a", "b")
    assert kubelet.list_of(GPU)["a"] == ("Healthy", (0,))
    options = endpoint.options()
    assert (options.get_preferred_allocation_available, options.pre_start_required) == (True, False)
    assert endpoint.preferred_allocation(["a", "b"], [], 1) == ["b"]
    answer = endpoint.allocate("b")
    assert [device.name for device in answer.cdi_devices] == ["nvidia.com/gpu=b"]
    assert dict(answer.annotations) == {"cdi.k8s.io/cdigen_gpu": "nvidia.com/gpu=b"}
    assert dict(answer.envs) == {"VARIABLE": "1"}
    assert [(node.container_path, node.host_path, node.permissions) for node in answer.devices] == [
        ("/dev/a", "/dev/b", "rw")
    ]
    assert [(mount.container_path, mount.host_path, mount.read_only) for mount in answer.mounts] == [
        ("/c", "/d", False)
    ]
    assert len(kubelet.registered) == 1


def test_each_change_of_devices_is_sent_as_one_complete_list(kubelet: Kubelet, link: KubeletLink) -> None:
    registered(kubelet, link, "a", "b")
    link.advertise((listing("a", "b", health="unhealthy", numa=None),))
    assert until(lambda: kubelet.list_of(GPU)["b"] == ("Unhealthy", ()))
    link.advertise((listing(),))
    assert until(kubelet.lists)
    assert [sorted(one) for one in kubelet.endpoints[GPU].lists] == [["a", "b"], ["a", "b"], []]
    assert len(kubelet.registered) == 1


def test_the_link_registers_with_a_kubelet_that_starts_later(kubelet: Kubelet, link: KubeletLink) -> None:
    link.advertise((listing("a"),))
    assert until(lambda: state(link) == "waiting")
    kubelet.start()
    link.check_folder()
    assert until(lambda: kubelet.lists("a"))
    assert len(kubelet.registered) == 1


def test_the_link_registers_once_on_a_new_socket_after_each_restart_of_the_kubelet(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    names = [registered(kubelet, link, "a").name]
    for _ in range(3):
        kubelet.kill()
        kubelet.start()
        link.check_folder()
        assert until(lambda: kubelet.lists("a"))
        names.append(kubelet.endpoints[GPU].name)
    assert len(set(names)) == len(names)
    assert len(kubelet.registered) == len(names)
    assert len(list(kubelet.plugins.glob("cdigen-*.sock"))) == 1


def test_a_removed_socket_of_cdigen_is_made_again(kubelet: Kubelet, link: KubeletLink) -> None:
    former = registered(kubelet, link, "a")
    (kubelet.plugins / former.name).unlink()
    link.check_folder()
    assert until(lambda: kubelet.endpoints[GPU] is not former and kubelet.lists("a"))
    assert former.ended.is_set()


def test_the_resource_is_registered_again_after_its_stream_has_ended(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    former = registered(kubelet, link, "a")
    former.stop()
    assert until(lambda: kubelet.endpoints[GPU] is not former and kubelet.lists("a"))


def test_the_link_yields_to_another_plugin_that_has_the_resource(kubelet: Kubelet, link: KubeletLink) -> None:
    registered(kubelet, link, "a")
    kubelet.shown = lambda: {GPU: ["of-another"]}
    leave_socket(kubelet.plugins / "nvidia-gpu.sock")
    kubelet.endpoints[GPU].stop()
    assert until(lambda: state(link) == "claimed-by-other")
    assert len(kubelet.registered) == 1
    kubelet.shown = dict
    assert until(lambda: kubelet.lists("a"))
    assert len(kubelet.registered) == 2


def test_the_link_yields_to_an_earlier_plugin_with_the_same_ids(kubelet: Kubelet, link: KubeletLink) -> None:
    kubelet.start()
    kubelet.shown = lambda: {GPU: ["a"]}
    leave_socket(kubelet.plugins / "nvidia-gpu.sock")
    link.advertise((listing("a"),))
    assert until(lambda: state(link) == "claimed-by-other")
    assert kubelet.registered == []
    kubelet.shown = dict
    assert until(lambda: kubelet.lists("a"))
    assert len(kubelet.registered) == 1


def test_a_list_that_changes_while_another_plugin_has_the_resource_is_not_sent(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    # Kubelets from 1.25 on continue to read the list of the former plugin.
    former = registered(kubelet, link, "a")
    kubelet.shown = lambda: {GPU: ["of-another"]}
    leave_socket(kubelet.plugins / "other.sock")
    assert until(lambda: state(link) == "claimed-by-other")
    link.advertise((listing("a", "b"),))
    kubelet.shown = dict
    (kubelet.plugins / "other.sock").unlink()
    assert until(lambda: kubelet.lists("a", "b"))
    assert former.ended.is_set()
    assert [sorted(one) for one in former.lists] == [["a"]]


def test_a_kubelet_without_get_allocatable_gets_another_registration_after_its_stream_ends(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    kubelet.shows = False
    registered(kubelet, link, "a").stop()
    assert until(lambda: len(kubelet.registered) == 2 and kubelet.lists("a"))


def test_the_allocatable_devices_of_the_kubelet_confirm_the_registration(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    kubelet.start()
    link.advertise((listing("a"),))
    assert until(lambda: link.statuses()[0].is_confirmed)


def test_resources_are_registered_separately_and_a_removal_affects_no_other_resource(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    kubelet.start()
    link.advertise((listing("a"), listing("b", resource="amd.com/gpu")))
    assert until(lambda: kubelet.lists("a") and kubelet.lists("b", resource="amd.com/gpu"))
    link.advertise((listing("a"),))
    assert until(kubelet.endpoints["amd.com/gpu"].ended.is_set)
    assert kubelet.lists("a")
    assert len(kubelet.registered) == 2


def test_the_kubelet_gets_refusals_and_faults_as_errors(kubelet: Kubelet, link: KubeletLink) -> None:
    endpoint = registered(kubelet, link, "a")
    with pytest.raises(grpc.RpcError) as refused:
        endpoint.allocate("refused")
    assert refused.value.details() == "cdigen: another container has it"
    with pytest.raises(grpc.RpcError) as broken:
        endpoint.allocate("broken")
    assert broken.value.code() is grpc.StatusCode.INTERNAL
    assert endpoint.allocate("a").cdi_devices[0].name == "nvidia.com/gpu=a"


def test_request_pods_passes_the_list_or_an_error_to_the_callback(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    results: list[object] = []
    link.request_pods(results.append)
    assert until(lambda: results)
    assert "UNAVAILABLE" in str(results[0])
    kubelet.has("a", pod="p")
    kubelet.start()
    link.request_pods(results.append)
    assert until(lambda: len(results) == 2)
    has = PodDevices(namespace="ml", pod="p", container="main", resource=GPU, ids=("a",))
    assert results[1] == PodList(devices=(has,), names=frozenset(("ml/p",)))


def test_sockets_of_a_killed_process_are_removed_and_other_files_stay(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    alive = registered(kubelet, link, "a").name
    for name in ("cdigen-x-1.sock", "nvidia-gpu.sock"):
        leave_socket(kubelet.plugins / name)
    (kubelet.plugins / "cdigen-file.sock").write_text("")
    remove_dead_sockets(str(kubelet.plugins))
    names = {entry.name for entry in kubelet.plugins.iterdir()}
    assert names == {alive, "nvidia-gpu.sock", "cdigen-file.sock", "kubelet.sock"}
