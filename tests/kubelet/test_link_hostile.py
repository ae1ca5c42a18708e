"""Kubelets that hang, refuse calls or send garbage, and folders in which no socket can be made."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from support.kubelet.advertised import linked, listing, registered
from support.kubelet.double import PLUGIN_SERVICE, Kubelet
from support.kubelet.resources import GPU
from support.waiting import PATIENCE_S, limited, until

from cdigen.kubelet.registration.state_machine import LIST_REQUEST_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cdigen.kubelet.registration.link import KubeletLink

AMD = "amd.com/gpu"


def status(link: KubeletLink, resource: str = GPU) -> tuple[str, str]:
    return {one.resource: (one.state, one.reason) for one in link.statuses()}[resource]


def test_a_refused_registration_is_repeated_and_its_reason_is_in_the_status(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    accept = kubelet.register

    def refuse(_: object, context: Any) -> None:
        context.abort(grpc.StatusCode.UNKNOWN, "the ResourceName is\ninvalid")

    kubelet.register = refuse
    kubelet.start()
    link.advertise((listing("a"),))
    assert until(lambda: status(link) == ("backoff", "UNKNOWN: the ResourceName is invalid"))
    kubelet.register = accept
    assert until(lambda: kubelet.lists("a"))


def test_a_registration_that_hangs_does_not_affect_other_resources(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    accept, hangs = kubelet.register, threading.Event()

    def hang(request: Any, context: Any) -> None:
        if request.resource_name == GPU:
            hangs.wait(2 * PATIENCE_S)
        else:
            accept(request, context)

    kubelet.register = hang
    kubelet.start()
    link.advertise((listing("a"), listing("b", resource=AMD)))
    assert until(lambda: kubelet.lists("b", resource=AMD))
    assert until(lambda: status(link)[0] == "registering")
    assert kubelet.endpoints[AMD].allocate("b").cdi_devices
    hangs.set()


def test_the_link_registers_again_if_the_kubelet_does_not_request_the_list(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    kubelet.watches = False
    kubelet.start()
    link.advertise((listing("a"),))
    assert until(lambda: status(link)[0] == "unconfirmed")
    kubelet.watches = True
    assert until(lambda: kubelet.lists("a"))
    gap_s = kubelet.registered[1][0] - kubelet.registered[0][0]
    assert gap_s >= LIST_REQUEST_S


def test_the_link_registers_after_the_kubelet_replaces_a_socket_that_does_not_use_grpc(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    kubelet.plugins.mkdir()
    path = str(kubelet.plugins / "kubelet.sock")
    with socket.socket(socket.AF_UNIX) as garbage:
        garbage.bind(path)
        garbage.listen()
        link.advertise((listing("a"),))
        connection, _ = garbage.accept()
        with connection:
            connection.sendall(b"HTTP/1.0 400 No\r\n\r\n" * 100)
        assert until(lambda: status(link)[0] == "backoff")
    kubelet.start()
    link.check_folder()
    assert until(lambda: kubelet.lists("a"))


def test_garbage_in_a_call_is_refused_and_the_next_call_is_answered(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    endpoint = registered(kubelet, link, "a")
    with endpoint.connect() as channel:
        for method in ("Allocate", "GetPreferredAllocation"):
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(PLUGIN_SERVICE + method)(b"\xff\xff", timeout=PATIENCE_S)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.RpcError) as unknown:
            channel.unary_unary(PLUGIN_SERVICE + "Nothing")(b"", timeout=PATIENCE_S)
        assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.RpcError) as large:
            channel.unary_unary(PLUGIN_SERVICE + "Allocate")(b"\x0a" * (5 << 20), timeout=PATIENCE_S)
        assert large.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(endpoint.path)
        raw.sendall(os.urandom(4096))
    assert endpoint.allocate("a").cdi_devices


def test_the_number_of_streams_is_limited_and_the_kubelets_stream_stays_open(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    endpoint = registered(kubelet, link, "a")
    with endpoint.connect() as channel:
        watch = channel.unary_stream(PLUGIN_SERVICE + "ListAndWatch")
        streams = [watch(b"") for _ in range(80)]
        refused = 0
        for stream in streams:
            try:
                next(stream)
            except grpc.RpcError as error:
                refused += error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refused == 80 - 63
        assert endpoint.allocate("a").cdi_devices
    link.advertise((listing("a", "b"),))
    assert until(lambda: kubelet.lists("a", "b"))
    assert len(kubelet.registered) == 1


def test_a_client_that_reads_nothing_does_not_delay_the_kubelet(kubelet: Kubelet, link: KubeletLink) -> None:
    ids = [f"GPU-{number:040}" for number in range(5000)]
    endpoint = registered(kubelet, link, *ids)
    with endpoint.connect() as channel:
        _unread = [channel.unary_stream(PLUGIN_SERVICE + "ListAndWatch")(b"") for _ in range(4)]
        for count in range(1, 30):
            link.advertise((listing(*ids[:count]),))
            link.advertise((listing(*ids),))
        link.advertise((listing("a"),))
        assert until(lambda: kubelet.lists("a"))


def test_a_plugins_folder_that_is_a_symbolic_link_and_is_created_later_is_used(
    kubelet: Kubelet, folder: Path, link: KubeletLink
) -> None:
    link.advertise((listing("a"),))
    assert until(lambda: status(link)[0] == "waiting")
    assert f"{kubelet.plugins}/kubelet.sock does not exist" in status(link)[1]
    (folder / "elsewhere").mkdir()
    kubelet.plugins.symlink_to("elsewhere")
    kubelet.start()
    link.check_folder()
    assert until(lambda: kubelet.lists("a"))


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """Mount a tmpfs with OPTIONS at FOLDER."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.usefixtures("own_mounts")
def test_a_full_folder_is_reported_and_used_after_space_is_free(kubelet: Kubelet, link: KubeletLink) -> None:
    kubelet.plugins.mkdir()
    # The file system has three inodes, for the folder, the kubelet's socket and the file `checkpoint`.
    with mounted(kubelet.plugins, "nr_inodes=3"):
        kubelet.start()
        filler = kubelet.plugins / "checkpoint"
        filler.write_text("")
        link.advertise((listing("a"),))
        assert until(lambda: status(link)[0] == "backoff")
        assert "cannot make a socket" in status(link)[1]
        assert "\n" not in status(link)[1]
        assert kubelet.registered == []
        filler.unlink()
        assert until(lambda: kubelet.lists("a"))
        kubelet.stop()
        link.stop()


