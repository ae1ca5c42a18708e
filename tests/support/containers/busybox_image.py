"""An OCI image that is made here, without a registry: busybox with a command that waits."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

IMAGE = "localhost/cdigen-busybox:1"
APPLETS = ("cat", "env", "head", "ls", "mknod", "sh", "sleep", "stat", "wc")


def write_image(target: Path, busybox: Path) -> None:
    """Write an archive with one image: busybox, its applets, and a command that waits."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in ("bin", "dev", "etc", "proc", "sys", "tmp"):
            tar.addfile(_entry(name, tarfile.DIRTYPE))
        content = busybox.read_bytes()
        entry = _entry("bin/busybox", tarfile.REGTYPE)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
        for applet in APPLETS:
            link = _entry(f"bin/{applet}", tarfile.SYMTYPE)
            link.linkname = "busybox"
            tar.addfile(link)
    blobs: dict[str, bytes] = {}

    def blob(kind: str, content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    prefix = "application/vnd.oci.image"
    rows = blob(f"{prefix}.layer.v1.tar", layer.getvalue())
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [rows["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{prefix}.manifest.v1+json",
        "config": blob(f"{prefix}.config.v1+json", json.dumps(config).encode()),
        "layers": [rows],
    }
    named = blob(f"{prefix}.manifest.v1+json", json.dumps(manifest).encode())
    named["annotations"] = {"io.containerd.image.name": IMAGE}
    index = {"schemaVersion": 2, "manifests": [named]}
    blobs["index.json"] = json.dumps(index).encode()
    blobs["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    with tarfile.open(target, "w") as tar:
        for name, content in blobs.items():
            entry = _entry(name, tarfile.REGTYPE)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def _entry(name: str, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, 0o755
    return entry
