"""The devices that example pods of KAI, HAMi and gpu-operator get with the example's configuration."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.values.example_pods import CONFIGURATION, UUID, ExamplePod, read_pods

from cdigen.cli.main import command_parser
from cdigen.cli.specs import resolve

MANAGEMENT, PLUGINS = "management.nvidia.com/gpu", "k8s.device-plugin.nvidia.com/gpu"
DEVICES = {"nvidia.com/gpu": ("0", "1", UUID, "all"), MANAGEMENT: ("all",), PLUGINS: (UUID,)}
VISIBLE = "NVIDIA_VISIBLE_DEVICES"

Resolve = Callable[..., Any]


@pytest.fixture
def resolved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Resolve:
    """Return a function that resolves a pod on a host with the specs of cdigen and of a device plugin."""
    specs = tmp_path / "run/cdi"
    specs.mkdir(parents=True)
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    for kind, names in DEVICES.items():
        devices = [{"name": name, "containerEdits": {"env": ["A=B"]}} for name in names]
        spec = {"cdiVersion": "0.5.0", "kind": kind, "devices": devices}
        (specs / f"{kind.replace('/', '-')}.json").write_text(json.dumps(spec))

    def run(pod: ExamplePod, *arguments: str, config: Path = CONFIGURATION) -> Any:
        parser = command_parser("resolve")
        words = ["--namespace", pod.namespace, "--container", pod.container]
        words += [word for pair in pod.env.items() for word in ("--env", "=".join(pair))]
        words += [word for pair in pod.labels.items() for word in ("--label", "=".join(pair))]
        words += [word for pair in pod.annotations.items() for word in ("--annotation", "=".join(pair))]
        words += ["--privileged"] * pod.privileged
        where = ["--root", str(tmp_path), "--config", str(config), "--json"]
        resolve.run(parser.parse_args([*where, *words, *arguments]))
        return json.loads(capsys.readouterr().out)

    return run


POD = ExamplePod(
    name="", namespace="team-a", labels={}, annotations={}, container="main", privileged=False, env={}
)


@pytest.mark.parametrize(
    ("file", "name", "devices"),
    [
        ("kai.yaml", "gpu-sharing", [f"nvidia.com/gpu={UUID}"]),
        ("kai.yaml", "gpu-sharing-nri", [f"{PLUGINS}={UUID}"]),
        ("hami.yaml", "gpu-pod", [f"nvidia.com/gpu={UUID}"]),
        ("gpu-operator.yaml", "nvidia-device-plugin-daemonset-x2x5k", [f"{MANAGEMENT}=all"]),
    ],
)
def test_each_pod_gets_its_devices(resolved: Resolve, file: str, name: str, devices: list[str]) -> None:
    done = resolved(read_pods(file)[name])
    assert (done["outcome"], done["devices"], done["ignored_requests"]) == ("inject", devices, [])


def test_every_pod_of_the_examples_is_tested() -> None:
    # tests/kubelet/test_example_pods.py tests gpu-pods.yaml: its pods request devices from the kubelet.
    files = sorted(path.name for path in CONFIGURATION.parent.glob("*.yaml") if path.name != "gpu-pods.yaml")
    assert files == ["cdigen.yaml", "gpu-operator.yaml", "hami.yaml", "kai.yaml"]
    assert sum(len(read_pods(file)) for file in files if file != "cdigen.yaml") == 4


def test_the_variable_of_kai_may_contain_the_kind_of_a_device_plugin(resolved: Resolve) -> None:
    pod = read_pods("kai.yaml")["gpu-sharing"]
    pod.env[VISIBLE] = f"{PLUGINS}={UUID}"
    assert resolved(pod)["devices"] == [f"{PLUGINS}={UUID}"]


def test_a_pod_that_kai_does_not_schedule_gets_nothing(resolved: Resolve) -> None:
    pods = read_pods("kai.yaml")
    assert resolved(replace(pods["gpu-sharing"], labels={}))["outcome"] == "nothing"
    assert resolved(replace(pods["gpu-sharing-nri"], labels={}))["outcome"] == "nothing"


def test_kais_reservation_pod_gets_the_device_that_the_device_plugin_allocated(resolved: Resolve) -> None:
    pod = replace(POD, namespace="kai-resource-reservation", env={VISIBLE: UUID})
    assert resolved(pod)["devices"] == [f"nvidia.com/gpu={UUID}"]


def test_a_hami_pod_in_another_namespace_must_request_devices_by_volume_mounts(resolved: Resolve) -> None:
    pod = replace(read_pods("hami.yaml")["gpu-pod"], namespace="elsewhere")
    assert resolved(pod)["outcome"] == "nothing"
    folder = "/var/run/nvidia-container-devices"
    pod.env[VISIBLE] = folder
    assert resolved(pod, "--mount", f"/dev/null:{folder}/{UUID}")["devices"] == [f"nvidia.com/gpu={UUID}"]


def test_only_hamis_own_pods_in_their_namespace_get_all_gpus(resolved: Resolve) -> None:
    # HAMi's chart sets both variables; the second variable is for management (daemonsetnvidia.yaml).
    env = {VISIBLE: "all", "NVIDIA_MIG_MONITOR_DEVICES": "all"}
    pod = replace(POD, namespace="kube-system", env=env)
    own = replace(pod, labels={"app.kubernetes.io/component": "hami-device-plugin"})
    assert resolved(own)["devices"] == ["nvidia.com/gpu=all"]
    assert resolved(pod)["outcome"] == "nothing"


def test_the_variable_of_an_operand_may_contain_the_management_kind(resolved: Resolve) -> None:
    (pod,) = read_pods("gpu-operator.yaml").values()
    bare = replace(pod, annotations={})
    assert resolved(bare)["devices"] == ["nvidia.com/gpu=all"]
    bare.env[VISIBLE] = f"{MANAGEMENT}=all"
    assert resolved(bare)["devices"] == [f"{MANAGEMENT}=all"]


def test_a_pod_that_is_no_operand_gets_no_device_of_the_management_kind(resolved: Resolve) -> None:
    (pod,) = read_pods("gpu-operator.yaml").values()
    done = resolved(replace(pod, namespace="team-a", annotations={}, env={VISIBLE: f"{MANAGEMENT}=all"}))
    assert (done["outcome"], done["cause"]) == ("refuse", "not_permitted")
    assert resolved(replace(pod, namespace="team-a"))["devices"] == ["nvidia.com/gpu=all"], "by its variable"
    labels = {"kai.scheduler/queue": "q"}
    done = resolved(replace(pod, namespace="team-a", labels=labels))
    assert (done["outcome"], done["cause"]) == ("refuse", "not_permitted")
