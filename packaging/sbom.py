"""packaging/sbom.py PYTHON: print the components of a release, as CycloneDX JSON.

    .venv/bin/python packaging/sbom.py build/locked/bin/python

PYTHON is the interpreter of an environment with exactly the packages of requirements.lock: cyclonedx-py reads
their dependencies and licences there. The hashes of the packages come from the lock. The same inputs give the
same bytes; SOURCE_DATE_EPOCH is the time of the document.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation import make_schemabased_validator

REPOSITORY = Path(__file__).resolve().parents[1]
SCHEMA = SchemaVersion.V1_6
_VERSION = re.compile(r'^__version__ = "(?P<version>[^"]+)"$', flags=re.MULTILINE)
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;]+)")
_HASH = re.compile(r"--hash=sha256:(?P<hash>[0-9a-f]{64})")


def main(python: str) -> int:
    """Print the document; return the exit code."""
    document = environment(python)
    hashes = locked()
    for component in document["components"]:
        name, version = normalized(component["name"]), component["version"]
        if (name, version) not in hashes:
            sys.exit(f"packaging/sbom.py: {name} {version} is not in requirements.lock")
        component["externalReferences"] = [distribution(component["purl"], hashes[name, version])]
    text = json.dumps(document, indent=2, sort_keys=True) + "\n"
    if error := make_schemabased_validator(OutputFormat.JSON, SCHEMA).validate_str(text):
        sys.exit(f"packaging/sbom.py: this is not CycloneDX {SCHEMA.to_version()}: {error}")
    sys.stdout.write(text)
    return 0


def environment(python: str) -> dict[str, Any]:
    """Return the components that cyclonedx-py finds in the environment of PYTHON, with cdigen's version."""
    command = [os.path.join(os.path.dirname(sys.executable), "cyclonedx-py"), "environment"]
    options = ["--output-reproducible", "--short-PURLs", f"--spec-version={SCHEMA.to_version()}"]
    with tempfile.TemporaryDirectory() as folder:
        # cyclonedx-py reads the version only from this file.
        project = Path(folder) / "pyproject.toml"
        text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
        project.write_text(text.replace('dynamic = ["version"]', f'version = "{own_version()}"'))
        done = subprocess.run(
            [*command, *options, "--pyproject", project, python], check=True, stdout=subprocess.PIPE
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def own_version() -> str:
    """Return the version of these sources."""
    match = _VERSION.search((REPOSITORY / "cdigen/__init__.py").read_text(encoding="utf-8"))
    if match is None:
        sys.exit("packaging/sbom.py: cdigen/__init__.py names no version")
    return match["version"]


def locked() -> dict[tuple[str, str], list[str]]:
    """Return the hashes of the files of each name and version in requirements.lock."""
    found: dict[tuple[str, str], list[str]] = {}
    hashes: list[str] = []
    for line in (REPOSITORY / "requirements.lock").read_text(encoding="utf-8").splitlines():
        if pin := _PIN.match(line):
            hashes = found.setdefault((normalized(pin["name"]), pin["version"]), [])
        hashes += _HASH.findall(line)
    return found


def normalized(name: str) -> str:
    """Return NAME, normalized as in package indexes (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def distribution(purl: str, hashes: list[str]) -> dict[str, Any]:
    """Return the reference to the files of a component; any of them can be the installed file."""
    return {
        "type": "distribution",
        "url": purl,
        "comment": "a file with one of these hashes (requirements.lock)",
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in sorted(hashes)],
    }


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
