"""Measure topology: ``choose``, matrix, picture, and ``cdigen topology`` compared with ``cdigen list``.

``make bench-topology`` runs it. The machines are those of the tests. The commands read a host with the 8 GPUs
of the example inventory: the files of a running daemon, and a spec. Their runs are interleaved. cdigen is
installed into a private venv as users install it, with compiled modules.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cdigen.model.inventory import Accelerator
    from cdigen.topology.choose import AcceleratorPart
    from cdigen.topology.matrix import MatrixDevice

TESTS = Path(__file__).resolve().parents[1]
# Replace this folder in sys.path, because its files have the same names as packages of the tests.
sys.path[:1] = [str(TESTS), str(TESTS.parent)]

from bench.installed import REPOSITORY, install
from bench.processes import used_ms
from bench.tables import parser, report
from support.values import unhealthy_gpus
from support.values.topology_machines import hives, nvswitch, partitioned, pcie, replicas

from cdigen.topology.choose import AvailableDevices
from cdigen.topology.matrix import devices_of, matrix, text
from cdigen.topology.svg import picture
from cdigen.value import replace

CHOICES: dict[str, Sequence[Accelerator] | Sequence[AcceleratorPart]] = {
    "8 GPUs, NVSwitch": nvswitch(8, 18),
    "8 GPUs, two hives": hives(8, 4, per_socket=4),
    "16 GPUs, NVSwitch": nvswitch(16, 6),
    "16 GPUs, four islands": nvswitch(16, 18, island=4),
    "16 GPUs, only PCIe": pcie(16, per_socket=8, per_switch=4),
    "64 partitions of 8 GPUs": partitioned(hives(8, 8, per_socket=4), 8),
    "64 partitions of 16 GPUs": partitioned(nvswitch(16, 18), 4),
    "160 replicas of 16 GPUs": replicas(nvswitch(16, 18), 10),
    "5,000 replicas of 8 GPUs": replicas(nvswitch(8, 18), 625),
}
# Issue 17, "Topology" and "Speed". It has no goals for 5,000 replicas, the matrix and the picture.
CHOICE_GOAL_MS, COMMAND_GOAL = 5, 2
MAX_COUNT = 64


def main() -> None:
    """Run the benchmark; prints tables or JSON."""
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=25, help="interleaved runs of each (default: 25)")
    options = arguments.parse_args()
    found = {
        "one choice, processor time": [_choice(name, units) for name, units in CHOICES.items()],
        "the matrix and the picture, processor time": _views(options.runs),
        "commands, processor time": _commands(options.runs),
    }
    report(found, as_json=options.json)


def _choice(name: str, units: Sequence[Accelerator] | Sequence[AcceleratorPart]) -> dict[str, object]:
    """Return the median and longest time of a choice over all counts, packed and spread; a unit is in use."""
    free = units[1:]
    cases = [(count, spread) for count in range(1, min(len(free), MAX_COUNT)) for spread in (False, True)]
    # The minimum of five measurements, to exclude the influence of other processes.
    times = [min(_choice_ms(units, *each) for _ in range(5)) for each in cases]
    goal = "" if name.startswith("5,000") else CHOICE_GOAL_MS
    return {
        "what": name,
        "median ms": round(statistics.median(times), 2),
        "longest ms": round(max(times), 2),
        "goal ms": goal,
    }


def _choice_ms(units: Sequence[Accelerator] | Sequence[AcceleratorPart], count: int, spread: bool) -> float:  # noqa: FBT001
    return _ms(lambda: AvailableDevices(units).choose(range(1, len(units)), [6], count, spread=spread))


def _ms(run: Callable[[], object]) -> float:
    begun = time.process_time()
    run()
    return (time.process_time() - begun) * 1000


def _views(runs: int) -> list[dict[str, object]]:
    rows = []
    for number in (2, 8, 16):
        gpus = replace(unhealthy_gpus.example()["nvidia"], accelerators=nvswitch(number, 18))
        devices = devices_of({"nvidia": gpus})
        for name, run in (("matrix", _matrix), ("picture", picture)):
            times = [_ms(partial(run, devices)) for _ in range(runs)]
            rows.append(
                {
                    "what": f"the {name} of {number} GPUs",
                    "median ms": round(statistics.median(times), 2),
                    "longest ms": round(max(times), 2),
                }
            )
    return rows


def _matrix(devices: tuple[MatrixDevice, ...]) -> str:
    return text(matrix(devices, ()))


def _commands(runs: int) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory(prefix="cdigen-bench-") as folder:
        work = Path(folder)
        host = work / "host"
        (host / "var/run/cdi").mkdir(parents=True)
        spec = REPOSITORY / "examples/specs/debian13-8xh100.json"
        shutil.copy(spec, host / "var/run/cdi/nvidia.com-gpu.json")
        # The saved files name this process as the running daemon.
        unhealthy_gpus.save(host)
        cdigen = str(install(work / "venv") / "cdigen")
        commands = {
            "cdigen list": [cdigen, "list", "--root", str(host)],
            "cdigen topology": [cdigen, "topology", "--root", str(host)],
            "cdigen topology --svg": [cdigen, "topology", "--root", str(host), "--svg", str(work / "t.svg")],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs):
            for name, command in commands.items():
                times[name].append(used_ms(command))
    first = statistics.median(times["cdigen list"])
    return [
        {
            "what": name,
            "median ms": round(statistics.median(values), 1),
            "ratio": round(statistics.median(values) / first, 2),
            "goal": "" if name == "cdigen list" else COMMAND_GOAL,
        }
        for name, values in times.items()
    ]


if __name__ == "__main__":
    main()