@pytest.mark.usefixtures("own_mounts")
def test_a_read_only_folder_is_reported_and_used_after_it_is_writable(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    kubelet.plugins.mkdir()
    with mounted(kubelet.plugins, "size=1m"):
        kubelet.start()
        subprocess.run(["mount", "-o", "remount,ro", kubelet.plugins], check=True)
        link.advertise((listing("a"),))
        assert until(lambda: status(link)[0] == "backoff")
        assert status(link)[1] == f"{kubelet.plugins}: cannot make a socket: Read-only file system"
        subprocess.run(["mount", "-o", "remount,rw", kubelet.plugins], check=True)
        assert until(lambda: kubelet.lists("a"))
        kubelet.stop()
        link.stop()


def test_a_folder_whose_path_is_too_long_for_sockets_is_reported(folder: Path) -> None:
    deep = folder / ("x" * (100 - len(str(folder))))
    deep.mkdir()
    # The path is also too long for `bind` of the kubelet's socket, so `bind` uses a short symbolic link.
    os.symlink(deep, folder / "short")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / "short/kubelet.sock"))
    with linked(deep, deep) as link:
        link.advertise((listing("a"),))
        assert until(lambda: status(link)[0] == "backoff")
        assert "cannot make a socket" in status(link)[1]
        assert "\n" not in status(link)[1]
    assert os.listdir(deep) == ["kubelet.sock"]


@pytest.mark.parametrize("name", ["a b", "a%41b", "a?b#c", "ä"])
def test_a_folder_may_have_any_name(folder: Path, name: str) -> None:
    kubelet = Kubelet(folder / name)
    kubelet.plugins.mkdir(parents=True)
    # The double's grpcio server would read the name as a URI, so the double uses a symbolic link.
    (folder / "k").symlink_to(folder / name)
    kubelet.plugins, kubelet.pods = folder / "k/device-plugins", folder / "k/pod-resources"
    kubelet.start()
    try:
        with linked(folder / name / "device-plugins", folder) as link:
            link.advertise((listing("a"),))
            assert until(lambda: kubelet.lists("a"))
    finally:
        kubelet.stop()


def test_a_client_that_sends_many_pings_stays_connected(kubelet: Kubelet, link: KubeletLink) -> None:
    endpoint = registered(kubelet, link, "a")
    pings = 20
    with socket.socket(socket.AF_UNIX) as raw, raw.makefile("rb") as answers:
        raw.settimeout(PATIENCE_S)
        raw.connect(endpoint.path)
        raw.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
        for _ in range(pings):
            raw.sendall(bytes((0, 0, 8, 6, 0, 0, 0, 0, 0)) + b"there?  ")
        # The type of each received HTTP/2 frame: 6 is PING, and 7 is GOAWAY.
        kinds: list[int] = []
        while kinds.count(6) < pings and 7 not in kinds:
            head = answers.read(9)
            answers.read(int.from_bytes(head[:3], "big"))
            kinds.append(head[3])
    assert 7 not in kinds


@limited(1.0)
def test_a_link_stops_while_its_kubelet_hangs(kubelet: Kubelet, link: KubeletLink, within_s: float) -> None:
    hangs = threading.Event()
    kubelet.register = lambda _, __: hangs.wait(2 * PATIENCE_S)
    kubelet.start()
    link.advertise((listing("a"),))
    assert until(lambda: status(link)[0] == "registering")
    began_s = time.monotonic()
    link.stop()
    assert until(link.problem, within_s)
    assert time.monotonic() - began_s < within_s
    hangs.set()
