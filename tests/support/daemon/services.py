"""Status files of the services besides the daemon."""

import json
from pathlib import Path
from typing import Any

from support.kubelet.resources import GPU, card, unit
from support.values.page_samples import NOW_S

from cdigen.kubelet import status as kubelet
from cdigen.kubelet.allocation.journal import Allocation
from cdigen.kubelet.pods import PodDevices
from cdigen.kubelet.resources.model import Resource
from cdigen.service.status import this_process


def served(folder: Path, **more: Any) -> str:
    """Write a status of `cdigen kubelet` with two GPUs, one of them in use, to FOLDER; return FOLDER."""
    units = tuple(unit(card(n, health="healthy"), cdi_names=(f"{GPU}={n}",)) for n in range(2))
    shown = kubelet.KubeletPluginStatus(
        started_s=NOW_S - 60,
        kubelet_dir="/var/lib/kubelet",
        served=(
            kubelet.RegisteredResource(
                resource=Resource(name=GPU, units=units), state="registered", since_s=NOW_S
            ),
        ),
        journal=(
            Allocation(at_s=NOW_S - 30, resource=GPU, ids=("GPU-0",)),
            Allocation(
                at_s=NOW_S - 20, resource=GPU, ids=("GPU-9",), cause="unknown", reason="no such device"
            ),
        ),
        pods=(PodDevices(namespace="ml", pod="train", container="main", resource=GPU, ids=("GPU-0",)),),
    )
    return saved(folder, {**kubelet.document(shown, this_process()), **more})


def saved(folder: Path, document: dict[str, Any]) -> str:
    folder.mkdir(mode=0o755)
    (folder / "status.json").write_text(json.dumps(document))
    return str(folder)
