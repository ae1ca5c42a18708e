"""The evidence for a bug report in one file: ``pack``.

It holds what cdigen has derived of the host: what the checks found, the inventory, the specs that it would
write, versions, and how the runtimes and cdigen are configured. No file of the host is in it, and nothing
that a spec or a configuration of others says: people keep credentials there.
"""

from __future__ import annotations

import io
import os
import platform
import re

from cdigen import __version__
from cdigen.cdi.parse_cache import parse_and_check
from cdigen.cdi.render import render
from cdigen.doctor.health import known_by_daemon
from cdigen.doctor.kubelet import is_wanted
from cdigen.doctor.kubelet_settings import KNOWN_FOLDERS
from cdigen.doctor.spec_documents import MAX_SIZE, is_ours
from cdigen.host.root import shown
from cdigen.model.findings import errors
from cdigen.model.inventory_json import to_document
from cdigen.model.names import is_yaml
from cdigen.model.strict import as_json
from cdigen.runtimes.spec_cache import LOADED
from cdigen.store import plainfiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult
    from cdigen.pipeline.device_names import KnownDevice
    from cdigen.runtimes.scan import SpecScan
    from cdigen.runtimes.spec_cache import SpecFile

# The families whose details quote only the kernel, the driver and cdigen itself; others quote files.
_TOLD_TOPICS = frozenset({"configuration", "driver", "nodes", "daemon", "user"})
# What os-release(5) says of a system that many others have as well.
_RELEASE_KEYS = ("ID", "VERSION_ID", "VERSION_CODENAME")
# UUIDs of GPUs and MIG instances, with or without their dashes, and AMD's unique_id (vendors.amd.gpus), a
# number of 64 bits of which leading zeros are not written.
_UUID = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])"
    r"|0x[0-9a-f]{12,16}(?![0-9a-f])",
    re.IGNORECASE,
)
_HOME = re.compile(r"(?<=/home/)[^/\s\"',:;)]+")
_SHORTEST = 2  # characters: a shorter name would be found everywhere


def pack(context: Context, results: tuple[CheckResult, ...], path: str) -> None:
    """Pack the evidence into the new file PATH, which only its owner may read.

    StoreError: there is such a file already, or it cannot be written.
    """
    redaction = Redaction(_names(context))
    documents = {
        name: render(redaction.redacted(document), stray_bytes=True)
        for name, document in _evidence(context, results)
    }
    plainfiles.create(path, _archive(documents))


def _evidence(context: Context, results: tuple[CheckResult, ...]) -> Iterator[tuple[str, object]]:
    """Yield the names and documents of the bundle."""
    yield "doctor.json", [_result(result) for result in results]
    yield "versions.json", _versions(context)
    options = {name: dict(given) for name, given in context.configuration.vendor_options.items()}
    yield "configuration.json", {**as_json(context.configuration), "vendor_options": options}
    yield "inventory.json", to_document(context.inventories)
    yield "failures.json", {name: [e.kind, e.message] for name, e in context.failures.items()}
    yield "specs.json", _scans(context)
    for product in context.products:
        yield f"wanted/{product.kind.replace('/', '-')}.json", product.document
    if devices := known_by_daemon(context)[0]:
        yield "health.json", [_health(device) for device in devices]
    if is_wanted(context):
        yield "kubelet.json", _kubelet(context)
    status, _ = context.request.daemon()
    if status is not None:
        yield "status.json", status


def _result(result: CheckResult) -> dict[str, Any]:
    """Return RESULT without texts that may quote other programs' files."""
    row = result.row()
    if result.topic not in _TOLD_TOPICS:
        del row["detail"], row["remedy"], row["commands"]
    return row


def _kubelet(context: Context) -> dict[str, Any]:
    """Return how the node's kubelet is served; nothing of pods, and nothing that the kubelet's files say."""
    node, kubelet = context.node, context.node.kubelet
    keys = ("resource", "state", "since", "confirmed", "registrations", "count", "health")
    return {
        "program": kubelet.distribution.name if kubelet else "",
        "release": ".".join(map(str, node.release or ())),
        # Any other is somebody's own words.
        "root_dir": kubelet.root_dir if kubelet and kubelet.root_dir in KNOWN_FOLDERS else "",
        "runtime": node.runtime,
        "running": node.status is not None,
        "stale": bool(node.status and node.status["stale"]),
        "resources": [{key: row.get(key) for key in keys} for row in node.resources],
        "sockets": [{"kind": one.kind, "served": one.is_served} for one in node.entries if not one.is_ours],
    }


