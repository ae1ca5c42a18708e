"""A resource is registered with a kubelet, and stays so, whatever becomes of the kubelet and of sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest
from support.kubelet.double import leave_socket
from support.kubelet.offered import offer, registered
from support.kubelet.resources import GPU
from support.waiting import until

from cdigen.kubelet.pods import PodDevices, PodList
from cdigen.kubelet.sockets import sweep

if TYPE_CHECKING:
    from support.kubelet.double import Kubelet

    from cdigen.kubelet.link import Link


def state(link: Link) -> str:
    return link.statuses()[0].state


def test_a_resource_is_registered_listed_and_allocated(kubelet: Kubelet, link: Link) -> None:
    endpoint = registered(kubelet, link, "a", "b")
    assert kubelet.list_of(GPU)["a"] == ("Healthy", (0,))
    options = endpoint.options()
    assert (options.get_preferred_allocation_available, options.pre_start_required) == (True, False)
    assert endpoint.prefer(["a", "b"], [], 1) == ["b"]
    answer = endpoint.allocate("b")
    assert [device.name for device in answer.cdi_devices] == ["nvidia.com/gpu=b"]
    assert dict(answer.annotations) == {"cdi.k8s.io/cdigen_gpu": "nvidia.com/gpu=b"}
    assert dict(answer.envs) == {"SEEN": "1"}
    assert [(node.container_path, node.host_path, node.permissions) for node in answer.devices] == [
        ("/dev/a", "/dev/b", "rw")
    ]
    assert [(mount.container_path, mount.host_path, mount.read_only) for mount in answer.mounts] == [
        ("/c", "/d", True)
    ]
    assert len(kubelet.registered) == 1


def test_a_change_is_sent_as_one_whole_list(kubelet: Kubelet, link: Link) -> None:
    registered(kubelet, link, "a", "b")
    link.offer((offer("a", "b", health="unhealthy", numa=None),))
    assert until(lambda: kubelet.list_of(GPU)["b"] == ("Unhealthy", ()))
    link.offer((offer(),))
    assert until(kubelet.lists)
    assert [sorted(one) for one in kubelet.endpoints[GPU].lists] == [["a", "b"], ["a", "b"], []]
    assert len(kubelet.registered) == 1


def test_a_kubelet_that_comes_later_is_registered_with_after_the_next_look(
    kubelet: Kubelet, link: Link
) -> None:
    link.offer((offer("a"),))
    assert until(lambda: state(link) == "waiting")
    kubelet.start()
    link.look()
    assert until(lambda: kubelet.lists("a"))
    assert len(kubelet.registered) == 1


def test_a_kubelet_that_restarts_is_registered_with_once_and_at_a_fresh_socket(
    kubelet: Kubelet, link: Link
) -> None:
    names = [registered(kubelet, link, "a").name]
    for _ in range(3):
        kubelet.kill()
        kubelet.start()
        link.look()
        assert until(lambda: kubelet.lists("a"))
        names.append(kubelet.endpoints[GPU].name)
    assert len(set(names)) == len(names)
    assert len(kubelet.registered) == len(names)
    assert len(list(kubelet.plugins.glob("cdigen-*.sock"))) == 1


def test_its_own_socket_removed_is_made_anew(kubelet: Kubelet, link: Link) -> None:
    former = registered(kubelet, link, "a")
    (kubelet.plugins / former.name).unlink()
    link.look()
    assert until(lambda: kubelet.endpoints[GPU] is not former and kubelet.lists("a"))
    assert former.ended.is_set()


def test_a_stream_that_ends_is_registered_again(kubelet: Kubelet, link: Link) -> None:
    former = registered(kubelet, link, "a")
    former.stop()
    assert until(lambda: kubelet.endpoints[GPU] is not former and kubelet.lists("a"))


def test_another_plugin_that_has_the_resource_is_not_fought(kubelet: Kubelet, link: Link) -> None:
    registered(kubelet, link, "a")
    kubelet.shown = lambda: {GPU: ["of-another"]}
    leave_socket(kubelet.plugins / "nvidia-gpu.sock")
    kubelet.endpoints[GPU].stop()
    assert until(lambda: state(link) == "taken")
    assert len(kubelet.registered) == 1
    kubelet.shown = dict
    assert until(lambda: kubelet.lists("a"))
    assert len(kubelet.registered) == 2


def test_another_plugin_that_was_there_first_is_not_fought_though_its_ids_are_ours(
    kubelet: Kubelet, link: Link
) -> None:
    kubelet.start()
    kubelet.shown = lambda: {GPU: ["a"]}
    leave_socket(kubelet.plugins / "nvidia-gpu.sock")
    link.offer((offer("a"),))
    assert until(lambda: state(link) == "taken")
    assert kubelet.registered == []
    kubelet.shown = dict
    assert until(lambda: kubelet.lists("a"))
    assert len(kubelet.registered) == 1


def test_a_list_that_changes_while_another_plugin_has_the_resource_is_not_sent(
    kubelet: Kubelet, link: Link
) -> None:
    # As kubelets from 1.25 on, which go on asking the former plugin for its list.
    former = registered(kubelet, link, "a")
    kubelet.shown = lambda: {GPU: ["of-another"]}
    leave_socket(kubelet.plugins / "other.sock")
    assert until(lambda: state(link) == "taken")
    link.offer((offer("a", "b"),))
    kubelet.shown = dict
    (kubelet.plugins / "other.sock").unlink()
    assert until(lambda: kubelet.lists("a", "b"))
    assert former.ended.is_set()
    assert [sorted(one) for one in former.lists] == [["a"]]


def test_a_kubelet_that_cannot_tell_what_it_has_is_registered_again(kubelet: Kubelet, link: Link) -> None:
    kubelet.shows = False
    registered(kubelet, link, "a").stop()
    assert until(lambda: len(kubelet.registered) == 2 and kubelet.lists("a"))


def test_what_the_kubelet_shows_confirms_the_registration(kubelet: Kubelet, link: Link) -> None:
    kubelet.start()
    link.offer((offer("a"),))
    assert until(lambda: link.statuses()[0].is_confirmed)


def test_resources_are_registered_apart_and_one_that_ends_leaves_the_others(
    kubelet: Kubelet, link: Link
) -> None:
    kubelet.start()
    link.offer((offer("a"), offer("b", resource="amd.com/gpu")))
    assert until(lambda: kubelet.lists("a") and kubelet.lists("b", resource="amd.com/gpu"))
    link.offer((offer("a"),))
    assert until(kubelet.endpoints["amd.com/gpu"].ended.is_set)
    assert kubelet.lists("a")
    assert len(kubelet.registered) == 2


def test_a_refusal_and_a_fault_are_told_to_the_kubelet_and_change_nothing(
    kubelet: Kubelet, link: Link
) -> None:
    endpoint = registered(kubelet, link, "a")
    with pytest.raises(grpc.RpcError) as refused:
        endpoint.allocate("taken")
    assert refused.value.details() == "cdigen: another container has taken"
    with pytest.raises(grpc.RpcError) as broken:
        endpoint.allocate("broken")
    assert broken.value.code() is grpc.StatusCode.INTERNAL
    assert endpoint.allocate("a").cdi_devices[0].name == "nvidia.com/gpu=a"


def test_which_container_has_what_is_asked_without_waiting_and_told_with_the_reason_if_not(
    kubelet: Kubelet, link: Link
) -> None:
    told: list[object] = []
    link.ask_pods(told.append)
    assert until(lambda: told)
    assert "UNAVAILABLE" in str(told[0])
    kubelet.has("a", pod="p")
    kubelet.start()
    link.ask_pods(told.append)
    assert until(lambda: len(told) == 2)
    has = PodDevices(namespace="ml", pod="p", container="main", resource=GPU, ids=("a",))
    assert told[1] == PodList(devices=(has,), names=frozenset(("ml/p",)))


def test_sockets_of_a_killed_process_are_swept_up_and_others_stay(kubelet: Kubelet, link: Link) -> None:
    alive = registered(kubelet, link, "a").name
    for name in ("cdigen-x-1.sock", "nvidia-gpu.sock"):
        leave_socket(kubelet.plugins / name)
    (kubelet.plugins / "cdigen-file.sock").write_text("")
    sweep(str(kubelet.plugins))
    names = {entry.name for entry in kubelet.plugins.iterdir()}
    assert names == {alive, "nvidia-gpu.sock", "cdigen-file.sock", "kubelet.sock"}
