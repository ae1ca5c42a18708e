"""Kubelets with a behaviour that is valid but differs from the behaviour of known releases."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from support.kubelet.advertised import listing, registered
from support.kubelet.double import PLUGIN_SERVICE
from support.kubelet.resources import GPU
from support.waiting import PATIENCE_S, until

from cdigen.kubelet.wire.messages import PLUGIN

if TYPE_CHECKING:
    from support.kubelet.double import Kubelet

    from cdigen.kubelet.registration.link import KubeletLink

# The encoding of a field of a later release. Its number is 100, and its value is a string.
LATER = bytes((0xA2, 0x06, 5)) + b"later"


def call(channel: Any, method: str, data: bytes, answer: str) -> Any:
    return PLUGIN[answer].FromString(channel.unary_unary(PLUGIN_SERVICE + method)(data, timeout=PATIENCE_S))


@pytest.mark.parametrize(
    "options",
    [
        # The authorities that releases of grpc-go send: the socket's path, the escaped path, or localhost.
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
def test_calls_are_answered_with_any_valid_options_of_the_connection(
    kubelet: Kubelet, link: KubeletLink, options: dict[str, object]
) -> None:
    endpoint = registered(kubelet, link, "a")
    several = PLUGIN["AllocateRequest"](container_requests=[{"device_ids": ["a"]}] * 500)
    with endpoint.connect(options) as channel:
        watched = channel.unary_stream(PLUGIN_SERVICE + "ListAndWatch")(b"")
        assert PLUGIN["ListAndWatchResponse"].FromString(next(watched)).devices[0].id == "a"
        found = call(channel, "Allocate", several.SerializeToString(), "AllocateResponse")
        assert len(found.container_responses) == len(several.container_requests)
        watched.cancel()


def test_messages_may_have_any_number_of_containers_and_unknown_fields(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    endpoint = registered(kubelet, link, "a", "b")
    requests = [{"device_ids": ["a"]}, {"device_ids": []}, {"device_ids": ["b", "a"]}]
    preferences = [
        {"available_device_ids": ["a", "b"], "allocation_size": 1},
        {"available_device_ids": ["b"], "allocation_size": 1},
    ]
    allocate = PLUGIN["AllocateRequest"](container_requests=requests).SerializeToString()
    prefer = PLUGIN["PreferredAllocationRequest"](container_requests=preferences).SerializeToString()
    with endpoint.connect() as channel:
        allocated = call(channel, "Allocate", allocate + LATER, "AllocateResponse")
        names = [[device.name for device in one.cdi_devices] for one in allocated.container_responses]
        assert names == [[f"{GPU}=a"], [], [f"{GPU}=b", f"{GPU}=a"]]
        found = call(channel, "GetPreferredAllocation", prefer + LATER, "PreferredAllocationResponse")
        assert [list(one.device_ids) for one in found.container_responses] == [["b"], ["b"]]
        assert not call(channel, "Allocate", b"", "AllocateResponse").container_responses
        for method, answer in (
            ("GetDevicePluginOptions", "DevicePluginOptions"),
            ("PreStartContainer", "Empty"),
        ):
            call(channel, method, LATER, answer)
        watched = channel.unary_stream(PLUGIN_SERVICE + "ListAndWatch")(LATER)
        assert len(PLUGIN["ListAndWatchResponse"].FromString(next(watched)).devices) == len(("a", "b"))
        watched.cancel()
    assert len(kubelet.registered) == 1


def test_a_kubelet_that_does_not_respond_to_register_but_requests_the_list_is_served(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    accept, hangs = kubelet.register, threading.Event()

    def accept_without_response(request: Any, context: Any) -> None:
        accept(request, context)
        hangs.wait(2 * PATIENCE_S)

    kubelet.register = accept_without_response
    assert registered(kubelet, link, "a").allocate("a").cdi_devices
    link.advertise((listing("a", "b"),))
    assert until(lambda: kubelet.lists("a", "b"))
    assert until(lambda: link.statuses()[0].state == "registered")
    assert len(kubelet.registered) == 1
    hangs.set()


def test_a_kubelet_that_requests_only_the_list_is_served(kubelet: Kubelet, link: KubeletLink) -> None:
    ids: list[str] = []

    def watch_only(request: Any, _: Any) -> None:
        channel = grpc.insecure_channel(f"unix:{kubelet.plugins / request.endpoint}")
        data = next(channel.unary_stream(PLUGIN_SERVICE + "ListAndWatch")(b""))
        ids.extend(device.id for device in PLUGIN["ListAndWatchResponse"].FromString(data).devices)
        kept.append(channel)

    kept: list[Any] = []
    kubelet.register = watch_only
    kubelet.start()
    link.advertise((listing("a"),))
    assert until(lambda: ids == ["a"])
    for channel in kept:
        channel.close()


def test_a_new_kubelet_socket_that_is_renamed_into_place_causes_a_registration(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    former = registered(kubelet, link, "a")
    path = kubelet.plugins / "kubelet.sock"
    path.rename(kubelet.plugins / "aside")
    kubelet.serve_registration()
    path.rename(kubelet.plugins / "new")
    (kubelet.plugins / "aside").rename(path)
    # The path has the former socket again, so the link does not register.
    link.check_folder()
    (kubelet.plugins / "new").rename(path)
    link.check_folder()
    assert until(lambda: kubelet.endpoints[GPU] is not former and kubelet.lists("a"))
    assert len(kubelet.registered) == 1 + 1
