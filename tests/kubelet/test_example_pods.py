"""The pods in examples/kubernetes request resources that hosts with the required devices advertise."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.kubelet.advertised_resources import counts, h100, in_mig, offered, with_gpus
from support.values.unhealthy_gpus import example

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/kubernetes/gpu-pods.yaml"
HOSTS = {
    "one-gpu": example(),
    "two-gpus": example(),
    "mig-instance": with_gpus(in_mig(h100(0), "1g.10gb")),
    "amd-gpu": example("ubuntu-2xmi300x-cpx"),
    "intel-gpu": example("ubuntu-flex170-sriov"),
}


def pods() -> dict[str, Any]:
    return {pod["metadata"]["name"]: pod["spec"] for pod in yaml.safe_load_all(EXAMPLE.read_text())}


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_advertises_the_resources_that_an_example_pod_requests(name: str) -> None:
    (container,) = pods()[name]["containers"]
    offer = counts(offered(HOSTS[name]))
    for resource, count in container["resources"]["limits"].items():
        assert offer.get(resource, 0) >= count


def test_every_example_pod_is_tested_and_needs_no_privilege_and_no_runtime_class() -> None:
    assert pods().keys() == HOSTS.keys()
    assert not {"runtimeClassName", "hostPID", "hostNetwork", "volumes"} & {
        key for spec in pods().values() for key in spec
    }
    assert not [spec for spec in pods().values() if "securityContext" in spec["containers"][0]]
