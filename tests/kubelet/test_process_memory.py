"""`cdigen kubelet` starts and stops GPU memory sharing at a reload, and allocates no GPU twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.kubelet.advertised_resources import with_memory
from support.kubelet.process import Side, cdigen_kubelet, serving
from support.kubelet.resources import GPU
from support.kubernetes.api_server import ApiServer
from support.kubernetes.cluster_model import cluster_of
from support.kubernetes.gpu_memory_pods import MEMORY, node_object
from support.waiting import until

from cdigen.cli.main import command_parser
from cdigen.cli.services import kubelet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.process
NODE = "node1"
UNITS = "kubelet: {shared_memory: {unit: GiB, devices: ['0', '1']}}\n"


@pytest.fixture(autouse=True)
def sized(side: Side) -> None:
    """Write the memory of SIDE's GPUs to the inventory."""
    side.put(with_memory(side.inventories, 4096))


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(cluster_of(node_object(NODE, ()))) as made:
        yield made


def healthy(side: Side, resource: str, gpu: str) -> int:
    """Return the number of healthy units of RESOURCE of GPU."""
    devices = side.kubelet.list_of(resource).items()
    return sum(health == "Healthy" for id_, (health, _) in devices if id_.startswith(gpu))


def test_reloads_change_gpus_to_memory_units_and_back(side: Side, server: ApiServer) -> None:
    first, second = (str(gpu.uuid) for gpu in side.inventories["nvidia"].accelerators[:2])
    side.kubelet.has(first)
    config = server.kubeconfig(side.root / "kubeconfig")
    with serving(side, "--kubeconfig", config, "--node-name", NODE) as process:
        side.configure(UNITS)
        assert until(lambda: side.lists(6) and side.lists(8, MEMORY))
        assert until(lambda: (healthy(side, MEMORY, first), healthy(side, MEMORY, second)) == (0, 4))
        assert until(lambda: any(row["rule"] == "shared-memory-held" for row in side.status()["problems"]))
        side.kubelet.has()
        # After this allocation, `cdigen kubelet` requests the kubelet's list of pods.
        side.kubelet.endpoints[GPU].allocate(next(iter(side.kubelet.list_of(GPU))))
        assert until(lambda: healthy(side, MEMORY, first) == 4)
        side.configure("kubelet: {}\n")
        assert until(lambda: side.lists(8))
        assert not [line for line in process.lines() if line["level"] == "error"]


def permitted(folder: Path, text: str) -> list[str]:
    """Return the namespaces in which the policy `nri:` of the configuration TEXT permits shared GPUs."""
    file = folder / "etc/cdigen/config.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    found = kubelet.setup(
        command_parser("kubelet").parse_args(["--root", str(folder), "--kubelet-dir", "/run/k"]),
        is_lenient=False,
    ).findings
    return [
        one.message.partition("(namespaces: ")[2].removesuffix(")")
        for one in found
        if one.rule == "shared-memory-nri"
    ]


@pytest.mark.parametrize(
    ("nri", "expected"),
    [
        ("allow: [{namespaces: [ml, team-*]}]", ["ml, team-*"]),
        ("allow: [{namespaces: [ml], kinds: [nvidia.com/gpu]}]", ["ml"]),
        ("allow: [{namespaces: [ml], kinds: ['*']}]", ["ml"]),
        (
            "allow: [{namespaces: [a], kinds: [x.com/nic]}, {namespaces: [b], kinds: [amd.com/gpu]}]",
            ["b"],
        ),
        ("allow: [{namespaces: [ml], kinds: [nvidia.com/gdrcopy]}]", []),
        ("allow: []", []),
    ],
)
def test_an_nri_policy_for_shared_gpus_is_a_finding(tmp_path: Path, nri: str, expected: list[str]) -> None:
    assert permitted(tmp_path, f"kubelet: {{shared_memory: {{unit: GiB}}}}\nnri: {{{nri}}}\n") == expected
    assert permitted(tmp_path, f"nri: {{{nri}}}\n") == []


def test_a_reload_that_permits_shared_gpus_in_nri_adds_a_finding(side: Side, server: ApiServer) -> None:
    def rules() -> list[str]:
        return [row["rule"] for row in side.status()["problems"]]

    side.configure(UNITS)
    config = server.kubeconfig(side.root / "kubeconfig")
    with cdigen_kubelet(side, "--kubeconfig", config, "--node-name", NODE):
        assert until(lambda: side.lists(8, MEMORY))
        assert "shared-memory-nri" not in rules()
        side.configure(f"{UNITS}nri: {{allow: [{{namespaces: [ml]}}]}}\n")
        assert until(lambda: "shared-memory-nri" in rules())
        side.configure(UNITS)
        assert until(lambda: "shared-memory-nri" not in rules())
