"""Certificates for tests of TLS: `made`."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from support.abilities import tool

if TYPE_CHECKING:
    from pathlib import Path


def made(folder: Path, name: str, alias: str = "IP:127.0.0.1") -> tuple[str, str]:
    """Make a self-signed certificate for NAME and ALIAS; return the paths of certificate and key."""
    files = str(folder / f"{name}.crt"), str(folder / f"{name}.key")
    command = [tool("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-nodes", "-subj", f"/CN={name}", "-addext", f"subjectAltName={alias}"]
    command += ["-out", files[0], "-keyout", files[1]]
    subprocess.run(command, check=True, capture_output=True)
    return files
