"""`cdigen nri` on real containerds injects devices of other vendors, with specs of other programs.

The device nodes are the machine's /dev/zero and /dev/null under other names. One containerd injects CDI
devices. The other containerd (1.7.24) drops CDI devices, so `cdigen nri` adds the edits of the specs
(``unsupported_cdi: raw``).
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.containerd_host import RELEASES, Container, Containerd, running_containerd
from support.containers.cri_client import CriError
from support.nri.containerd_plugins import INJECTED_ANNOTATION, running_plugin

pytestmark = pytest.mark.e2e

ZERO, NULL = ("/dev/zero", "1:5"), ("/dev/null", "1:3")
# Kind -> its devices (each with its nodes), and the variable that the spec sets to "void", or "".
SPECS = {
    "huawei.com/npu": (
        {"0": {"/dev/davinci0": ZERO}, "1": {"/dev/davinci1": NULL}},
        "ASCEND_VISIBLE_DEVICES",
    ),
    "aws.amazon.com/neuron": ({"neuron0": {"/dev/neuron0": ZERO}, "neuron1": {"/dev/neuron1": NULL}}, ""),
    "intel.com/gaudi": (
        {
            "accel0": {"/dev/accel/accel0": ZERO},
            "all": {"/dev/accel/accel0": ZERO, "/dev/accel/accel1": NULL},
        },
        "",
    ),
    "amd.com/gpu": ({"0": {"/dev/kfd": ZERO, "/dev/dri/renderD128": NULL}}, ""),
}
RUNTIMES = {"forky": "refuse", "trixie": "raw"}


def write_specs(folder: Path) -> None:
    """Write SPECS as other programs do, each with its own file name."""
    for number, (kind, (devices, variable)) in enumerate(SPECS.items()):
        rows = [
            {
                "name": name,
                "containerEdits": {
                    "deviceNodes": [{"path": path, "hostPath": source} for path, (source, _) in nodes.items()]
                },
            }
            for name, nodes in devices.items()
        ]
        shared = {"containerEdits": {"env": [f"{variable}=void"]}} if variable else {}
        spec = {"cdiVersion": "0.5.0", "kind": kind, "devices": rows, **shared}
        (folder / f"other-program-{number}.json").write_text(json.dumps(spec))


@pytest.fixture(scope="module", params=RUNTIMES)
def containerd(request: pytest.FixtureRequest, cache: Path) -> Iterator[Containerd]:
    with running_containerd(cache, RELEASES[request.param]) as host:
        write_specs(host.specs)
        with running_plugin(host, unsupported_cdi=RUNTIMES[request.param]) as plugin:
            assert plugin.is_registered()
            yield host


def nodes(container: Container) -> dict[str, str]:
    """Return the accelerators' nodes in CONTAINER, with their major and minor numbers."""
    patterns = "/dev/davinci* /dev/neuron* /dev/accel/* /dev/kfd /dev/dri/*"
    rows = container.sh(f"stat -c '%n %t:%T' {patterns} 2>/dev/null").split()
    return dict(zip(rows[::2], rows[1::2], strict=True))


@pytest.fixture
def host(containerd: Containerd) -> Iterator[Containerd]:
    yield containerd
    containerd.remove_all()


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (("ASCEND_VISIBLE_DEVICES=0",), {"/dev/davinci0": "1:5"}),
        (("ASCEND_VISIBLE_DEVICES=0-1",), {"/dev/davinci0": "1:5", "/dev/davinci1": "1:3"}),
        (("ASCEND_VISIBLE_DEVICES=Ascend910-1",), {"/dev/davinci1": "1:3"}),
        (("AWS_NEURON_VISIBLE_DEVICES=ALL",), {"/dev/neuron0": "1:5", "/dev/neuron1": "1:3"}),
        (("HABANA_VISIBLE_DEVICES=all",), {"/dev/accel/accel0": "1:5", "/dev/accel/accel1": "1:3"}),
        (
            ("HABANA_VISIBLE_DEVICES=0", "AMD_VISIBLE_DEVICES=0"),
            {"/dev/accel/accel0": "1:5", "/dev/kfd": "1:5", "/dev/dri/renderD128": "1:3"},
        ),
        # The kinds of these variables have no spec.
        (("TPU_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=void"), {}),
    ],
    ids=",".join,
)
def test_a_container_gets_the_devices_of_the_requested_vendor(
    host: Containerd, env: tuple[str, ...], expected: dict[str, str]
) -> None:
    assert nodes(host.container(*env)) == expected


def test_devices_of_the_kubelet_are_not_injected_again(host: Containerd) -> None:
    device = {"container_path": "/dev/davinci7", "host_path": "/dev/null", "permissions": "rw"}
    container = host.container("ASCEND_VISIBLE_DEVICES=0", devices=[device])
    assert nodes(container) == {"/dev/davinci7": "1:3"}
    assert INJECTED_ANNOTATION not in container.spec()["annotations"]


def test_a_missing_device_is_refused_with_a_reason(host: Containerd) -> None:
    with pytest.raises(CriError) as refused:
        host.container("ASCEND_VISIBLE_DEVICES=9")
    assert "ASCEND_VISIBLE_DEVICES requests 'huawei.com/npu=9': huawei.com/npu has 0, 1" in str(refused.value)


def test_no_request_is_permitted_in_a_namespace_without_a_rule(host: Containerd) -> None:
    assert nodes(host.container("HABANA_VISIBLE_DEVICES=all", namespace="default")) == {}
