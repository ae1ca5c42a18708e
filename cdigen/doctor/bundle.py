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
from cdigen.doctor.masking import Masks
from cdigen.host.root import reason, shown
from cdigen.model.errors import StoreError
from cdigen.model.inventory_json import to_document
from cdigen.spec.render import render
from cdigen.store import plainfiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from cdigen.doctor.context import Context
    from cdigen.doctor.verdict import Verdict

LEFT_OUT = "<left out>"
_MAX_FILE = 1 << 20
_MAX_FILES = 200
_MAX_KERNEL = 1 << 18
# The keys of runtimes' configurations whose values have to do with devices; all that is below one is kept.
_KEPT = frozenset({
    "cdi-spec-dirs", "cdi_spec_dirs", "cgroup_manager", "default-runtime", "default_runtime",
    "default_runtime_name", "devices", "disable", "disabled_plugins", "enable", "enable_cdi",
    "enable_nri", "enable_selinux", "exec-opts", "features", "hooks_dir", "imports", "nri-opts", "nri_listen",
    "runtime", "runtime_type", "runtimes", "selinux", "selinux-enabled", "socket_path", "storage-driver",
    "userns-remap", "version",
})  # fmt: skip
# ... but never these, wherever they stand.
_SECRET = re.compile(r"(?i)auth|passw|secret|token|credential|username|proxy|env|header|cert|key$")
# A variable in a spec: its name tells enough, but for those of the driver's own programs.
_VARIABLE = re.compile(r"""(["'])(?!NVIDIA_|TRITON_|CUDA_|PATH=)([A-Za-z_][A-Za-z0-9_]*)=[^"'\n]*""")
_KERNEL = re.compile(r"(?i)nvrm|nvidia|nouveau|xid|drm|iommu|apparmor|selinux|avc|cgroup|out of memory")
_SYSTEM_FILES = (
    "/etc/os-release",
    "/proc/devices",
    "/proc/driver/nvidia/params",
    "/proc/driver/nvidia/version",
    "/proc/sys/kernel/osrelease",
    "/etc/cdigen/config.yaml",
)


def pack(context: Context, found: tuple[Verdict, ...], path: str, *, mask: bool) -> None:
    """Pack the evidence into the new file PATH, which only its owner may read.

    StoreError: there is such a file already, or it cannot be written.
    """
    masks = _masks(context) if mask else None
    content = _archive({name: _fit(text, masks) for name, text in _evidence(context, found)}, masks)
    plainfiles.create(path, content)


def _masks(context: Context) -> Masks:
    hosts = {context.text("/etc/hostname").strip(), *([platform.node()] if context.is_live else [])}
    short = {name.partition(".")[0] for name in hosts}
    users = {context.user.name} if context.user else set()
    for line in context.text("/etc/passwd", limit=1 << 20).splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2].isdigit() and 1000 <= int(fields[2]) < 65534:
            users.add(fields[0])
    return Masks(hosts={*hosts, *short} - {"", "localhost"}, users=users - {""})


def _fit(text: str, masks: Masks | None) -> str:
    return masks.masked(text) if masks else text


def _evidence(context: Context, found: tuple[Verdict, ...]) -> Iterator[tuple[str, str]]:
    """Yield names and texts."""
    yield "doctor.json", _json([verdict.row() for verdict in found])
    yield "versions.json", _json(_versions(context))
    yield "inventory.json", _json(to_document(context.inventories))
    yield (
        "failures.json",
        _json({name: [error.kind, error.message] for name, error in context.failures.items()}),
    )
    for product in context.products:
        yield f"wanted/{product.kind.replace('/', '-')}.json", _without_variables(product.content.decode())
    yield "listing.txt", _listing(context)
    paths = dict.fromkeys(book.path for view in context.views for book in view.books)
    for path in list(paths)[:_MAX_FILES]:
        yield f"specs{path}", _without_variables(_content(context, path))
    for runtime in context.runtimes:
        for file in runtime.settings.files[:_MAX_FILES]:
            yield f"runtimes{file}", _settings(context, file)
    status = context.question.daemon().status
    if status is not None:
        yield "status.json", _json(status)
    for path in _SYSTEM_FILES:
        if context.host.exists(path):
            yield f"system{path}", _content(context, path)
    if context.is_live:
        yield "kernel.txt", _kernel_messages()


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
    folders = dict.fromkeys(folder.path for view in context.views for folder in view.folders)
    for folder in folders:
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


def _without_variables(text: str) -> str:
    return _VARIABLE.sub(rf"\1\2={LEFT_OUT}", text)


def _settings(context: Context, path: str) -> str:
    """Return of a runtime's configuration which keys it has, and the values of those that matter."""
    text = _content(context, path)
    try:
        if path.endswith(".json"):
            document: object = json.loads(text or "{}")
        else:
            import tomllib  # noqa: PLC0415 - for this alone

            document = tomllib.loads(text)
    except (ValueError, RecursionError):
        return f"{LEFT_OUT}: it cannot be parsed\n"
    return json.dumps(_reduced(document, kept=False), indent=2, default=str) + "\n"


def _reduced(value: object, *, kept: bool) -> object:
    if isinstance(value, dict):
        return {
            str(key): LEFT_OUT if _SECRET.search(str(key)) else _reduced(item, kept=kept or key in _KEPT)
            for key, item in value.items()
        }
    if kept and isinstance(value, list):
        return [_reduced(item, kept=True) for item in value]
    return value if kept or isinstance(value, bool) else LEFT_OUT


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
