"""packaging/oci_archive.py NAME VERSION ARCHITECTURE OUTPUT LAYER...: write the archive of an image.

    python3 packaging/oci_archive.py localhost/cdigen 0.1.0 amd64 image.tar base.tar cdigen.tar

The archive is both an OCI image layout and an archive of 'docker save', with the same blobs: every engine
loads it, including Docker before 25. Layers are tar files, the lowest first, and are not changed. The same
layers give the same bytes; SOURCE_DATE_EPOCH is the time of all files.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# Not root: pods that need a folder or a socket of root set the user (packaging/kubernetes).
USER = "65532:65532"
ENVIRONMENT = ["PATH=/usr/sbin:/usr/bin", "LC_ALL=C.UTF-8"]
# https://github.com/opencontainers/image-spec/blob/v1.1.0/media-types.md
OCI = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A part of the image by its content: bytes, or the bytes of a file."""

    digest: str
    size: int
    media_type: str
    content: bytes = b""
    file: Path | None = None

    @property
    def path(self) -> str:
        """Its path in the archive."""
        return f"blobs/sha256/{self.digest}"

    def described(self, **more: Any) -> dict[str, Any]:
        """Return its descriptor (OCI image specification), with MORE in it."""
        return {"mediaType": self.media_type, "digest": f"sha256:{self.digest}", "size": self.size, **more}


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The name, version and architecture of an image."""

    name: str
    version: str
    architecture: str
    created: int
    layers: tuple[Blob, ...]

    @property
    def reference(self) -> str:
        """Name and version, as engines print them."""
        return f"{self.name}:{self.version}"


def main(name: str, version: str, architecture: str, output: str, *layers: str) -> None:
    """Write the archive."""
    created = int(os.environ["SOURCE_DATE_EPOCH"])
    blobs = tuple(file_blob(Path(layer)) for layer in layers)
    image = Image(name=name, version=version, architecture=architecture, created=created, layers=blobs)
    write(Path(output), image)


def write(output: Path, image: Image) -> None:
    """Write IMAGE as one archive."""
    config = json_blob(configuration(image), f"{OCI}.config.v1+json")
    layers = [layer.described() for layer in image.layers]
    manifest = json_blob(
        {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": config.described(),
            "layers": layers,
        },
        f"{OCI}.manifest.v1+json",
    )
    # containerd uses the first name, podman the second.
    annotations = {
        "io.containerd.image.name": image.reference,
        "org.opencontainers.image.ref.name": image.reference,
    }
    index = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.index.v1+json",
        "manifests": [manifest.described(annotations=annotations)],
    }
    layer_paths = [layer.path for layer in image.layers]
    of_docker = [{"Config": config.path, "RepoTags": [image.reference], "Layers": layer_paths}]
    with tarfile.open(output, "w", format=tarfile.GNU_FORMAT) as archive:
        add(archive, "oci-layout", as_json({"imageLayoutVersion": "1.0.0"}), image.created)
        add(archive, "index.json", as_json(index), image.created)
        add(archive, "manifest.json", as_json(of_docker), image.created)
        for blob in sorted({config, manifest, *image.layers}, key=lambda blob: blob.digest):
            add(archive, blob.path, blob.file or blob.content, image.created)


def configuration(image: Image) -> dict[str, Any]:
    """Return the image's configuration (OCI image specification)."""
    created = datetime.fromtimestamp(image.created, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "created": created,
        "architecture": image.architecture,
        "os": "linux",
        "config": {
            "User": USER,
            "Env": ENVIRONMENT,
            "Cmd": ["cdigen", "--help"],
            "WorkingDir": "/",
            "Labels": labels(image, created),
        },
        # Layers are not compressed: their diff ID is the digest of the blob.
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in image.layers]},
    }


def labels(image: Image, created: str) -> dict[str, str]:
    """Return the labels of the image (OCI image specification, annotations), from pyproject.toml."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    values = {
        "title": project["name"],
        "description": "makes a host's GPUs available to containers",
        "authors": project["authors"][0]["name"],
        "licenses": project["license"],
        "version": image.version,
        "created": created,
        "url": project["urls"]["Homepage"],
        "documentation": project["urls"]["Documentation"],
        "source": project["urls"]["Source"],
    }
    return {f"org.opencontainers.image.{name}": value for name, value in values.items()}


def file_blob(path: Path) -> Blob:
    """Describe the layer in a tar file."""
    with path.open("rb") as layer:
        digest = hashlib.file_digest(layer, "sha256").hexdigest()
    return Blob(digest=digest, size=path.stat().st_size, media_type=f"{OCI}.layer.v1.tar", file=path)


def json_blob(value: Any, media_type: str) -> Blob:
    """Describe a JSON document."""
    content = as_json(value)
    return Blob(
        digest=hashlib.sha256(content).hexdigest(), size=len(content), media_type=media_type, content=content
    )


def as_json(value: Any) -> bytes:
    """Return VALUE as JSON with a fixed format."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def add(archive: tarfile.TarFile, name: str, content: bytes | Path, time: int) -> None:
    """Add a file that belongs to root."""
    member = tarfile.TarInfo(name)
    member.mode, member.mtime = 0o644, time
    if isinstance(content, Path):
        member.size = content.stat().st_size
        with content.open("rb") as file:
            archive.addfile(member, file)
    else:
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    main(*sys.argv[1:])
