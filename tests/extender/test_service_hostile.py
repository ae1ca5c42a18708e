"""Invalid, huge and impossible requests to `cdigen extender`."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.kubernetes.api_server import ApiServer
from support.kubernetes.cluster_model import cluster_of
from support.kubernetes.extender_process import PREFIX, Extender, ready
from support.kubernetes.gpu_memory_pods import node_object, pod_object
from support.waiting import limited

from cdigen.service.http.messages import MAX_BODY

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    """Yield an extender that several tests share; the requests of these tests change nothing."""
    cluster = cluster_of(node_object(sizes=(8, 4)))
    with ApiServer(cluster) as found, ready(found, tmp_path_factory.mktemp("shared")) as extender:
        yield extender


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"7", b"{}", b"[" * 100_000, b"\xff\xfe", b'{"Pod": 5, "NodeNames": ["a"]}',
     b'{"Pod": {}, "NodeNames": "a"}', b'{"Pod": {}, "NodeNames": [5]}',
     b'{"Pod": {"metadata": {}, "spec": {}}}',
     b'{"Pod": {"metadata": [], "spec": {}}, "NodeNames": []}', b'{"PodName": "a"}', b'{"a":' * 5_000,
     b'{"PodName": "a", "PodNamespace": "", "PodUID": "u", "Node": "' + b"n" * 300 + b'"}', b"9" * 10_000,
     b"[" + b"[]," * 500_000 + b"[]]", (b"[" * 900 + b"]" * 900) * 501],
)  # fmt: skip
def test_an_invalid_request_is_an_error_that_the_scheduler_reports(shared: Extender, body: bytes) -> None:
    for verb in ("filter", "prioritize", "bind"):
        status, answer = shared.request("POST", f"{PREFIX}/{verb}", body)
        assert status == 200
        assert "cannot be read" in answer["Error"]
    assert shared.request("GET", "/healthz")[0] == 200


def resident_kib(extender: Extender, field: str) -> int:
    """Return the value of FIELD in /proc/PID/status of the extender, in KiB."""
    text = Path(f"/proc/{extender.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(field))


@pytest.mark.parametrize(
    "value",
    [b"[" * 900 + b"]" * 900, b'{"":' * 900 + b"0" + b"}" * 900, b'{"":0}', b'""'],
    ids=["deep lists", "deep objects", "objects", "strings"],
)
def test_eight_concurrent_large_requests_fit_into_the_memory_limit_of_the_pod(
    tmp_path: Path, value: bytes
) -> None:
    with ApiServer(cluster_of(node_object())) as found, ready(found, tmp_path) as extender:
        for size in (1 << 20, MAX_BODY):
            body = b'{"a":[' + (value + b",") * ((size - 20) // (len(value) + 1)) + b"[]]}"

            def send(body: bytes = body) -> None:
                with suppress(OSError):  # the extender may refuse a request while it is being sent
                    extender.request("POST", f"{PREFIX}/filter", body)

            with ThreadPoolExecutor(8) as pool:
                for _ in range(8):
                    pool.submit(send)
        assert extender.request("GET", "/healthz")[0] == 200
        # The memory limit of the pod in examples/kubernetes/gpushare/extender.yaml is 256 MiB.
        assert resident_kib(extender, "VmHWM:") < 150 << 10


@limited(5)
def test_a_request_with_ten_thousand_nodes_is_filtered_within_seconds(
    shared: Extender, within_s: float
) -> None:
    names = [f"node-{number:05}.some-zone.example" for number in range(10_000)]
    begun_s = time.monotonic()
    answer = shared.filter(pod_object("p", 3), "node1", *names)
    assert answer["NodeNames"] == ["node1"]
    assert len(answer["FailedNodes"]) == 10_000
    assert time.monotonic() - begun_s < within_s


@pytest.mark.parametrize("units", ["-1", "9223372036854775808", "1e99", "0.5", "13", "x"])
def test_impossible_amounts_are_refused_with_the_reason(shared: Extender, units: str) -> None:
    answer = shared.filter(pod_object("p", units), "node1")
    assert answer["NodeNames"] == []
    assert answer["FailedAndUnresolvableNodes"]["node1"] == answer["FailedNodes"]["node1"] != ""
