"""Measure a cold ``cdigen generate``: time, ratio to a base such as a start of bare Python, peak memory.

``make bench`` runs it, as root. The benchmark creates the host: the driver files of the example inventory
with the kernel interfaces of 8 GPUs (to measure the growth, of up to 1,000 GPUs). With --tree, it uses a real
tree. The runs are interleaved, so that a change of the machine's speed affects all variants. cdigen is
installed into a private venv as users install it, with compiled modules.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from bench import toolkit
from bench.installed import install
from bench.processes import ENVIRONMENT, peak_mb
from bench.tables import parser, report, times_row
from support.hosts import amd_tree, driver_files, intel_tree
from support.hosts.mig import write_instance, write_minors
from support.hosts.nvidia_kernel import example_gpus, write_kernel_side
from support.nvml import standin

CONFIG = "vendors: [nvidia]\nspec_dirs: [/etc/cdi, /var/run/cdi]\n"
COUNTS = (8, 125, 250, 500, 1000)


def main() -> None:
    """Run the benchmark; prints a table or JSON."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "--runs", type=int, default=25, help="interleaved runs of each command (default: 25)"
    )
    arguments.add_argument(
        "--tree", type=Path, help="a root with a real driver 550.163.01 (it is copied by hard links)"
    )
    toolkit.add_option(arguments)
    options = arguments.parse_args()
    peer = toolkit.find(options.toolkit)
    if os.geteuid() != 0:
        sys.exit("the hosts have device nodes, which only root can create: run this as root")
    if shutil.which("gcc") is None:
        sys.exit("the fake NVML library is compiled: apt-get install gcc")
    with tempfile.TemporaryDirectory(prefix="cdigen-bench-") as folder:
        work = Path(folder)
        bin_dir = install(work / "venv")
        python, cdigen = str(bin_dir / "python"), str(bin_dir / "cdigen")
        hosts = {count: _host(work / f"host-{count}", count, options.tree) for count in COUNTS}
        config = work / "config.yaml"
        config.write_text(CONFIG)
        commands = {
            "python3 -I -c pass": [python, "-I", "-c", "pass"],
            "cdigen --version": [cdigen, "--version"],
            "cdigen generate, 8 GPUs": [cdigen, "generate", "--root", str(hosts[8])],
            "the same with a configuration": [
                cdigen, "generate", "--root", str(hosts[8]), "--config", str(config),
            ],
        }  # fmt: skip
        with toolkit_host(work / "host-toolkit", options.tree, peer) as command:
            rows = _measure({**commands, **command}, options.runs)
        mig = _mig_host(work / "host-mig", options.tree)
        commands_mig = {
            "cdigen generate, 8 GPUs": [cdigen, "generate", "--root", str(hosts[8])],
            "cdigen generate, 8 x 7 MIG instances": [cdigen, "generate", "--root", str(mig), "--nvml", "off"],
        }
        partitioned = _measure(commands_mig, options.runs)
        others = _measure(_other_commands(cdigen, work), options.runs)
        nvml_child = _nvml_child(work, python, options.runs)
        growth = {
            f"cdigen generate, {count} GPUs": [cdigen, "generate", "--root", str(host)]
            for count, host in hosts.items()
        }
        grown = _measure(growth, max(3, options.runs // 5))
    tables = {
        "cold start": rows,
        "MIG": partitioned,
        "AMD and Intel": others,
        "NVML": nvml_child,
        "growth": grown,
    }
    report(tables, as_json=options.json)


def _nvml_child(work: Path, python: str, runs: int) -> list[dict[str, object]]:
    """Return the time of the child that queries NVML, with a stand-in library."""
    with standin.trusted_folder() as folder_of_root:
        library = standin.install(folder_of_root, _mig_machine())
        child = next((work / "venv").glob("lib/python*/site-packages/cdigen/vendors/nvidia/nvml/child"))
        commands = {
            "python3 -I -c pass": [python, "-I", "-c", "pass"],
            "the NVML child (stand-in library)": [python, "-I", str(child), str(library), "identity"],
        }
        return _measure(commands, runs)


def _host(root: Path, count: int, tree: Path | None) -> Path:
    if tree is not None:
        subprocess.run(["cp", "--archive", "--link", "--no-target-directory", tree, root], check=True)
    else:
        root.mkdir()
        driver_files.debian_13(root)
    write_kernel_side(root, example_gpus(count))
    return root


@contextmanager
def toolkit_host(
    root: Path, tree: Path | None, peer: toolkit.Toolkit | None
) -> Iterator[dict[str, list[str]]]:
    """Create a host with 8 GPUs below ROOT; yield PEER's command for its spec (no command without PEER)."""
    if peer is None:
        yield {}
        return
    _host(root, 8, tree)
    options = (f"--driver-root={root}", f"--dev-root={root}", f"--nvidia-cdi-hook-path={peer.hook}")
    with toolkit.answering(root, example_gpus(8)):
        yield {"nvidia-ctk cdi generate, 8 GPUs": peer.generate(*options)}


def _mig_host(root: Path, tree: Path | None) -> Path:
    _host(root, 8, tree)
    write_minors(root, 8)
    for gpu in range(8):
        for instance in range(7, 14):
            write_instance(root, gpu, instance)
    return root


def _other_commands(cdigen: str, work: Path) -> dict[str, list[str]]:
    """Return a command for each AMD or Intel host (one has 64 partitions); ratios are to the first host."""
    hosts = {
        "8 MI210": amd_tree.mi210(),
        "8 MI300X whole": amd_tree.mi300x(1),
        "8 x 8 in CPX": amd_tree.mi300x(),
    }
    roots = {name: work / f"host-amd-{place}" for place, name in enumerate(hosts)}
    for name, gpus in hosts.items():
        amd_tree.write(roots[name], gpus)
    roots["8 Max 1550"] = work / "host-intel"
    intel_tree.lay(roots["8 Max 1550"], *intel_tree.max_1550())
    return {
        f"cdigen generate, {name}": [cdigen, "generate", "--root", str(root)] for name, root in roots.items()
    }


def _mig_machine() -> standin.Machine:
    return standin.Machine(
        gpus=tuple(
            standin.Gpu(
                address=gpu.bdf,
                uuid=gpu.uuid,
                minor=gpu.minor,
                mig=True,
                instances=standin.instances(7 * gpu.minor, *["1g.10gb"] * 7),
            )
            for gpu in example_gpus(8)
        )
    )


def _measure(commands: dict[str, list[str]], runs: int) -> list[dict[str, object]]:
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            begin = time.perf_counter()
            child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
            child.wait()
            times[name].append(time.perf_counter() - begin)
            if child.returncode:
                sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    base = statistics.median(next(iter(times.values())))
    return [
        times_row(
            name,
            values,
            ratio=round(statistics.median(values) / base, 2),
            peak_mb=peak_mb(commands[name]),
        )
        for name, values in times.items()
    ]


if __name__ == "__main__":
    main()
