"""Run cdigen on a machine with NVIDIA's driver, and compare it with independent sources: `make real-gpu`.

    python3 tests/real_gpu [--output FOLDER] [--root DIR] [--nvml LIBRARY] [--nvidia-smi PROGRAM]

Each step runs commands, each with a time limit, and checks their output. The output of each command is in
FOLDER, in files with the command's name (.json or .txt, and .err). summary.txt and summary.json list for each
step the verdict (ok, failed, skipped), the reason, and the commands with exit code and seconds;
real-gpu.tar.gz has all of these files. A failed step does not end the run. The exit code is 0 if no step
failed. A run takes at most 10 minutes.

Root is not needed: a step that lacks root, podman or nvidia-smi is skipped with that reason. The run writes
only to FOLDER, with one exception: if root runs podman before version 5, the last step writes a spec of its
own kind to /run/cdi. With `--root`, the folder DIR is the host, as for cdigen. Then the run also writes to
DIR/srv/cdigen-real-gpu.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from real_gpu.run import REPOSITORY, Run
from real_gpu.steps import STEPS


def main() -> int:
    """Do all steps and write the summary; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    default = REPOSITORY / "build/real-gpu"
    parser.add_argument("--output", type=Path, default=default, metavar="FOLDER", help="new or empty")
    parser.add_argument("--root", type=Path, metavar="DIR", help="use the folder DIR as the host")
    parser.add_argument(
        "--nvml", type=Path, metavar="LIBRARY", help="instead of the driver's libnvidia-ml.so.1"
    )
    parser.add_argument("--nvidia-smi", metavar="PROGRAM", help="instead of nvidia-smi in PATH")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if any(options.output.iterdir()):
        parser.error(f"{options.output} is not empty: remove it, or give another folder with --output")
    # Images contain a copy of the driver, some GB. They are removed at the end.
    with tempfile.TemporaryDirectory(prefix="images-", dir=options.output) as images:
        run = Run(
            output=options.output.absolute(),
            root=options.root and options.root.absolute(),
            nvml=options.nvml and options.nvml.absolute(),
            nvidia_smi=options.nvidia_smi,
            images=Path(images).absolute(),
        )
        for step in STEPS:
            run.do(step)
    return run.summarize()


if __name__ == "__main__":
    sys.exit(main())
