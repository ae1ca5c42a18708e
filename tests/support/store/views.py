"""Helpers for tests of views: the files of a small driver, plans, and private mounts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from support.paths import REPOSITORY
from support.store import views

from cdigen.host.root import Root
from cdigen.model.view import ViewFile, ViewLink, ViewPlan
from cdigen.store.directory import open_or_create
from cdigen.store.lock import exclusive
from cdigen.store.views import publishing

if TYPE_CHECKING:
    from collections.abc import Callable


Result = TypeVar("Result")

VERSION = "550.163.01"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01"
SMI = "/usr/bin/nvidia-smi"
LAYER = "/usr/share/vulkan/icd.d/nvidia_icd.json"
TIME = 1_700_000_000

PLAN = ViewPlan(
    vendor="nvidia",
    version=VERSION,
    files=(
        ViewFile(path="bin/nvidia-smi", source=SMI),
        ViewFile(path="lib64/libcuda.so.550.163.01", source=LIBRARY),
        ViewFile(path="fixed/usr/share/vulkan/icd.d/nvidia_icd.json", source=LAYER),
    ),
    links=(
        ViewLink(path="lib64/libcuda.so", target="libcuda.so.1"),
        ViewLink(path="lib64/libcuda.so.1", target="libcuda.so.550.163.01"),
        ViewLink(path="lib64/vdpau/libcuda_again.so", target="../libcuda.so.1"),
    ),
)
FILES = {file.path: file.source for file in PLAN.files}


def driver(base: Path) -> Path:
    """Make the files of PLAN below BASE, each with its own content and mode; return BASE."""
    for number, (path, mode) in enumerate({LIBRARY: 0o644, SMI: 0o755, LAYER: 0o644}.items()):
        put(base, path, bytes([65 + number]) * (30_000 + 5_000 * number), mode=mode)
    return base


def put(base: Path, path: str, content: bytes, *, mode: int = 0o644) -> Path:
    """Replace the file PATH below BASE by the rename of a new file, as a package manager does."""
    file = base / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.dpkg-new")
    new.write_bytes(content)
    new.chmod(mode)
    os.utime(new, ns=(TIME * 10**9 + 123_456_789, TIME * 10**9 + 123_456_789))
    os.rename(new, file)
    return file


def state(base: Path) -> str:
    return f"{base}/var/lib/cdigen"


def publish(base: Path, plan: ViewPlan = PLAN, *, copies: bool = False) -> publishing.PublishedView:
    return publishing.publish_view(plan, Root(str(base)), state(base), copies=copies)


def find(base: Path, plan: ViewPlan = PLAN) -> publishing.PublishedView | None:
    return publishing.find_view(plan, Root(str(base)), state(base))


def view(base: Path, published: publishing.PublishedView) -> Path:
    return base / published.path.lstrip("/")


def left(base: Path) -> list[str]:
    """Return the files in the view directory without the record of the boot."""
    folder = Path(state(base)) / "views"
    return sorted(set(os.listdir(folder)) - {"boot-id"}) if folder.exists() else []


def while_locked(base: Path, work: Callable[[], Result]) -> Result:
    """Return the result of WORK, which must wait while this function has the lock of the state directory."""
    with ThreadPoolExecutor() as pool:
        with open_or_create(state(base)) as home, exclusive(home):
            working = pool.submit(work)
            with pytest.raises(TimeoutError):
                working.result(0.2)
        return working.result()


def is_whole(base: Path, published: publishing.PublishedView) -> bool:
    """Return whether the view has exactly the content of PLAN, byte for byte."""
    folder = view(base, published)
    there = {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or path.is_file()
    }
    return (
        there == set(PLAN.paths())
        and all((folder / path).read_bytes() == (base / FILES[path][1:]).read_bytes() for path in FILES)
        and all(os.readlink(folder / link.path) == link.target for link in PLAN.links)
    )


def in_namespace(script: str, *arguments: str | Path) -> str:
    """Run SCRIPT in a private mount namespace and return its output.

    SCRIPT is shell code, a line ``---``, and Python code. The Python code can use all names of this module,
    and ``base`` for its first argument.
    """
    mounts, _, program = script.partition("---\n")
    path = ":".join((str(REPOSITORY), str(REPOSITORY / "tests")))
    imports = "import os, sys\nfrom pathlib import Path\nfrom support.store.views import *\n"
    preamble = f"{imports}base = Path(sys.argv[1])\n"
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-euc",
         f'{mounts}\nexec "$PYTHON" -c "$PROGRAM" "$@"', "sh", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": path, "PROGRAM": preamble + program},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def old_view(base: Path, *, library: bytes = b"library") -> str:
    views.put(base, views.LIBRARY, library)
    published = views.publish(base)
    old(views.view(base, published))
    return published.name


def old(path: Path) -> Path:
    os.utime(path, (time.time() - 1000, time.time() - 1000))
    return path
