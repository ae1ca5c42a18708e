"""The image of cdigen as an archive, from this tree and the provisioned layer: `build`, `contents`."""

import json
import os
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.paths import REPOSITORY
from support.processes import succeeded

import cdigen

IMAGE = f"localhost/cdigen:{cdigen.__version__}"
PROBE = "/usr/libexec/cdigen/cdigen-probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The content of an archive: the image's configuration, and its files by paths without a first slash."""

    config: dict[str, Any]
    files: dict[str, tarfile.TarInfo]
    size: int


def build(cache: Path, target: Path, *options: str | Path) -> Path:
    """Make the archive TARGET with `packaging/image`, and return its path."""
    command = (REPOSITORY / "packaging/image", "--base", cache / "cdigen-base.tar", *options, target)
    succeeded(command, env={**os.environ, "DEB_ROOT": str(cache / "packager-trixie")})
    return target


def contents(archive: Path, folder: Path) -> Contents:
    """Read an archive by its OCI layout, as an engine does; it is extracted into the empty FOLDER."""
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", folder], check=True)

    def blob(descriptor: dict[str, Any]) -> Path:
        path = folder / "blobs" / str(descriptor["digest"]).replace(":", "/")
        assert path.stat().st_size == descriptor["size"]
        return path

    (named,) = json.loads((folder / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(named).read_text())
    files: dict[str, tarfile.TarInfo] = {}
    for layer in manifest["layers"]:
        with tarfile.open(blob(layer)) as tar:
            files |= {member.name.removeprefix("./"): member for member in tar.getmembers()}
    size = sum(member.size for member in files.values())
    return Contents(config=json.loads(blob(manifest["config"]).read_text()), files=files, size=size)
