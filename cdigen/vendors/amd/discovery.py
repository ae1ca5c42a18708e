"""An inventory of amdgpu's GPUs."""

from __future__ import annotations

from cdigen.model.errors import HostError
from cdigen.model.inventory import Inventory
from cdigen.vendors.amd.gpus import DRIVER, GpuReader
from cdigen.vendors.amd.listing import MODULE
from cdigen.vendors.modules import read_driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Accelerator, DriverFile, Sought
    from cdigen.vendors.base import Places

# Rules of findings that a GPU, or a partition of one, gets no device.
_OF_GPUS = {
    *("gpu-node-missing", "gpu-lost", "gpu-without-kfd", "control-node-missing"),
    *("partition-without-kfd", "partition-without-gpu", "partition-contradiction"),
}
_OF_NODES = {"gpu-node-missing", "control-node-missing"}


def discover(places: Places, *, libraries: bool) -> Inventory:
    """Read the GPUs of amdgpu, which is loaded; raises HostError: no-gpu, no-nodes.

    With LIBRARIES, the host's ROCm is looked for as well.
    """
    driver = read_driver(places.host, "amdgpu")
    try:
        reader = GpuReader(places)
        accelerators = reader.read()
        _require_usable(accelerators, reader.notes.findings)
    except HostError as error:
        error.driver = driver.version
        raise
    files: tuple[DriverFile, ...] = ()
    sought: tuple[Sought, ...] = ()
    if libraries:
        from cdigen.vendors.amd.libraries import find_libraries  # noqa: PLC0415 - by choice only

        files, sought = find_libraries(places, driver, reader.notes)
    return Inventory(
        vendor="amd",
        driver=driver,
        accelerators=accelerators,
        nodes=(),
        files=files,
        sought=sought,
        findings=tuple(reader.notes.findings),
    )


def _require_usable(accelerators: tuple[Accelerator, ...], findings: list[Finding]) -> None:
    if not accelerators:
        raise HostError(
            f"no GPU: the module amdgpu is loaded ({MODULE}), but has no device",
            hint="see 'lspci -d 1002:' and 'dmesg | grep amdgpu'",
            kind="no-gpu",
        )
    if any(gpu.usable for gpu in accelerators):
        return
    wrong = [finding for finding in findings if finding.severity == "error"]
    # What KFD's topology lacks may be told before what keeps a GPU from being used.
    first = next((finding for finding in wrong if finding.rule in _OF_GPUS), wrong[0] if wrong else None)
    why = first.message if first else f"{accelerators[0].address}: {accelerators[0].problem}"
    raise HostError(
        f"none of the {len(accelerators)} GPUs of amdgpu can be used: {why}",
        hint=first.hint if first else DRIVER,
        kind="no-nodes" if first and first.rule in _OF_NODES else "no-gpu",
    )
