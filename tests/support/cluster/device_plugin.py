"""A device plugin for a real kubelet, with the responses of NVIDIA's plugin: `running_device_plugin`."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from support.containers.cri_client import messages_of
from support.nri.host import LISTS

PROTO = Path(__file__).with_name("deviceplugin.proto")
# The kind of the CDI specs that NVIDIA's plugin writes.
KIND = "k8s.device-plugin.nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def answer(strategy: str, ids: list[str]) -> dict[str, Any]:
    """Return the response to Allocate for the devices IDS (k8s-device-plugin, internal/plugin/server.go).

    The strategy cdi-cri is omitted, because kubelets before 1.28 drop its response.
    """
    match strategy:
        case "envvar":
            return {"envs": {VISIBLE: ",".join(ids)}}
        case "volume-mounts":
            mounts = [{"container_path": f"{LISTS}/{name}", "host_path": "/dev/null"} for name in ids]
            return {"envs": {VISIBLE: LISTS}, "mounts": mounts}
        case "cdi-annotations":
            names = ",".join(f"{KIND}={name}" for name in ids)
            return {"annotations": {"cdi.k8s.io/nvidia-device-plugin_3c7f": names}}
    raise ValueError(strategy)


@contextmanager
def running_device_plugin(
    folder: Path, resource: str, strategy: str, *ids: str, endpoint: str = ""
) -> Iterator[None]:
    """Advertise the devices IDS as RESOURCE to the kubelet whose sockets are in FOLDER."""
    kinds = messages_of(PROTO)
    ended = threading.Event()

    def options(_request: object, _context: object) -> Any:
        return kinds["DevicePluginOptions"]()

    def devices(_request: object, _context: object) -> Iterator[Any]:
        yield kinds["ListAndWatchResponse"](devices=[{"ID": name, "health": "Healthy"} for name in ids])
        ended.wait()

    def allocate(request: Any, _context: object) -> Any:
        rows = [answer(strategy, list(row.devices_ids)) for row in request.container_requests]
        return kinds["AllocateResponse"](container_responses=rows)

    def handler(call: Any, kind: str, *, many: bool = False) -> Any:
        made = grpc.unary_stream_rpc_method_handler if many else grpc.unary_unary_rpc_method_handler
        return made(call, kinds[kind].FromString, lambda message: message.SerializeToString())

    methods = {
        "GetDevicePluginOptions": handler(options, "Empty"),
        "ListAndWatch": handler(devices, "Empty", many=True),
        "Allocate": handler(allocate, "AllocateRequest"),
    }
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)])
    endpoint = endpoint or f"{strategy}.sock"
    server.add_insecure_port(f"unix:{folder / endpoint}")
    server.start()
    try:
        with grpc.insecure_channel(f"unix:{folder / 'kubelet.sock'}") as channel:
            register = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=kinds["Empty"].FromString,
            )
            request = kinds["RegisterRequest"](version="v1beta1", endpoint=endpoint, resource_name=resource)
            register(request, timeout=20, wait_for_ready=True)
        yield
    finally:
        ended.set()
        server.stop(grace=0).wait()
