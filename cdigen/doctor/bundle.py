"""The evidence for a bug report in one file: ``pack``.

It holds what the checks said, what the host has, the specs, and what of the runtimes' configuration has to do
with CDI. Values of other settings, credentials above all, and variables that specs set are left out.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re

from cdigen import __version__
from cdigen.cdi.reader import parse_document
from cdigen.cdi.render import render
from cdigen.cdi.rules.rulebook import RULES
from cdigen.doctor import masking_documents
from cdigen.doctor.masking import Masks
from cdigen.doctor.masking_documents import LEFT_OUT
from cdigen.host.root import reason, shown
from cdigen.model.errors import StoreError
from cdigen.model.inventory_json import to_document
from cdigen.runtimes.access import may_list, may_read
from cdigen.runtimes.users import ROOT
from cdigen.store import plainfiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult
    from cdigen.runtimes.scan import SpecScan
    from cdigen.runtimes.users import Reader

_EVERYBODYS = frozenset({"", "localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})
_MAX_FILE = 1 << 20
_MAX_FILES = 200
# The checks that say what is wrong inside of a spec, where what they quote begins, and what is no quote.
_QUOTING = frozenset(
    {"spec-crash", "spec-refused", "spec-rules", "spec-syntax", "spec-uncertain", "spec-version"}
)
_QUOTE = re.compile(r": | \(")
_RULE = re.compile(r"line \d+|\[[a-z0-9-]+\]")
_UNPARSED = f"{LEFT_OUT}: it cannot be parsed\n"
_MAX_KERNEL = 1 << 18
_KERNEL = re.compile(r"(?i)nvrm|nvidia|nouveau|xid|drm|iommu|apparmor|selinux|avc|cgroup|out of memory")
_SYSTEM_FILES = (
    "/etc/os-release",
    "/proc/devices",
    "/proc/driver/nvidia/params",
    "/proc/driver/nvidia/version",
    "/proc/sys/kernel/osrelease",
)
_CONFIGURATION = "/etc/cdigen/config.yaml"


def pack(context: Context, found: tuple[CheckResult, ...], path: str, *, mask: bool) -> None:
    """Pack the evidence into the new file PATH, which only its owner may read.

    StoreError: there is such a file already, or it cannot be written.
    """
    masks = _masks(context) if mask else None
    content = _archive({name: _fit(text, masks) for name, text in _evidence(context, found)}, masks)
    plainfiles.create(path, content)


def _masks(context: Context) -> Masks:
    hosts = {context.text("/etc/hostname").strip(), *([platform.node()] if context.is_live else [])}
    short = {name.partition(".")[0] for name in hosts} - {"", "localhost"}
    domains = {name.partition(".")[2] for name in hosts}
    for line in context.text("/etc/resolv.conf").splitlines():
        words = line.split()
        domains |= set(words[1:]) if words[:1] in (["search"], ["domain"]) else set()
    for line in context.text("/etc/hosts").splitlines():
        names = set(line.partition("#")[0].split()[1:])
        hosts |= names if names & (hosts | short) else set()
    users = {context.user.name} if context.user else set()
    users |= set(context.host.names("/home"))  # those of a directory, whom /etc/passwd does not know
    for line in context.text("/etc/passwd", limit=1 << 20).splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2].isdigit() and 1000 <= int(fields[2]) < 65534:
            users.add(fields[0])
    return Masks(
        hosts={*hosts, *short} - _EVERYBODYS,
        users=users - {""},
        # A single word (lan, local) would be found in the midst of what has to be read.
        domains={name.strip(".") for name in domains if "." in name.strip(".")},
    )


def _fit(text: str, masks: Masks | None) -> str:
    return masks.masked(text) if masks else text


def _evidence(context: Context, found: tuple[CheckResult, ...]) -> Iterator[tuple[str, str]]:
    """Yield names and texts."""
    closed = tuple(
        path for path, readers in _readers(context).items() if not _is_open(context, path, readers)
    )
    yield "doctor.json", _json([_row(result, closed) for result in found])
    yield "versions.json", _json(_versions(context))
    yield "inventory.json", _json(to_document(context.inventories))
    yield (
        "failures.json",
        _json({name: [error.kind, error.message] for name, error in context.failures.items()}),
    )
    for product in context.products:
        yield f"wanted/{product.kind.replace('/', '-')}.json", _json(_spec(context, product.document))
    yield "listing.txt", _listing(context)
    for path, readers in list(_readers(context).items())[:_MAX_FILES]:
        yield f"specs{path}", _spec_file(context, path, readers)
    for runtime in context.runtimes:
        for file in runtime.settings.files[:_MAX_FILES]:
            yield f"runtimes{file}", _settings(context, file, runtime.reader)
    status = context.request.daemon().status
    if status is not None:
        yield "status.json", _json(status)
    for path in _SYSTEM_FILES:
        if context.host.exists(path):
            yield f"system{path}", _content(context, path)
    if context.host.exists(_CONFIGURATION):
        yield f"system{_CONFIGURATION}", _configuration(context)
    if context.is_live:
        yield "kernel.txt", _kernel_messages()


def _row(result: CheckResult, closed: tuple[str, ...]) -> dict[str, Any]:
    """Return VERDICT without what it quotes of specs; nothing of those that are CLOSED to who reads them."""
    row = result.row()
    if any(shown(path) in result.detail for path in closed):
        row["detail"] = f"{LEFT_OUT}: of a file that the runtime's user may not read"
    elif result.check in _QUOTING and not result.ok:
        head = _QUOTE.split(result.detail, maxsplit=1)[0]
        told = [
            word for word in _RULE.findall(result.detail) if word.startswith("line") or word[1:-1] in RULES
        ]
        row["detail"] = " ".join((f"{head}:", LEFT_OUT, *told)) if head != result.detail else head
    return row


def _json(value: object) -> str:
    return render(value, stray_bytes=True).decode("utf-8", "replace")


def _versions(context: Context) -> dict[str, Any]:
    system = os.uname()
    binaries = (*context.installed.values(), *context.low_level.values())
    return {
        "cdigen": __version__,
        "python": platform.python_version(),
        "kernel": f"{system.sysname} {system.release} {system.machine}" if context.is_live else "",
        "runtimes": [
            {
                "runtime": one.runtime,
                "binary": one.binary,
                "said": one.version_text,
                "library": one.library,
                "problem": one.problem,
            }
            for one in binaries
        ],
        "configured": [
            {
                "runtime": one.name,
                "spec_dirs": list(one.settings.spec_dirs),
                "cdi": one.settings.cdi_enabled,
                "nri": one.settings.nri_enabled,
                "files": list(one.settings.files),
            }
            for one in context.runtimes
        ],
    }


def _listing(context: Context) -> str:
    """Return what lies in the spec directories, as ls -ln shows it."""
    lines = []
    folders: dict[str, list[Reader]] = {}
    for reader, view in _views(context):
        for one in view.folders:
            folders.setdefault(one.path, []).append(reader)
    for folder, readers in folders.items():
        if not all(may_list(context.host, folder, reader) for reader in readers):
            lines.append(f"{shown(folder)}: {LEFT_OUT}: the runtime's user may not list it")
            continue
        for path in (folder, *(f"{folder}/{name}" for name in context.host.names(folder)[:_MAX_FILES])):
            try:
                real, status = context.host.located(path)
            except OSError as error:
                lines.append(f"{shown(path)}: {reason(error)}")
                continue
            leads = f" -> {shown(real)}" if real != path else ""
            size = f"{status.st_mode:07o} {status.st_uid}:{status.st_gid} {status.st_size}"
            lines.append(f"{size} {shown(path)}{leads}")
    return "\n".join(lines) + "\n"


def _content(context: Context, path: str) -> str:
    try:
        return context.host.read(path, limit=_MAX_FILE).decode("utf-8", "replace")
    except OSError as error:
        return f"{LEFT_OUT}: {reason(error)}\n"


def _readers(context: Context) -> dict[str, tuple[Reader, ...]]:
    """Return every spec file with the processes that read it."""
    found: dict[str, tuple[Reader, ...]] = {}
    for reader, view in _views(context):
        for spec_file in view.spec_files:
            found[spec_file.path] = (*found.get(spec_file.path, ()), reader)
    return found


def _views(context: Context) -> Iterator[tuple[Reader, SpecScan]]:
    yield ROOT, context.own_view
    for runtime in context.runtimes:
        yield runtime.reader, context.view(runtime)


def _is_open(context: Context, path: str, readers: tuple[Reader, ...]) -> bool:
    return all(may_read(context.host, path, reader) for reader in readers)


def _spec_file(context: Context, path: str, readers: tuple[Reader, ...]) -> str:
    """Return what of a spec may be given away.

    Who made the link at its place may be a user, and who runs this may be root: what that user could not
    read, and what is no CDI document, is not told.
    """
    if not _is_open(context, path, readers):
        return f"{LEFT_OUT}: the runtime's user may not read it\n"
    try:
        data = context.host.read(path, limit=_MAX_FILE)
    except OSError as error:
        return f"{LEFT_OUT}: {reason(error)}\n"
    try:
        document = parse_document(data, yaml=not path.lower().endswith(".json")).document
    except RecursionError:
        document = None
    if document is None:
        return _UNPARSED
    if not masking_documents.is_spec(document):
        return f"{LEFT_OUT}: it is no CDI document\n"
    return _json(_spec(context, document))


def _spec(context: Context, document: Mapping[str, Any]) -> object:
    known: set[str] = set()
    for product in context.products:
        known |= masking_documents.hook_words(product.document)
    return masking_documents.spec(document, known)


def _configuration(context: Context) -> str:
    """Return cdigen's configuration without its comments, which may say anything."""
    try:
        document = parse_document(context.host.read(_CONFIGURATION, limit=_MAX_FILE), yaml=True).document
    except OSError as error:
        return f"{LEFT_OUT}: {reason(error)}\n"
    except RecursionError:
        document = None
    return _UNPARSED if document is None else _json(masking_documents.configuration(document))


