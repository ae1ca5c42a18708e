"""NVIDIA's container toolkit for comparisons with cdigen: its two programs, and a fake NVML for them.

nvidia-ctk reads the GPUs from NVML. Since release 1.20 it loads the library from its path below the driver's
root and ignores LD_LIBRARY_PATH. Therefore the fake replaces the driver's file.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from support.nvml import standin

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterator

    from support.hosts.nvidia_kernel import Gpu

PREFIX = "libnvidia-ml.so."
_CLASS_64 = b"\x7fELF\x02"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """The toolkit's two programs: one generates specs, the other is the hook in them."""

    ctk: Path
    hook: Path

    def generate(self, *options: str, program: str = "") -> list[str]:
        """Return the command that prints a spec with OPTIONS; PROGRAM is another path of nvidia-ctk."""
        defaults = ("--quiet", "cdi", "generate", "--mode=nvml", "--format=json")
        return [program or str(self.ctk), *defaults, *options]


def add_option(parser: ArgumentParser) -> None:
    """Add the option ``--toolkit``, whose value is the argument of `find`."""
    parser.add_argument(
        "--toolkit", type=Path, metavar="DIR", help="folder of nvidia-ctk and nvidia-cdi-hook (default: PATH)"
    )


def find(folder: Path | None) -> Toolkit | None:
    """Return the toolkit in FOLDER, which must have it; if FOLDER is None, the toolkit in PATH, or None."""
    names = ("nvidia-ctk", "nvidia-cdi-hook")
    found = [shutil.which(name, path=folder and str(folder)) for name in names]
    missing = [name for name, path in zip(names, found, strict=True) if path is None]
    if folder is not None and missing:
        sys.exit(f"--toolkit {folder}: no executable {' or '.join(missing)}")
    ctk, hook = found
    return Toolkit(ctk=Path(ctk).absolute(), hook=Path(hook).absolute()) if ctk and hook else None


@contextmanager
def answering(root: Path, gpus: tuple[Gpu, ...]) -> Iterator[None]:
    """Replace the driver's libnvidia-ml.so below ROOT by a fake that lists GPUS, until the body ends."""
    (library,) = [path for path in sorted(root.glob(f"usr/lib*/**/{PREFIX}*.*")) if _is_own(path)]
    machine = standin.Machine(
        driver=library.name.removeprefix(PREFIX),
        gpus=tuple(standin.Gpu(address=gpu.bdf, uuid=gpu.uuid, minor=gpu.minor) for gpu in gpus),
    )
    # The tree may consist of hard links. Therefore the file is renamed, and not overwritten.
    kept = library.rename(library.with_name(f".kept-{library.name}"))
    try:
        standin.put(library, machine)
        yield
    finally:
        standin.remove(library)
        kept.rename(library)


def _is_own(path: Path) -> bool:
    """Return whether PATH is a 64-bit ELF file and no symbolic link."""
    if path.is_symlink():
        return False
    with path.open("rb") as file:
        return file.read(len(_CLASS_64)) == _CLASS_64
