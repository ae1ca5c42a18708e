"""Write a bundle, which is one archive with data for a bug report.

The bundle contains data that cdigen derives from the host: the results of the checks, the inventory, the
specs that cdigen would write, versions, and settings of the runtimes and of cdigen. The bundle contains no
copy of a file of the host. The specs and configurations of other programs may contain credentials, so the
bundle omits their text.
"""

from __future__ import annotations

import io
import os
import platform
import re

from cdigen import __version__
from cdigen.cdi.parse_cache import parse_and_check
from cdigen.cdi.render import render
from cdigen.doctor.checks.health import devices_of_daemon
from cdigen.doctor.kubernetes.kubelet import is_examined
from cdigen.doctor.kubernetes_node.settings import KNOWN_FOLDERS
from cdigen.doctor.spec_documents import MAX_SIZE, is_ours
from cdigen.host.root import shown
from cdigen.model.findings import errors
from cdigen.model.inventory_json import to_document
from cdigen.model.names import is_yaml
from cdigen.model.strict import as_json
from cdigen.runtimes.spec_cache import LOADED
from cdigen.runtimes.users import rows
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

# The topics of checks whose details quote only the kernel, the driver and cdigen. The details of other checks
# may quote files of other programs.
_DETAILED_TOPICS = frozenset({"configuration", "driver", "nodes", "daemon", "user"})
# The keys of os-release(5) whose values are the same on many systems.
_RELEASE_KEYS = ("ID", "VERSION_ID", "VERSION_CODENAME")
# UUIDs of GPUs and MIG instances, with or without dashes, and AMD's unique_id (vendors.amd.gpus). The
# unique_id is a 64-bit number without leading zeros.
_UUID = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])"
    r"|0x[0-9a-f]{12,16}(?![0-9a-f])",
    re.IGNORECASE,
)
_HOME = re.compile(r"(?<=/home/)[^/\s\"',:;)]+")
_SHORTEST = 2  # characters: shorter names would match everywhere


def pack(context: Context, results: tuple[CheckResult, ...], path: str) -> None:
    """Write the bundle to the new file PATH, which gets the mode 0600.

    Raises StoreError if the file exists already or cannot be written.
    """
    redaction = Redaction(_names(context))
    documents = {
        name: render(redaction.redacted(document), stray_bytes=True)
        for name, document in _evidence(context, results)
    }
    plainfiles.create(path, _archive(documents))


def _evidence(context: Context, results: tuple[CheckResult, ...]) -> Iterator[tuple[str, object]]:
    """Yield the name and the content of each document of the bundle."""
    yield "doctor.json", [_result(result) for result in results]
    yield "versions.json", _versions(context)
    options = {name: dict(values) for name, values in context.configuration.vendor_options.items()}
    yield "configuration.json", {**as_json(context.configuration), "vendor_options": options}
    yield "inventory.json", to_document(context.inventories)
    yield "failures.json", {name: [e.kind, e.message] for name, e in context.failures.items()}
    yield "specs.json", _scans(context)
    for product in context.products:
        yield f"generated/{product.kind.replace('/', '-')}.json", product.document
    if devices := devices_of_daemon(context)[0]:
        yield "health.json", [_health(device) for device in devices]
    if is_examined(context):
        yield "kubelet.json", _kubelet(context)
    status, _ = context.request.daemon()
    if status is not None:
        yield "status.json", status


def _result(result: CheckResult) -> dict[str, Any]:
    """Return the JSON object of RESULT, without texts that may quote files of other programs."""
    row = result.row()
    if result.topic not in _DETAILED_TOPICS:
        del row["detail"], row["remedy"], row["commands"]
    return row


def _kubelet(context: Context) -> dict[str, Any]:
    """Return the state of the node's device plugins; omit pods, and texts from the kubelet's files."""
    node, kubelet = context.node, context.node.kubelet
    keys = ("resource", "state", "since", "confirmed", "registrations", "count", "health")
    return {
        "program": kubelet.distribution.name if kubelet else "",
        "release": ".".join(map(str, node.release or ())),
        # Other paths may contain any text, such as a name.
        "root_dir": kubelet.root_dir if kubelet and kubelet.root_dir in KNOWN_FOLDERS else "",
        "runtime": node.runtime,
        "running": node.status is not None,
        "stale": bool(node.status and node.status["stale"]),
        "resources": [{key: row.get(key) for key in keys} for row in node.resources],
        "sockets": [{"kind": one.kind, "served": one.is_served} for one in node.entries if not one.is_ours],
    }


def _health(device: KnownDevice) -> dict[str, Any]:
    """Return the health of DEVICE without details, because details may quote programs and users."""
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
    """Return the scan of cdigen's spec directories, then the settings and the scan of each runtime."""
    scans = [_scan(context, "cdigen", context.own_view)]
    for runtime in context.runtimes:
        settings = runtime.settings
        row = _scan(context, runtime.name, context.view(runtime))
        findings = [{"rule": finding.rule, "file": finding.path} for finding in settings.findings]
        row |= {"cdi": settings.cdi_enabled, "nri": settings.nri_enabled, "uid": runtime.reader.uid}
        scans.append({**row, "files": list(settings.files), "findings": findings})
    return scans


def _scan(context: Context, name: str, view: SpecScan) -> dict[str, Any]:
    # A runtime ignores a directory that the user of the runtime cannot list.
    listed = {folder.path for folder in view.directories if not folder.problem}
    return {
        "runtime": name,
        "directories": [{"path": folder.path, "problem": folder.problem} for folder in view.directories],
        "specs": [_spec(context, file) for file in view.files if file.directory in listed],
    }


def _spec(context: Context, file: SpecFile) -> dict[str, Any]:
    """Return the path and the state of FILE, with its kind (if loaded) or violated rules (if rejected)."""
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
    for user, _, uid, *_ in rows(context.host, "/etc/passwd", 3):
        if uid.isdigit() and 1000 <= int(uid) < 65534:
            users.add(user)
    return {*hosts, *(host.partition(".")[0] for host in hosts), *users} - {"localhost"}


def _archive(documents: dict[str, bytes]) -> bytes:
    """Return a tar.gz of DOCUMENTS in a single folder; the archive has no times and no owners."""
    import gzip  # noqa: PLC0415 - only here
    import tarfile  # noqa: PLC0415 - only here

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
    """A redaction of UUIDs, user names in /home paths, and NAMES (known names of hosts and users)."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._numbers: dict[str, int] = {}
        # Longer names come first, because a name may be the prefix of another name.
        words = sorted({name for name in names if len(name) >= _SHORTEST}, key=lambda name: -len(name))
        self._names = [
            re.compile(rf"(?<![A-Za-z0-9_-]){re.escape(word)}(?![A-Za-z0-9_-])", re.IGNORECASE)
            for word in words
        ]

    def redacted(self, value: object) -> object:
        """Return the JSON document VALUE with a placeholder for each UUID and each name."""
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
