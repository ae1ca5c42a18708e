"""The section ``kubelet:`` of the configuration, in the code and in the schema."""

import pytest
import yaml
from support.config_text import VALIDATOR, read, refusal

from cdigen.config import KubeletConfig, ResourceRow, SharingRow

GOOD = """
kubelet:
  mig_strategy: single
  resources:
    - {name: nvidia.com/a100, models: ["*A100*"], min_memory_gb: 40, profiles: [none]}
    - {name: example.com/display, devices: [0, 0:1, 0000:05:00.0, GPU-3c7f6a52, nvidia.com/gpu=0]}
  sharing:
    - {resource: nvidia.com/gpu, replicas: 4, devices: [0], rename: nvidia.com/gpu.shared}
  ignore: [1]
  device_list_strategy: [cdi_devices]
"""


def test_rows_with_devices_are_read() -> None:
    settings = read(GOOD).kubelet
    assert settings == KubeletConfig(
        mig_strategy="single",
        resources=(
            ResourceRow(name="nvidia.com/a100", models=("*A100*",), min_memory_gb=40, profiles=("none",)),
            ResourceRow(
                name="example.com/display",
                devices=("0", "0:1", "0000:05:00.0", "GPU-3c7f6a52", "nvidia.com/gpu=0"),
            ),
        ),
        sharing=(
            SharingRow(resource="nvidia.com/gpu", replicas=4, devices=("0",), rename="nvidia.com/gpu.shared"),
        ),
        ignore=("1",),
        device_list_strategy=("cdi_devices",),
    )
    assert VALIDATOR.is_valid(yaml.safe_load(GOOD))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("name: gpu", "must be an extended resource such as example.com/gpu"),
        ("name: kubernetes.io/gpu", "must be an extended resource"),
        ("name: a.kubernetes.io/gpu", "must be an extended resource"),
        ("name: mykubernetes.io/gpu", "must be an extended resource"),
        ("name: nvidia..com/gpu", "must be an extended resource"),
        ("name: nvidia-.com/gpu", "must be an extended resource"),
        (f"name: {'a' * 244}/gpu", "must be an extended resource"),
        ("name: requests.nvidia.com/gpu", "must be an extended resource"),
        ("name: nvidia.com/mig-1g.10gb+me", "must be an extended resource"),
        ("name: NVIDIA.com/gpu", "must be an extended resource"),
        (f"name: nvidia.com/{'a' * 64}", "must be an extended resource"),
        ("models: [a]", "the key 'name' is missing"),
        ("name: nvidia.com/a, models: []", "models must not be empty"),
        ("name: nvidia.com/a, devices: ['a b']", "must be an index, a UUID, a PCI address or a CDI name"),
        ("name: nvidia.com/a, min_memory_gb: -1", "must be a number from 0 to 1000000"),
        ("name: nvidia.com/a, kind: gpu", "must be a kind such as nvidia.com/gpu"),
    ],
)
def test_a_wrong_row_of_resources_is_refused_by_code_and_schema(row: str, message: str) -> None:
    text = f"kubelet: {{resources: [{{{row}}}]}}"
    assert message in refusal(text)
    assert not VALIDATOR.is_valid(yaml.safe_load(text))


@pytest.mark.parametrize("replicas", ["0", "40001", "-2", "many", "4.5"])
def test_replicas_are_a_number_from_1_to_40000(replicas: str) -> None:
    text = f"kubelet: {{sharing: [{{resource: nvidia.com/gpu, replicas: {replicas}}}]}}"
    assert "replicas must be a number from 1 to 40000" in refusal(text)
    assert not VALIDATOR.is_valid(yaml.safe_load(text))


def test_the_run_directory_must_not_be_a_spec_directory() -> None:
    assert "kubelet: run_dir must not be a spec directory" in refusal("kubelet: {run_dir: /run/cdi}")
