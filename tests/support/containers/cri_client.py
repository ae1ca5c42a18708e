"""Calls of a kubelet to a container runtime, over gRPC: `Cri`.

The first call compiles the messages of cri.proto, because generated code would work only with one release of
protobuf.
"""

import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PROTO = Path(__file__).with_name("cri.proto")
SERVICE = "runtime.v1.RuntimeService"
# Under load, as in CI, a call takes seconds. If a call takes longer than this time, the runtime hangs.
TIMEOUT_S = 60


class CriError(Exception):
    """The runtime refused a call; the text is the runtime's message."""


class Cri:
    """A connection to the runtime that listens at ADDRESS, a Unix socket."""

    def __init__(self, address: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{address}")

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def call(self, method: str, *, wait: bool = False, **fields: object) -> Any:
        """Call METHOD with the FIELDS of its request, and return its response; raises CriError.

        If WAIT is true, the call waits for a runtime that does not listen yet.
        """
        called = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=messages()[f"{method}Response"].FromString,
        )
        try:
            return called(
                messages()[f"{method}Request"](**fields), timeout=TIMEOUT_S, wait_for_ready=wait or None
            )
        except grpc.RpcError as error:
            raise CriError(error.details()) from None


def messages() -> dict[str, Any]:
    """Return the classes of cri.proto's messages by their names."""
    return messages_of(PROTO)


@cache
def messages_of(proto: Path) -> dict[str, Any]:
    """Return the classes of the messages in the file PROTO, by their names."""
    with tempfile.NamedTemporaryFile(suffix=".binpb") as compiled:
        protoc = (sys.executable, "-m", "grpc_tools.protoc", f"-I{proto.parent}")
        subprocess.run([*protoc, f"--descriptor_set_out={compiled.name}", proto], check=True)
        (file,) = FileDescriptorSet.FromString(Path(compiled.name).read_bytes()).file
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    names = [message.name for message in file.message_type]
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{name}")) for name in names}
