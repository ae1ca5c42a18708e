"""Status files of the services, as the commands read them."""

import json
import subprocess
from pathlib import Path

from support.kubelet.resources import GPU, card, unit
from support.values.cycle_reports import CHANGED, QUIET, STARTING

from cdigen.daemon import status as daemon_status
from cdigen.daemon.cycle.report import DaemonStatus, next_status
from cdigen.extender.status import RESULTS, ExtenderState, ListState
from cdigen.kubelet.allocation.journal import Allocation
from cdigen.kubelet.labels.label_file import LabelState
from cdigen.kubelet.pods import PodDevices
from cdigen.kubelet.resources.model import Resource
from cdigen.kubelet.status import KubeletPluginStatus, RegisteredResource, document
from cdigen.model.findings import Finding
from cdigen.model.health import Cause
from cdigen.nri import status as nri
from cdigen.nri.decision.audit import UninjectedContainer
from cdigen.nri.decision.result.compat import abilities
from cdigen.nri.pods import ContainerName
from cdigen.nri.shared_state import NriMetrics
from cdigen.service import rundir
from cdigen.service import status as files
from cdigen.value import replace

MISSED = UninjectedContainer(
    name=ContainerName(namespace="ml", pod="trainer-0", container="main"),
    devices=("nvidia.com/gpu=all",),
    reason="r",
)
SOURCES = {"files": "", "uevents": "the netlink socket is closed"}
STATUS = next_status(
    next_status(STARTING, CHANGED, SOURCES), replace(QUIET, findings=CHANGED.findings), SOURCES
)
SICK = Cause(cause="xid-79", since="", detail="", clears_when="")
WRONG = Finding(severity="warning", rule="r", path="/c", message="something is wrong", hint="mend it")

FACTS = ExtenderState(
    started_s=1.0,
    since_s=2.0,
    waits_for="nodes",
    port=1,
    nodes=1,
    pods=1,
    total=8,
    used=3,
    binds=dict.fromkeys(RESULTS, 0),
    lists=(ListState(name="pods", problem="", last_event_s=3.0),),
)


def saved(root: Path, status: DaemonStatus = STATUS) -> Path:
    run_dir = root / "run/cdigen"
    rundir.prepare(str(run_dir))
    rundir.save_status(str(run_dir), daemon_status.document(status, files.this_process()))
    return run_dir / "status.json"


def end_process(status: Path) -> int:
    """Write the ID of an ended process into the file STATUS, as after a kill; return that ID."""
    with subprocess.Popen(["true"]) as ended:
        pass
    status.write_text(json.dumps(json.loads(status.read_bytes()) | {"pid": ended.pid}))
    return ended.pid


def served() -> KubeletPluginStatus:
    """Return a plugin's status with a registered and a rejected resource, an allocation and a refusal."""
    units = (unit(card(0, health="healthy")), unit(card(1, health="unhealthy", causes=(SICK,))))
    return KubeletPluginStatus(
        started_s=10.0,
        kubelet_dir="/var/lib/kubelet",
        served=(
            RegisteredResource(resource=Resource(name=GPU, units=units), state="registered", since_s=20.0),
            RegisteredResource(
                resource=Resource(name="x.com/y", units=()),
                state="claimed-by-other",
                since_s=20.0,
                reason="why",
            ),
        ),
        stale=("the daemon does not run",),
        problems=(WRONG,),
        journal=(
            Allocation(at_s=30.0, resource=GPU, ids=("GPU-0",), names=(f"{GPU}=GPU-0",)),
            Allocation(at_s=31.0, resource=GPU, ids=("GPU-9",), cause="unknown_id", reason="no GPU-9"),
        ),
        pods=(PodDevices(namespace="ml", pod="train", container="main", resource=GPU, ids=("GPU-0",)),),
        allocations={GPU: 1},
        refused={(GPU, "unknown_id"): 1},
        labels=LabelState(file="/x/cdigen", state="written", labels=(("a.com/b", "1"),), expires_s=60.0),
    )


def put_kubelet(host: Path, view: KubeletPluginStatus) -> None:
    run_dir = host / "run/cdigen-kubelet"
    rundir.prepare(str(run_dir))
    rundir.save_status(str(run_dir), document(view, files.this_process()))


def board() -> nri.PluginStatus:
    made = nri.PluginStatus(NriMetrics())
    made.abilities = abilities("containerd", "2.1.9")
    made.set_state(nri.REGISTERED)
    made.metrics.outcomes["inject"] = 12
    made.metrics.outcomes["refuse"] = made.metrics.refusals["unknown_device"] = 3
    return made


def put_nri(host: Path, made: nri.PluginStatus) -> None:
    run_dir = host / "run/cdigen-nri"
    rundir.prepare(str(run_dir))
    rundir.save_status(str(run_dir), nri.document(made, files.this_process()))
