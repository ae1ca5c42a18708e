"""`cdigen nri` beside real containerds: devices of other makers, whose specs somebody else wrote.

Their nodes are the machine's own /dev/zero and /dev/null under the names of NPUs. One containerd injects CDI
devices; the other, 1.7.24, drops them, and gets what is in the specs (``unsupported_cdi: raw``).
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.containerd_host import RELEASES, Container, Containerd, running_containerd
from support.containers.cri_client import CriError
from support.nri.containerd_plugins import MARK, running_plugin

pytestmark = pytest.mark.e2e

ZERO, NULL = ("/dev/zero", "1:5"), ("/dev/null", "1:3")
# Kind -> its devices, each with its nodes; the variable that its maker's runtime sets where it is done.
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
    """Write SPECS as other programs than cdigen do, each under a name of its own."""
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
        (folder / f"somebody-{number}.json").write_text(json.dumps(spec))


@pytest.fixture(scope="module", params=RUNTIMES)
def containerd(request: pytest.FixtureRequest, cache: Path) -> Iterator[Containerd]:
    with running_containerd(cache, RELEASES[request.param]) as host:
        write_specs(host.specs)
        with running_plugin(host, unsupported_cdi=RUNTIMES[request.param]) as plugin:
            assert plugin.is_registered()
            yield host


def nodes(container: Container) -> dict[str, str]:
    """Return the accelerators' nodes in CONTAINER, with their numbers."""
    patterns = "/dev/davinci* /dev/neuron* /dev/accel/* /dev/kfd /dev/dri/*"
    rows = container.sh(f"stat -c '%n %t:%T' {patterns} 2>/dev/null").split()
    return dict(zip(rows[::2], rows[1::2], strict=True))


@pytest.fixture
def host(containerd: Containerd) -> Iterator[Containerd]:
    yield containerd
    containerd.remove_all()


@pytest.mark.parametrize(
    ("env", "wanted"),
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
        # No spec of theirs is here.
        (("TPU_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=void"), {}),
    ],
    ids=",".join,
)
def test_a_container_gets_the_devices_of_whichever_maker_it_asks_for(
    host: Containerd, env: tuple[str, ...], wanted: dict[str, str]
) -> None:
    assert nodes(host.container(*env)) == wanted


def test_what_kubelet_gave_is_not_given_again(host: Containerd) -> None:
    given = {"container_path": "/dev/davinci7", "host_path": "/dev/null", "permissions": "rw"}
    container = host.container("ASCEND_VISIBLE_DEVICES=0", devices=[given])
    assert nodes(container) == {"/dev/davinci7": "1:3"}
    assert MARK not in container.spec()["annotations"]


def test_a_device_that_is_not_there_is_a_reason(host: Containerd) -> None:
    with pytest.raises(CriError) as refused:
        host.container("ASCEND_VISIBLE_DEVICES=9")
    assert "ASCEND_VISIBLE_DEVICES asks for 'huawei.com/npu=9': huawei.com/npu has 0, 1" in str(refused.value)


def test_nothing_counts_in_a_namespace_that_is_not_listed(host: Containerd) -> None:
    assert nodes(host.container("HABANA_VISIBLE_DEVICES=all", namespace="default")) == {}
