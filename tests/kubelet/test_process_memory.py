"""`cdigen kubelet` shares GPUs by memory from one reload to the next, and gives nothing twice meanwhile."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING

import pytest
from support.kubelet.offering import with_memory
from support.kubelet.process import Side, cdigen_kubelet, serving
from support.kubelet.resources import GPU
from support.kubernetes.api_server import ApiServer
from support.kubernetes.cluster_model import cluster_of
from support.kubernetes.shared_pods import MEMORY, node_object
from support.waiting import until

from cdigen.cli import kubelet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.process
NODE = "node1"
UNITS = "kubelet: {shared_memory: {unit: GiB, devices: ['0', '1']}}\n"


@pytest.fixture(autouse=True)
def sized(side: Side) -> None:
    """Let the daemon know the memory of SIDE's GPUs."""
    side.put(with_memory(side.inventories, 4096))


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(cluster_of(node_object(NODE, ()))) as made:
        yield made


def healthy(side: Side, resource: str, gpu: str) -> int:
    """Return how many units of RESOURCE of GPU the kubelet may give."""
    devices = side.kubelet.list_of(resource).items()
    return sum(health == "Healthy" for id_, (health, _) in devices if id_.startswith(gpu))


def test_gpus_become_units_and_whole_again_by_reloads(side: Side, server: ApiServer) -> None:
    first, second = (str(gpu.uuid) for gpu in side.inventories["nvidia"].accelerators[:2])
    side.kubelet.has(first)
    config = server.kubeconfig(side.root / "kubeconfig")
    with serving(side, "--kubeconfig", config, "--node-name", NODE) as process:
        side.configure(UNITS)
        assert until(lambda: side.lists(6) and side.lists(8, MEMORY))
        assert until(lambda: (healthy(side, MEMORY, first), healthy(side, MEMORY, second)) == (0, 4))
        assert until(lambda: any(row["rule"] == "shared-memory-held" for row in side.status()["problems"]))
        side.kubelet.has()
        # An answer, after which the kubelet is asked what containers have.
        side.kubelet.endpoints[GPU].allocate(next(iter(side.kubelet.list_of(GPU))))
        assert until(lambda: healthy(side, MEMORY, first) == 4)
        side.configure("kubelet: {}\n")
        assert until(lambda: side.lists(8))
        assert not [line for line in process.lines() if line["level"] == "error"]


def beside(folder: Path, text: str) -> list[str]:
    """Return the namespaces that NRI's policy gives GPUs, as is found by the configuration TEXT."""
    file = folder / "etc/cdigen/config.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    parser = ArgumentParser()
    kubelet.add_options(parser)
    found = kubelet.setup(
        parser.parse_args(["--root", str(folder), "--kubelet-dir", "/run/k"]), is_lenient=False
    ).findings
    return [one.message.partition("namespaces ")[2] for one in found if one.rule == "shared-memory-nri"]


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
def test_what_nri_hands_out_beside_units_is_a_finding(tmp_path: Path, nri: str, expected: list[str]) -> None:
    assert beside(tmp_path, f"kubelet: {{shared_memory: {{unit: GiB}}}}\nnri: {{{nri}}}\n") == expected
    assert beside(tmp_path, f"nri: {{{nri}}}\n") == []


def test_a_reload_that_lets_nri_hand_out_gpus_says_so(side: Side, server: ApiServer) -> None:
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