def _health(device: KnownDevice) -> dict[str, Any]:
    """Return the health of DEVICE without what was seen: the kernel quotes programs, and people people."""
    return {
        "device": device.name,
        "model": device.accelerator.model,
        "health": device.health,
        "causes": [{"cause": cause.cause, "since": cause.since} for cause in device.causes],
    }


def _versions(context: Context) -> dict[str, Any]:
    system = os.uname()
    rows = [line.partition("=") for line in context.text("/etc/os-release").splitlines()]
    return {
        "cdigen": __version__,
        "python": platform.python_version(),
        "kernel": f"{system.release} {system.machine}" if context.is_live else "",
        "system": {key: value.strip("\"'") for key, _, value in rows if key in _RELEASE_KEYS},
        "runtimes": [
            {
                "runtime": one.runtime,
                "release": ".".join(map(str, one.release or ())),
                "library": one.library,
                "newest": one.newest,
            }
            for one in (*context.installed.values(), *context.low_level.values())
        ],
    }


def _scans(context: Context) -> list[dict[str, Any]]:
    """Return how each runtime is configured, and what it makes of its spec directories."""
    scans = [_scan(context, "cdigen", context.own_view)]
    for runtime in context.runtimes:
        settings = runtime.settings
        row = _scan(context, runtime.name, context.view(runtime))
        findings = [{"rule": finding.rule, "file": finding.path} for finding in settings.findings]
        row |= {"cdi": settings.cdi_enabled, "nri": settings.nri_enabled, "uid": runtime.reader.uid}
        scans.append({**row, "files": list(settings.files), "findings": findings})
    return scans


def _scan(context: Context, name: str, view: SpecScan) -> dict[str, Any]:
    # The runtime's user may have no right to know the files of a directory that the runtime ignores.
    listed = {folder.path for folder in view.directories if not folder.problem}
    return {
        "runtime": name,
        "directories": [{"path": folder.path, "problem": folder.problem} for folder in view.directories],
        "specs": [_spec(context, file) for file in view.files if file.directory in listed],
    }


def _spec(context: Context, file: SpecFile) -> dict[str, Any]:
    """Return what is known of a spec file; of one that is not loaded, which rules it breaks."""
    row: dict[str, Any] = {"path": file.path, "state": file.state, "ours": is_ours(context, file.path)}
    if file.state == LOADED:
        return {**row, "kind": file.kind, "devices": len(file.devices)}
    if file.state == "file-refused":
        try:
            data = context.host.read(file.path, limit=MAX_SIZE)
        except OSError:
            return row
        faults = errors(parse_and_check(data, yaml=is_yaml(file.path)).findings)
        row["rules"] = sorted({fault.rule for fault in faults})
    return row


def _names(context: Context) -> set[str]:
    """Return the names of the host and of its users."""
    hosts = {context.text("/etc/hostname").strip(), *([platform.node()] if context.is_live else [])}
    users = {context.user.name} if context.user else set()
    for line in context.text("/etc/passwd", limit=1 << 20).splitlines():
        columns = line.split(":")
        if len(columns) > 2 and columns[2].isdigit() and 1000 <= int(columns[2]) < 65534:
            users.add(columns[0])
    return {*hosts, *(host.partition(".")[0] for host in hosts), *users} - {"localhost"}


def _archive(documents: dict[str, bytes]) -> bytes:
    """Return DOCUMENTS as one tar.gz, without times, owners and folders but the one that they are in."""
    import gzip  # noqa: PLC0415 - for this alone
    import tarfile  # noqa: PLC0415 - likewise

    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as file,
        tarfile.open(fileobj=file, mode="w") as archive,
    ):
        for name, content in documents.items():
            entry = tarfile.TarInfo(f"cdigen-doctor/{shown(name)}")
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


class Redaction:
    """Redacts UUIDs, users' homes, and NAMES: words of a host or a user that are known beforehand."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._numbers: dict[str, int] = {}
        # The longest first: one name may be the beginning of another.
        words = sorted({name for name in names if len(name) >= _SHORTEST}, key=lambda name: -len(name))
        self._names = [
            re.compile(rf"(?<![A-Za-z0-9_-]){re.escape(word)}(?![A-Za-z0-9_-])", re.IGNORECASE)
            for word in words
        ]

    def redacted(self, value: object) -> object:
        """Return the JSON document VALUE with every identifying name in its texts replaced."""
        if isinstance(value, dict):
            return {self._text(str(key)): self.redacted(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.redacted(item) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        text = _UUID.sub(lambda found: f"00000000-0000-0000-0000-{self._number(found[0]):012}", text)
        text = _HOME.sub(lambda found: f"user-{self._number(found[0])}", text)
        for name in self._names:
            text = name.sub(lambda found: f"name-{self._number(found[0])}", text)
        return text

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name.lower(), len(self._numbers) + 1)
