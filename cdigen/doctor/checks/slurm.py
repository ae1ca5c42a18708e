"""The check of Slurm's configuration: whether jobs can use only their GPUs.

Without ``ConstrainDevices``, Slurm only sets ``CUDA_VISIBLE_DEVICES`` to the numbers of the job's GPUs on the
host. CUDA numbers the GPUs of a container from 0, so a container with one GPU finds no GPU with the number 2.
Sources: cgroup.conf(5) and gres.conf(5) of Slurm 23.11, and NVIDIA/pyxis issue 47.
"""

from __future__ import annotations

import re

from cdigen.doctor.result import Topic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

TOPIC = Topic(name="others")
DEVICES = "slurm-devices"
# The folders of slurm.conf: the default, that of Debian 10 and Ubuntu 20.04, and that of slurmd without
# local files.
_FOLDERS = ("/etc/slurm", "/etc/slurm-llnl", "/run/slurm/conf")
_LIMIT = 1 << 20
# Names and values are case insensitive. A line of gres.conf may start with the names of nodes.
_GPU_TYPES = re.compile(r"^\s*GresTypes\s*=\s*(?:[^#\s]*,)?gpu(?:,|\s|$)", re.IGNORECASE | re.MULTILINE)
_GPU_ROWS = re.compile(
    r"^[^#\n]*\b(?:Name\s*=\s*gpu\b|AutoDetect\s*=\s*(?:nvml|nvidia|rsmi|oneapi|nrt)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_CONSTRAINS = re.compile(r"^\s*ConstrainDevices\s*=\s*(\w+)", re.IGNORECASE | re.MULTILINE)


def _devices(context: Context) -> Iterator[CheckResult]:
    """Report whether Slurm lets its jobs use the GPUs of other jobs."""
    folder = next((one for one in _FOLDERS if context.host.exists(f"{one}/slurm.conf")), "")
    has_gpus = any(inventory.accelerators for inventory in context.inventories.values())
    if not folder or not has_gpus or not _schedules_gpus(context, folder):
        yield TOPIC.passed(DEVICES, "Slurm does not schedule the GPUs of this host")
        return
    file = f"{folder}/cgroup.conf"
    values = _CONSTRAINS.findall(context.text(file, limit=_LIMIT))
    if values and values[-1].lower() == "yes":
        yield TOPIC.passed(DEVICES, f"{file}: jobs can use only their GPUs (ConstrainDevices=yes)")
        return
    text = (
        f"{file}: ConstrainDevices=yes is missing: jobs can use the GPUs of other jobs, and "
        "CUDA_VISIBLE_DEVICES has the numbers of the host, so programs in containers with some of the GPUs "
        "find no GPU; add the line, set TaskPlugin=task/cgroup in slurm.conf, and restart slurmd"
    )
    yield TOPIC.warning(DEVICES, text)


def _schedules_gpus(context: Context, folder: str) -> bool:
    main, rows = (context.text(f"{folder}/{name}", limit=_LIMIT) for name in ("slurm.conf", "gres.conf"))
    return bool(_GPU_TYPES.search(main) or _GPU_ROWS.search(rows))


CHECKS = (_devices,)
