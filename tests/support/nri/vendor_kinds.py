"""The variables of vendors other than NVIDIA, and specs of their kinds."""

from support.nri.device_names import device_names

from cdigen.nri.decision.request.select import DeviceNames

# Variable -> the kind that it requests.
KINDS = {
    "AMD_VISIBLE_DEVICES": "amd.com/gpu",
    "DOCKER_RESOURCE_GPU": "amd.com/gpu",
    "HABANA_VISIBLE_DEVICES": "intel.com/gaudi",
    "ASCEND_VISIBLE_DEVICES": "huawei.com/npu",
    "AWS_NEURON_VISIBLE_DEVICES": "aws.amazon.com/neuron",
    "TPU_VISIBLE_CHIPS": "google.com/tpu",
    "TPU_VISIBLE_DEVICES": "google.com/tpu",
}
VARIABLES = [*KINDS]


def spec(kind: str, *names: str) -> DeviceNames:
    return device_names(f"{kind}={name}" for name in names or ("0", "1", "2", "3"))
