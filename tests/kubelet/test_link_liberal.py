"""Kubelets that are other than the one that we know, and right all the same."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from support.kubelet.double import PLUGIN_SERVICE
from support.kubelet.offered import offer, registered
from support.kubelet.resources import GPU
from support.waiting import PATIENCE_S, until

from cdigen.kubelet.wire.messages import PLUGIN

if TYPE_CHECKING:
    from support.kubelet.double import Kubelet

    from cdigen.kubelet.link import Link

# A field of a later release: number 100, a string.
LATER = bytes((0xA2, 0x06, 5)) + b"later"


def asked(channel: Any, method: str, data: bytes, answer: str) -> Any:
    return PLUGIN[answer].FromString(channel.unary_unary(PLUGIN_SERVICE + method)(data, timeout=PATIENCE_S))


@pytest.mark.parametrize(
    "options",
    [
        # What releases of grpc-go say whom they mean: the path, escaped or not, or nothing of it.
        {"grpc.default_authority": "/var/lib/kubelet/device-plugins/cdigen.sock"},
        {"grpc.default_authority": "%2Fvar%2Flib%2Fkubelet%2Fdevice-plugins%2Fcdigen.sock"},
        {"grpc.default_authority": "localhost"},
        {"grpc.primary_user_agent": "grpc-go/1.79.3"},
        {"grpc.default_compression_algorithm": 2},
        {"grpc.http2.hpack_table_size.encoder": 0},
        {"grpc.http2.max_frame_size": 1 << 20},
        {"grpc.keepalive_time_ms": 10, "grpc.keepalive_permit_without_calls": 1},
    ],
    ids=lambda options: next(iter(options)),
)
def test_whatever_a_connection_is_like_calls_are_answered(
    kubelet: Kubelet, link: Link, options: dict[str, object]
) -> None:
    endpoint = registered(kubelet, link, "a")
    several = PLUGIN["AllocateRequest"](container_requests=[{"device_ids": ["a"]}] * 500)
    with endpoint.connect(options) as channel:
        watched = channel.unary_stream(PLUGIN_SERVICE + "ListAndWatch")(b"")
        assert PLUGIN["ListAndWatchResponse"].FromString(next(watched)).devices[0].id == "a"
        found = asked(channel, "Allocate", several.SerializeToString(), "AllocateResponse")
        assert len(found.container_responses) == len(several.container_requests)
        watched.cancel()


def test_messages_may_have_any_number_of_containers_and_fields_that_we_do_not_know(
    kubelet: Kubelet, link: Link
) -> None:
    endpoint = registered(kubelet, link, "a", "b")
    requests = [{"device_ids": ["a"]}, {"device_ids": []}, {"device_ids": ["b", "a"]}]
    wanted = [
        {"available_device_ids": ["a", "b"], "allocation_size": 1},
        {"available_device_ids": ["b"], "allocation_size": 1},
    ]
    allocate = PLUGIN["AllocateRequest"](container_requests=requests).SerializeToString()
    prefer = PLUGIN["PreferredAllocationRequest"](container_requests=wanted).SerializeToString()
    with endpoint.connect() as channel:
        given = asked(channel, "Allocate", allocate + LATER, "AllocateResponse")
        names = [[device.name for device in one.cdi_devices] for one in given.container_responses]
        assert names == [[f"{GPU}=a"], [], [f"{GPU}=b", f"{GPU}=a"]]
        found = asked(channel, "GetPreferredAllocation", prefer + LATER, "PreferredAllocationResponse")
        assert [list(one.device_ids) for one in found.container_responses] == [["b"], ["b"]]
        assert not asked(channel, "Allocate", b"", "AllocateResponse").container_responses
        for method, answer in (
            ("GetDevicePluginOptions", "DevicePluginOptions"),
            ("PreStartContainer", "Empty"),
        ):
            asked(channel, method, LATER, answer)
        watched = channel.unary_stream(PLUGIN_SERVICE + "ListAndWatch")(LATER)
        assert len(PLUGIN["ListAndWatchResponse"].FromString(next(watched)).devices) == len(("a", "b"))
        watched.cancel()
    assert len(kubelet.registered) == 1


def test_a_kubelet_that_never_answers_register_but_asks_for_the_list_is_served(
    kubelet: Kubelet, link: Link
) -> None:
    right, hangs = kubelet.register, threading.Event()

    def forget_to_answer(request: Any, context: Any) -> None:
        right(request, context)
        hangs.wait(2 * PATIENCE_S)

    kubelet.register = forget_to_answer
    assert registered(kubelet, link, "a").allocate("a").cdi_devices
    link.offer((offer("a", "b"),))
    assert until(lambda: kubelet.lists("a", "b"))
    assert until(lambda: link.statuses()[0].state == "registered")
    assert len(kubelet.registered) == 1
    hangs.set()


def test_a_kubelet_that_asks_for_nothing_but_the_list_is_served(kubelet: Kubelet, link: Link) -> None:
    seen: list[str] = []

    def watch_alone(request: Any, _: Any) -> None:
        channel = grpc.insecure_channel(f"unix:{kubelet.plugins / request.endpoint}")
        data = next(channel.unary_stream(PLUGIN_SERVICE + "ListAndWatch")(b""))
        seen.extend(device.id for device in PLUGIN["ListAndWatchResponse"].FromString(data).devices)
        kept.append(channel)

    kept: list[Any] = []
    kubelet.register = watch_alone
    kubelet.start()
    link.offer((offer("a"),))
    assert until(lambda: seen == ["a"])
    for channel in kept:
        channel.close()


def test_a_kubelets_socket_that_is_put_in_place_by_a_rename_is_another_one(
    kubelet: Kubelet, link: Link
) -> None:
    former = registered(kubelet, link, "a")
    path = kubelet.plugins / "kubelet.sock"
    path.rename(kubelet.plugins / "aside")
    kubelet.serve_registration()
    path.rename(kubelet.plugins / "new")
    (kubelet.plugins / "aside").rename(path)
    link.look()
    # This is the one that it had.
    (kubelet.plugins / "new").rename(path)
    link.look()
    assert until(lambda: kubelet.endpoints[GPU] is not former and kubelet.lists("a"))
    assert len(kubelet.registered) == 1 + 1
