"""The names in the commands of ``cdigen doctor`` that repair NVIDIA's driver (``REMEDIES``)."""

from __future__ import annotations

from cdigen.vendors.base import DriverRemedies

REMEDIES = DriverRemedies(
    modules=("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia"),
    libraries=("libcuda.so.1", "libnvidia-ml.so.1"),
    package_words=("nvidia", "cuda"),
    python_module="pynvml",
    node_mode="set NVreg_DeviceFileMode=0666 for the module nvidia",
    node_prefix="/dev/nvidia",
)
