"""Real containerds inject each CDI name once, from annotations, from the CRI field, or from both.

The tests send the requests that kubelets make from the responses of `cdigen kubelet`.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.containerd_host import RELEASES, Containerd, running_containerd

from cdigen.kubelet.allocation.container_response import annotation_key

pytestmark = pytest.mark.e2e

KIND = "nvidia.com/gpu"
NAMES = (f"{KIND}=0", f"{KIND}=1")
FIELD = [{"name": name} for name in NAMES]
CDIGEN_ANNOTATION = {annotation_key(KIND): ",".join(NAMES)}
# Kubelets 1.29 to 1.31 add an annotation with the names in the CRI field.
KUBELET_ANNOTATION = {"cdi.k8s.io/devicemanager_made-by-kubelet": ",".join(NAMES)}


def spec() -> dict[str, object]:
    """Return a spec whose devices have all edits that could be injected twice."""
    devices = [
        {
            "name": str(number),
            "containerEdits": {
                "env": [f"DEVICE_{number}=1"],
                "deviceNodes": [{"path": f"/dev/nvidia{number}", "hostPath": "/dev/null"}],
                "hooks": [{"hookName": "createContainer", "path": "/bin/true", "args": [f"hook-{number}"]}],
                "mounts": [
                    {"hostPath": "/etc/hosts", "containerPath": f"/lib/{number}", "options": ["bind"]}
                ],
            },
        }
        for number in (0, 1)
    ]
    return {"cdiVersion": "0.6.0", "kind": KIND, "devices": devices}


@pytest.fixture(scope="module", params=RELEASES)
def containerd(cache: Path, request: pytest.FixtureRequest) -> Iterator[Containerd]:
    with running_containerd(cache, RELEASES[request.param]) as host:
        (host.specs / "nvidia.json").write_text(json.dumps(spec()))
        yield host


@pytest.mark.parametrize(
    ("field", "annotations"),
    [
        pytest.param([], CDIGEN_ANNOTATION, id="kubelets to 1.28"),
        pytest.param(FIELD, CDIGEN_ANNOTATION | KUBELET_ANNOTATION, id="1.29 to 1.31"),
        pytest.param(FIELD, CDIGEN_ANNOTATION, id="from 1.32"),
        pytest.param(FIELD, {}, id="only the field"),
    ],
)
def test_a_cdi_name_in_the_field_and_in_annotations_is_injected_once(
    containerd: Containerd, field: list[dict[str, str]], annotations: dict[str, str]
) -> None:
    container = containerd.pod().create(cdi_devices=field, annotations=annotations)

    made = container.spec()

    assert sorted(hook["args"][0] for hook in made["hooks"]["createContainer"]) == ["hook-0", "hook-1"]
    assert sorted(row for row in made["process"]["env"] if row.startswith("DEVICE_")) == [
        "DEVICE_0=1",
        "DEVICE_1=1",
    ]
    nodes = [node["path"] for node in made["linux"]["devices"]]
    assert sorted(path for path in nodes if "nvidia" in path) == ["/dev/nvidia0", "/dev/nvidia1"]
    places = [mount["destination"] for mount in made["mounts"]]
    assert sorted(place for place in places if place.startswith("/lib/")) == ["/lib/0", "/lib/1"]
