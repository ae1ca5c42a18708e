"""An inventory of amdgpu's GPUs."""

from __future__ import annotations

from cdigen.model.errors import HostError
from cdigen.model.inventory import Inventory
from cdigen.vendors.amd.gpus import GpuReader
from cdigen.vendors.amd.listing import MODULE
from cdigen.vendors.modules import read_driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import DriverFile, Sought
    from cdigen.vendors.base import Places


def discover(places: Places, *, libraries: bool) -> Inventory:
    """Read the GPUs of amdgpu, which is loaded; raises HostError: no-gpu, no-nodes.

    With LIBRARIES, the host's ROCm is looked for as well.
    """
    driver = read_driver(places.host, "amdgpu")
    try:
        reader = GpuReader(places)
        accelerators = reader.read()
        _require_usable(len(accelerators), any(each.usable for each in accelerators), reader.notes.findings)
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


def _require_usable(count: int, is_any: bool, findings: list[Finding]) -> None:  # noqa: FBT001
    if not count:
        raise HostError(
            f"no GPU: the module amdgpu is loaded ({MODULE}), but has no device",
            hint="see 'lspci -d 1002:' and 'dmesg | grep amdgpu'",
            kind="no-gpu",
        )
    if not is_any:
        wrong = [finding for finding in findings if finding.severity == "error"]
        first = next(
            (finding for finding in wrong if finding.rule in {"gpu-node-missing", "gpu-lost"}), wrong[0]
        )
        raise HostError(
            f"none of the {count} GPUs of amdgpu can be used: {first.message}",
            hint=first.hint,
            kind="no-nodes" if first.rule == "gpu-node-missing" else "no-gpu",
        )
