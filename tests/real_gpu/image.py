"""Makes an image from this machine's own files, and writes the spec with which podman starts containers."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from real_gpu.run import Run, Skipped

# Programs of this machine for the image, with the libraries that they and nvidia-smi need.
PROGRAMS = ("sh", "ls", "cat", "true", "ldconfig", "ldconfig.real")
LIBRARIES = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")


def make_image(root: Path) -> Path:
    """Create the root of an image from a shell and a few programs of this machine; return ROOT."""
    for name in ("dev", "etc", "proc", "sys", "tmp", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        if not (root / name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")
    found = [shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin") for name in PROGRAMS]
    cache = subprocess.run(["/sbin/ldconfig", "-p"], check=True, capture_output=True, text=True).stdout
    paths = {path for path in found if path}
    for path in list(paths):
        listed = subprocess.run(["ldd", path], check=False, capture_output=True, text=True).stdout
        paths |= set(re.findall(r"(/\S+) \(0x", listed))
    for name in LIBRARIES:
        paths |= set(
            re.findall(
                rf"^\s{re.escape(name)} \(libc6,[^)]*(?:x86-64|AArch64)[^)]*\) => (\S+)", cache, re.MULTILINE
            )[:1]
        )
    lay((Path(path), Path(f"{root}{path}")) for path in paths)
    return root


def lay(files: Iterable[tuple[Path, Path]]) -> None:
    """Copy each source (file or folder) to its target; further targets of the same file are hard links."""
    copies: dict[Path, Path] = {}
    for source, target in files:
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        elif source in copies:
            target.unlink(missing_ok=True)
            target.hardlink_to(copies[source])
        else:
            copies[source] = target
            shutil.copyfile(source, target)
            target.chmod(source.stat().st_mode & 0o777)


@contextmanager
def offered(run: Run, podman: str, document: dict[str, Any]) -> Iterator[list[str]]:
    """Write DOCUMENT as a spec to a folder that podman reads; yield the options of podman for this folder."""
    with_option = "--cdi-spec-dir" in run.call("podman-help", podman, "--help")
    if not with_option and os.geteuid() != 0:
        raise Skipped("podman before version 5 reads specs only from root's folders: needs root")
    folder = run.out / "cdi" if with_option else Path("/run/cdi")
    folder.mkdir(parents=True, exist_ok=True)
    spec = folder / "cdigen-real-gpu.json"
    spec.write_text(json.dumps(document))
    try:
        yield [f"--cdi-spec-dir={folder}"] if with_option else []
    finally:
        spec.unlink()
