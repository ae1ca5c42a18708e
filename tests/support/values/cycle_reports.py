"""Reports of cycles in the daemon's format."""

from cdigen.cdi.compare import compare
from cdigen.daemon.cycle.report import CycleReport, DaemonStatus, SpecReport, VendorReport
from cdigen.model.findings import Finding
from cdigen.watch.triggers import Trigger

STARTED_S = 1_767_225_600.25  # 2026-01-01T00:00:00.250Z
KIND = "nvidia.com/gpu"
FILE = "/var/run/cdi/nvidia.com-gpu.json"
STARTING = DaemonStatus(version="1.2.3", started_s=STARTED_S, since_s=STARTED_S)
READY = VendorReport(vendor="nvidia", state="ready", reason="2 GPUs")
MISMATCH = VendorReport(
    vendor="nvidia",
    state="mismatch",
    reason="the kernel module is 535.216.03, the libraries are 535.309.01",
    hint="reload the nvidia modules or reboot",
)
FINDING = Finding(
    severity="warning", rule="gpu-lost", path="0000:65:00.0", message="it fell off the bus", hint="reboot"
)


def document(*names: str) -> dict[str, object]:
    devices = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{name}"}]}} for name in names
    ]
    return {"cdiVersion": "0.5.0", "kind": KIND, "devices": devices, "containerEdits": {}}


WRITTEN = SpecReport(
    kind=KIND,
    file=FILE,
    result="written",
    served=2,
    left_out=1,
    written_s=STARTED_S,
    changes=compare(document("0"), document("0", "1")),
)
UNCHANGED = SpecReport(kind=KIND, file=FILE, result="unchanged", served=2, written_s=STARTED_S)
CHANGED = CycleReport(
    devices=2,
    number=1,
    reasons=(Trigger(source="uevents", reason="pci add 0000:65:00.0"), Trigger(source="poll", reason="mig")),
    events=7,
    started_s=STARTED_S,
    duration_s=0.0145,
    result="changed",
    vendors=(READY,),
    specs=(WRITTEN,),
    findings=(FINDING,),
)
QUIET = CycleReport(
    devices=2,
    number=2,
    reasons=(Trigger(source="timer", reason="cycle without an event"),),
    events=1,
    started_s=STARTED_S + 300,
    duration_s=0.01,
    result="unchanged",
    vendors=(READY,),
    specs=(UNCHANGED,),
)
FAILED = CycleReport(
    number=3,
    reasons=(Trigger(source="files", reason="/usr/lib"),),
    events=1,
    started_s=STARTED_S + 600,
    duration_s=0.01,
    result="failed",
    error="cannot write /var/run/cdi/nvidia.com-gpu.json: No space left on device",
)