def _settings(context: Context, path: str, reader: Reader) -> str:
    """Return of a runtime's configuration which keys it has, and the values of those that matter."""
    if not may_read(context.host, path, reader):
        return f"{LEFT_OUT}: the runtime's user may not read it\n"
    text = _content(context, path)
    try:
        if path.endswith(".json"):
            document: object = json.loads(text or "{}")
        else:
            import tomllib  # noqa: PLC0415 - for this alone

            document = tomllib.loads(text)
    except (ValueError, RecursionError):
        return _UNPARSED
    return json.dumps(masking_documents.settings(document), indent=2, default=str) + "\n"


def _kernel_messages() -> str:
    """Return the last of what the kernel said about GPUs and containers, as far as it may be read."""
    lines: list[str] = []
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return f"{LEFT_OUT}: {reason(error)}\n"
    try:
        while True:
            try:
                record = os.read(descriptor, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # it was overwritten meanwhile: the next one follows
            line = record.decode("utf-8", "replace").partition("\n")[0]
            if _KERNEL.search(line):
                lines.append(line)
    except OSError as error:
        lines.append(f"{LEFT_OUT}: {reason(error)}")
    finally:
        os.close(descriptor)
    return "\n".join(lines)[-_MAX_KERNEL:] + "\n"


def _archive(texts: dict[str, str], masks: Masks | None) -> bytes:
    """Return TEXTS as one tar.gz, nobody's and without times but the one folder they are in."""
    import gzip  # noqa: PLC0415 - for this alone
    import tarfile  # noqa: PLC0415 - likewise

    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as file,
        tarfile.open(fileobj=file, mode="w") as archive,
    ):
        for name, text in texts.items():
            plain = masks.masked(shown(name)) if masks else shown(name)
            data = text.encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"cdigen-doctor/{plain.lstrip('/')}")
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    if packed.tell() > 64 << 20:
        raise StoreError(
            "the evidence has more than 64 MiB", hint="remove what does not belong from the spec directories"
        )
    return packed.getvalue()
