"""NVIDIA's container toolkit beside cdigen: its programs, and an NVML that answers it where there is no GPU.

nvidia-ctk asks NVML for the GPUs. From release 1.20 on it loads the library by the path at which it finds it
below the driver's root, whatever LD_LIBRARY_PATH says; so the stand-in takes the driver's own file's place.
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
        """Return the command that prints a spec with OPTIONS; PROGRAM is nvidia-ctk under another name."""
        asked = ("--quiet", "cdi", "generate", "--mode=nvml", "--format=json")
        return [program or str(self.ctk), *asked, *options]


def add_option(parser: ArgumentParser) -> None:
    """Add the option ``--toolkit``, the folder of `find`."""
    parser.add_argument(
        "--toolkit", type=Path, metavar="DIR", help="where nvidia-ctk and nvidia-cdi-hook are (default: PATH)"
    )


def find(folder: Path | None) -> Toolkit | None:
    """Return the toolkit in FOLDER, or of the PATH: there, it may be missing."""
    names = ("nvidia-ctk", "nvidia-cdi-hook")
    found = [shutil.which(name, path=folder and str(folder)) for name in names]
    missing = [name for name, path in zip(names, found, strict=True) if path is None]
    if folder is not None and missing:
        sys.exit(f"--toolkit {folder}: there is no {' and no '.join(missing)} to execute")
    ctk, hook = found
    return Toolkit(ctk=Path(ctk).absolute(), hook=Path(hook).absolute()) if ctk and hook else None


@contextmanager
def answering(root: Path, gpus: tuple[Gpu, ...]) -> Iterator[None]:
    """Let the driver's own libnvidia-ml.so below ROOT be the stand-in, with GPUS, until the body ends."""
    (library,) = [path for path in sorted(root.glob(f"usr/lib*/**/{PREFIX}*.*")) if _is_own(path)]
    machine = standin.Machine(
        driver=library.name.removeprefix(PREFIX),
        gpus=tuple(standin.Gpu(address=gpu.bdf, uuid=gpu.uuid, minor=gpu.minor) for gpu in gpus),
    )
    # The tree may be one of hard links: the file is moved aside, and not written into.
    kept = library.rename(library.with_name(f".kept-{library.name}"))
    try:
        standin.put(library, machine)
        yield
    finally:
        standin.remove(library)
        kept.rename(library)


def _is_own(path: Path) -> bool:
    """Return whether PATH is the file itself, and one for 64-bit programs."""
    if path.is_symlink():
        return False
    with path.open("rb") as file:
        return file.read(len(_CLASS_64)) == _CLASS_64
