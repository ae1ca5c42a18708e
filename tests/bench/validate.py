"""Measure ``cdigen validate``: one large spec, a thousand small ones, and a spec of 100,000 devices.

``make bench-validate`` runs it. The benchmark creates the specs. It measures the imports of the command
separately, and subtracts them except for the 100,000 devices. The runs are interleaved. cdigen is installed
into a private venv as users install it, with compiled modules.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
# Replace this folder in sys.path, because its files have the same names as packages of the tests.
sys.path[:1] = [str(TESTS), str(TESTS.parent)]

from bench.installed import install
from bench.processes import peak_mb, used_ms
from bench.tables import parser

FILES = 1000
IMPORTS = "the command's imports"
# Issue 6, "Speed" and "Bad input": milliseconds (after the imports, per file, in total); megabytes.
GOALS = {"56 devices": 60, "each of 1,000 files": 3, "100,000 devices": 5000}
GOAL_MB = 300


def main() -> None:
    """Run the benchmark; prints a table or JSON."""
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=15, help="interleaved runs of each (default: 15)")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="cdigen-bench-") as folder:
        work = Path(folder)
        bin_dir = install(work / "venv")
        cdigen = str(bin_dir / "cdigen")
        commands = {
            IMPORTS: [str(bin_dir / "python"), "-c", "import cdigen.cli.main, cdigen.cli.specs.validate"]
        }
        commands |= {name: [cdigen, "validate", *files] for name, files in _cases(work).items()}
        times = _times(commands, options.runs)
        memory = peak_mb(commands["100,000 devices"])
    rows = _rows(times, memory)
    print(json.dumps(rows, indent=2) if options.json else _table(rows))


def _cases(work: Path) -> dict[str, list[str]]:
    small, folder = spec(2), work / "small"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number}.json").write_text(small)
    (work / "56.json").write_text(spec(56))
    (work / "many.json").write_text(spec(100_000, mounts=0))
    return {
        "56 devices": [str(work / "56.json")],
        f"{FILES:,} files": [str(folder)],
        "100,000 devices": [str(work / "many.json")],
    }


def spec(devices: int, *, mounts: int = 30) -> str:
    """Return a spec as cdigen writes it, with DEVICES devices, which share MOUNTS mounts and a hook."""
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-{}.so.550.163.01"
    bind = {"type": "bind", "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"]}
    hook = {"hookName": "createContainer", "path": "/usr/libexec/cdigen/cdigen-hook", "args": ["cdigen-hook"]}
    document = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            {"name": str(n), "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{n}"}]}}
            for n in range(devices)
        ],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}],
            "mounts": [
                {"hostPath": library.format(n), "containerPath": library.format(n), **bind}
                for n in range(mounts)
            ],
            "hooks": [{**hook, "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], "timeout": 30}],
        },
    }
    return json.dumps(document)


def _times(commands: dict[str, list[str]], runs: int) -> dict[str, float]:
    """Return the median of each command's processor time in milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            times[name].append(used_ms(command))
    return {name: statistics.median(values) for name, values in times.items()}


def _rows(times: dict[str, float], memory: float) -> list[dict[str, object]]:
    imports = times[IMPORTS]
    measured = {
        "56 devices": times["56 devices"] - imports,
        "each of 1,000 files": (times[f"{FILES:,} files"] - imports) / FILES,
        "100,000 devices": times["100,000 devices"],
    }
    rows: list[dict[str, object]] = [{"what": IMPORTS, "ms": round(imports, 1), "goal": ""}]
    rows += [{"what": name, "ms": round(ms, 2), "goal": GOALS[name]} for name, ms in measured.items()]
    return [*rows, {"what": "100,000 devices, peak MB", "ms": memory, "goal": GOAL_MB}]


def _table(rows: list[dict[str, object]]) -> str:
    lines = [f"{'':28}{'CPU ms':>10}{'goal':>8}"]
    return "\n".join([*lines, *(f"{row['what']:28}{row['ms']:>10}{row['goal']:>8}" for row in rows)])


if __name__ == "__main__":
    main()
