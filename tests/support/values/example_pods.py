"""The pods of examples/kubernetes as the kubelet passes them to a runtime: ``read_pods``."""

from dataclasses import dataclass
from typing import Any

import yaml
from support.paths import REPOSITORY

FOLDER = REPOSITORY / "examples/kubernetes"
CONFIGURATION = FOLDER / "cdigen.yaml"
UUID = "GPU-3c7f6a52-9b1d-4e08-a2c4-5d6e7f8091a2"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamplePod:
    """A pod with its only container; ``env`` has the variables from the file."""

    name: str
    namespace: str
    labels: dict[str, str]
    annotations: dict[str, str]
    container: str
    privileged: bool
    env: dict[str, str]


def read_pods(file: str) -> dict[str, ExamplePod]:
    """Return the pods of the example FILE by their names."""
    documents = [each for each in yaml.safe_load_all((FOLDER / file).read_text()) if each]
    maps = {each["metadata"]["name"]: each["data"] for each in documents if each["kind"] == "ConfigMap"}
    allocated = [each["envs"] for each in documents if each["kind"] == "ContainerAllocateResponse"]
    pods = [_pod(each, maps) for each in documents if each["kind"] == "Pod"]
    for pod in pods:
        for envs in allocated:
            pod.env.update(envs)
    return {pod.name: pod for pod in pods}


def _pod(document: Any, maps: dict[str, dict[str, str]]) -> ExamplePod:
    metadata = document["metadata"]
    (container,) = document["spec"]["containers"]
    assert "runtimeClassName" not in document["spec"]
    env = {}
    for variable in container.get("env", ()):
        source = variable.get("valueFrom", {}).get("configMapKeyRef")
        env[variable["name"]] = maps[source["name"]][source["key"]] if source else variable["value"]
    return ExamplePod(
        name=metadata["name"],
        namespace=metadata["namespace"],
        labels=metadata.get("labels", {}),
        annotations=metadata.get("annotations", {}),
        container=container["name"],
        privileged=container.get("securityContext", {}).get("privileged", False),
        env=env,
    )
