"""A double of a kubelet's device manager in grpcio: `Kubelet`.

It imitates pkg/kubelet/cm/devicemanager of Kubernetes 1.34: it empties its folder at the start. During
Register it connects to the plugin, and requests the options and then the list. Unlike a kubelet of 1.25 or
newer, it ends the stream of the plugin that had the resource before.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
from support.kubelet.resources import GPU
from support.waiting import PATIENCE_S, pause

from cdigen.kubelet.wire.messages import PLUGIN, PODS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

PLUGIN_SERVICE = "/v1beta1.DevicePlugin/"
# The default limit of go-grpc for a message.
_OPTIONS = [("grpc.max_receive_message_length", 4 << 20), ("grpc.use_local_subchannel_pool", 1)]


class Endpoint:
    """A registered plugin. `lists` has each list that it sent: health and NUMA nodes by device id."""

    def __init__(self, resource: str, path: str) -> None:
        self.resource = resource
        self.path, self.name = path, os.path.basename(path)
        self.lists: list[dict[str, tuple[str, tuple[int, ...]]]] = []
        self.times: list[float] = []
        self.ended = threading.Event()
        self.problem = ""
        self._channel = grpc.insecure_channel(f"unix:{path}", options=_OPTIONS)
        self.on_end: Callable[[], object] = lambda: None
        self._stream: Any = None

    def connect(self, options: Mapping[str, object] | None = None) -> Any:
        """Return another connection to the plugin."""
        own = [*(options or {}).items(), ("grpc.use_local_subchannel_pool", 1)]
        return grpc.insecure_channel(f"unix:{self.path}", options=own)

    def request(self, method: str, request: Any, answer: str, timeout_s: float = PATIENCE_S) -> Any:
        call = self._channel.unary_unary(PLUGIN_SERVICE + method)
        return PLUGIN[answer].FromString(call(request.SerializeToString(), timeout=timeout_s))

    def options(self) -> Any:
        return self.request("GetDevicePluginOptions", PLUGIN["Empty"](), "DevicePluginOptions")

    def allocate(self, *ids: str) -> Any:
        request = PLUGIN["AllocateRequest"](container_requests=[{"device_ids": ids}])
        return self.request("Allocate", request, "AllocateResponse").container_responses[0]

    def preferred_allocation(self, available: list[str], must: list[str], count: int) -> list[str]:
        fields = {
            "available_device_ids": available,
            "must_include_device_ids": must,
            "allocation_size": count,
        }
        request = PLUGIN["PreferredAllocationRequest"](container_requests=[fields])
        answer = self.request("GetPreferredAllocation", request, "PreferredAllocationResponse")
        return list(answer.container_responses[0].device_ids)

    def watch(self) -> None:
        self._stream = self._channel.unary_stream(PLUGIN_SERVICE + "ListAndWatch")(b"")
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for data in self._stream:
                devices = PLUGIN["ListAndWatchResponse"].FromString(data).devices
                self.times.append(time.monotonic())
                self.lists.append(
                    {
                        each.id: (each.health, tuple(node.id for node in each.topology.nodes))
                        for each in devices
                    }
                )
        except grpc.RpcError as error:
            self.problem = str(error)
        self.ended.set()
        self.on_end()

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
        self._channel.close()


class Kubelet:
    """A kubelet with its sockets in FOLDER/device-plugins and FOLDER/pod-resources.

    `registered` has the time, resource and endpoint of each Register. If `watches` is set, the kubelet
    requests lists. A test may replace the handler `register`. If `shows` is set, GetAllocatableResources
    returns `shown()`. `forgets_after_s` is the time from the end of a stream to the removal of the endpoint
    of this resource, as in all kubelets up to 1.36.2; None imitates a kubelet that keeps a newer endpoint.
    `forgotten` counts these removals. List waits until `lists_at_once` is set.
    """

    def __init__(self, folder: Path) -> None:
        self.plugins, self.pods = folder / "device-plugins", folder / "pod-resources"
        self.endpoints: dict[str, Endpoint] = {}
        self.registered: list[tuple[float, str, str]] = []
        self.watches = True
        self.forgets_after_s: float | None = None
        self.forgotten = 0
        self.shows = True
        self.listed: list[dict[str, Any]] = []
        self.lists_at_once = threading.Event()
        self.lists_at_once.set()
        self.register: Callable[[Any, Any], object] = self._register
        self.shown: Callable[[], dict[str, list[str]]] = self._healthy
        self._servers: list[Any] = []

    def start(self) -> None:
        """Start, as the process of a kubelet does."""
        for folder in (self.plugins, self.pods):
            folder.mkdir(parents=True, exist_ok=True)
            for entry in folder.iterdir():
                if not entry.is_dir():
                    # A plugin may remove its own socket meanwhile.
                    entry.unlink(missing_ok=True)
        self.serve_registration()
        methods = {"GetAllocatableResources": (self._show, None), "List": (self._list, None)}
        self._serve(self.pods, "v1.PodResourcesLister", methods)

    def serve_registration(self) -> None:
        """Make the socket at which plugins register."""
        self._serve(self.plugins, "v1beta1.Registration", {"Register": (self._take, "RegisterRequest")})

    def kill(self) -> None:
        """End like a killed process: connections are closed, socket files stay."""
        # A plugin may register meanwhile, in a thread of the server, and ``_forget`` may remove an endpoint.
        while self.endpoints:
            with suppress(KeyError):
                self.endpoints.popitem()[1].stop()
        for server in self._servers:
            server.stop(grace=None).wait()
        self._servers.clear()
        # grpcio removes the socket; a killed process leaves it.
        for folder in (self.plugins, self.pods):
            if folder.is_dir():
                leave_socket(folder / "kubelet.sock")

    def stop(self) -> None:
        self.kill()

    def has(self, *ids: str, resource: str = GPU, pod: str = "train") -> None:
        """Make List return one container, which has IDS of RESOURCE."""
        devices = [{"resource_name": resource, "device_ids": list(ids)}] if ids else []
        containers = [{"name": "main", "devices": devices}]
        self.listed = [{"name": pod, "namespace": "ml", "containers": containers}]

    def health(self) -> list[str]:
        """Return the health of each GPU in the last list."""
        return [health for health, _ in self.list_of(GPU).values()]

    def list_of(self, resource: str) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the last list of RESOURCE; raises LookupError if there is none."""
        endpoint = self.endpoints[resource]
        # A kubelet shows the endpoint until the endpoint is removed.
        if endpoint.ended.is_set() and self.forgets_after_s is None:
            raise LookupError("the stream has ended")
        return endpoint.lists[-1]

    def lists(self, *ids: str, resource: str = GPU) -> bool:
        """Return whether the last list of RESOURCE has exactly IDS."""
        return sorted(self.list_of(resource)) == sorted(ids)

    def _serve(self, folder: Path, service: str, methods: dict[str, Any]) -> None:
        def handler(call: Any, kind: str | None) -> Any:
            reading = PLUGIN[kind].FromString if kind else None
            return grpc.unary_unary_rpc_method_handler(call, reading)

        server = grpc.server(ThreadPoolExecutor(8))
        handlers = {name: handler(*method) for name, method in methods.items()}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, handlers)])
        server.add_insecure_port(f"unix:{folder / 'kubelet.sock'}")
        server.start()
        self._servers.append(server)

    def _take(self, request: Any, context: Any) -> bytes:
        self.registered.append((time.monotonic(), request.resource_name, request.endpoint))
        self.register(request, context)
        return b""

    def _register(self, request: Any, context: Any) -> None:
        if request.version != "v1beta1":
            context.abort(grpc.StatusCode.UNKNOWN, "the version is not supported")
        endpoint = Endpoint(request.resource_name, str(self.plugins / request.endpoint))
        try:
            endpoint.options()
        except grpc.RpcError as error:
            context.abort(grpc.StatusCode.UNKNOWN, f"failed to dial device plugin: {error.code()}")
        former = self.endpoints.get(request.resource_name)
        self.endpoints[request.resource_name] = endpoint
        if former is not None:
            former.stop()
        endpoint.on_end = lambda: self._forget(request.resource_name)
        if self.watches:
            endpoint.watch()

    def _forget(self, resource: str) -> None:
        """Remove the endpoint of RESOURCE late, even if it is a newer one (kubernetes/kubernetes#121994)."""
        if self.forgets_after_s is not None:
            pause(self.forgets_after_s)
            self.endpoints.pop(resource, None)
            self.forgotten += 1

    def _healthy(self) -> dict[str, list[str]]:
        found = {}
        for resource in tuple(self.endpoints):
            with suppress(LookupError):
                found[resource] = [
                    name for name, (health, _) in self.list_of(resource).items() if health == "Healthy"
                ]
        return found

    def _show(self, _: bytes, context: Any) -> bytes:
        if not self.shows:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method GetAllocatableResources")
        devices = [{"resource_name": name, "device_ids": ids} for name, ids in self.shown().items()]
        data: bytes = PODS["AllocatableResourcesResponse"](devices=devices).SerializeToString()
        return data

    def _list(self, _: bytes, __: Any) -> bytes:
        self.lists_at_once.wait(2 * PATIENCE_S)
        data: bytes = PODS["ListPodResourcesResponse"](pod_resources=self.listed).SerializeToString()
        return data


def leave_socket(path: Path) -> None:
    """Make the socket file PATH without a listener, like a killed process; keep an existing file."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
