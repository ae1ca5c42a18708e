"""What each release of the CDI library, and so each runtime, does with the bytes of a spec file.

An emulation, step by step in the order of the Go code, from one table keyed by the release in which
a behaviour changed. It agrees with the real loaders on the 43 documents of
``tests/data/cdi-conformance`` in six releases and on the 415 of ``tests/data/cdi-loaders`` in three.
"""

from __future__ import annotations

from cdigen.spec.loader_changes import has, release_of
from cdigen.spec.loader_types import RefusedError, decode_document
from cdigen.spec.parse import BYTE_ORDER_MARK, MAX_SIZE, parse_document
from cdigen.spec.version import KNOWN_VERSIONS, is_newer, minimum_version, release_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.spec.loader_changes import Release

ACCEPT, REJECT, PANIC, UNKNOWN = "accept", "reject", "panic", "unknown"

DEFAULT_VERSIONS = ("0.5.2", "0.5.4", "0.6.2", "0.7.2", "0.8.1", "1.0.1", "1.1.0", "main")

_TYPES = ("", "b", "c", "u", "p")
_HOOKS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS = frozenset("0123456789")
_ALNUM = _LETTERS | _DIGITS
# What strict reading complains of and every loader refuses as well (docs/cdi.md, "Encoding").
_REFUSED_BY_ALL = frozenset(
    (
        "control-character",
        "duplicate-key",
        "empty-document",
        "escaped-slash",
        "key-split",
        "key-too-long",
        "leading-tab",
        "lone-surrogate",
        "not-an-object",
        "surrogate-escape",
        "too-deep",
    )
)


class _PanicError(Exception):
    """Says that the library crashes, and the runtime with it."""


class _UnsureError(Exception):
    """Says that what the library does depends on chance or is not known."""


def verdicts(data: bytes, *, yaml: bool, versions: tuple[str, ...] = DEFAULT_VERSIONS) -> dict[str, str]:
    """Return for each of VERSIONS what that release of the library does with the file content DATA.

    ``accept``, ``reject``, ``panic`` (the process that loads the file crashes) or ``unknown``. A
    version is a release as ``1.0.1``, or ``main``; releases before 0.5.2 and after 1.1.0 are unknown.
    YAML says that the file's name ends in ``.yaml``; it decides only how the file is read fastest, for
    the libraries read every file as YAML.
    """
    try:
        value = _read(data, yaml=yaml)
    except RefusedError:
        return dict.fromkeys(versions, REJECT)
    except _UnsureError:
        return dict.fromkeys(versions, UNKNOWN)
    return {version: _verdict(value, version) for version in versions}


def _read(data: bytes, *, yaml: bool) -> object:
    """Return DATA as the YAML parser of the libraries reads it: strict JSON first, which is faster."""
    if len(data) > MAX_SIZE:
        raise _UnsureError
    if not yaml:
        parsed = parse_document(data, yaml=False)
        rules = {found.rule for found in parsed.findings}
        if rules <= {"byte-order-mark"}:
            return parsed.document
        if "json-syntax" not in rules and not rules.isdisjoint(_REFUSED_BY_ALL):
            raise RefusedError
    return _read_yaml(_text(data))


def _text(data: bytes) -> str:
    """Return the text of DATA, which a byte order mark may make UTF-16; else it is UTF-8."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        return data.decode(encoding).removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        raise RefusedError from error


def _read_yaml(text: str) -> object:
    from cdigen.spec.yaml_text import read_yaml  # noqa: PLC0415 -- most files are JSON

    read = read_yaml(text)
    if read.is_unsure:
        raise _UnsureError
    if read.is_refused:
        raise RefusedError
    return read.value


def _verdict(value: object, version: str) -> str:
    release = release_of(version)
    if release is None:
        return UNKNOWN
    try:
        document = decode_document(value, release)
        _check_version(document, release)
        return _after_version(document, release)
    except RefusedError:
        return REJECT
    except _PanicError:
        return PANIC
    except _UnsureError:
        return UNKNOWN


def _check_version(document: dict[str, object], release: Release) -> None:
    """Validate the version; a null entry crashes here already where the minimum is computed.

    The minimum is searched in Go's random map order, and the search ends early once it has found the
    newest version there is. Where that can happen, a null entry may or may not be reached.
    """
    declared = str(document["cdiVersion"])
    if has("a v may stand before the version", release):
        declared = declared.removeprefix("v")
    newest = max((known for known in KNOWN_VERSIONS if release_order(known) <= release), key=release_order)
    if declared not in KNOWN_VERSIONS or is_newer(declared, newest):
        raise RefusedError(f"version {declared!r:.20}")
    if not has("the version must be enough", release):
        return
    needed = _needed(document, release)
    is_enough = not is_newer(needed, declared)
    if _search_meets_null(document, release):
        if needed != newest or _ends_in_panic(document, release, is_enough=is_enough):
            raise _PanicError
        raise _UnsureError
    if not is_enough:
        raise RefusedError(f"version must be at least {needed}")


def _ends_in_panic(document: dict[str, object], release: Release, *, is_enough: bool) -> bool:
    if not is_enough:
        return False
    try:
        _after_version(document, release)
    except RefusedError:
        return False
    except _PanicError:
        return True
    return False


def _needed(document: dict[str, object], release: Release) -> str:
    needed = minimum_version(document)
    return "0.5.0" if is_newer("0.5.0", needed) and _has_name_of_0_5(document, release) else needed


def _has_name_of_0_5(document: dict[str, object], release: Release) -> bool:
    """Return whether a device's name begins in a way for which the search asks for 0.5.0."""
    firsts = [str(device["name"])[:1] for device in _items(document["devices"])]
    if has("whatever is no letter before a name needs 0.5.0", release):
        return any(first and first not in _LETTERS for first in firsts)
    return any(first in _DIGITS for first in firsts)


def _search_meets_null(document: dict[str, object], release: Release) -> bool:
    """Return whether the search for hostPath or for a mount's type comes to a null entry."""
    ends_early = _has_name_of_0_5(document, release)
    return (not ends_early and _null_before(document, "deviceNodes", "hostPath")) or _null_before(
        document, "mounts", "type"
    )


def _null_before(document: dict[str, object], field: str, wanted: str) -> bool:
    """Return whether a null comes before the first entry that has WANTED, which ends the search."""
    owners = [*_items(document["devices"]), document]
    for owner in owners:
        for entry in _entries(owner["containerEdits"], field):
            if entry is None:
                return True
            if entry[wanted]:
                return False
    return False


def _after_version(document: dict[str, object], release: Release) -> str:
    """Validate what comes after the version, in the order of the Go code."""
    vendor, slash, class_ = str(document["kind"]).partition("/")
    if not (vendor and slash and class_):
        raise RefusedError("kind")
    _check_name(vendor, release, dots=True)
    _check_name(class_, release, dots=has("a class may have dots", release))
    _check_edits(document["containerEdits"], release)
    names: set[str] = set()
    for device in _items(document["devices"]):
        _check_device(device, release)
        name = str(device["name"])
        if name in names:
            raise RefusedError("device twice")
        names.add(name)
    if not names and has("a file without devices is refused", release):
        raise RefusedError("no devices")
    return ACCEPT


def _check_name(name: str, release: Release, *, dots: bool) -> None:
    if name[0] not in _LETTERS:
        raise RefusedError("first letter")
    if len(name) == 1:
        if has("a name of one letter crashes", release):
            raise _PanicError
        return
    inner = _ALNUM | frozenset("_-." if dots else "_-")
    if not inner.issuperset(name[1:-1]) or name[-1] not in _ALNUM:
        raise RefusedError("name")


def _check_device(device: dict[str, object], release: Release) -> None:
    name = str(device["name"])
    if not name or name[0] not in _ALNUM or name[-1] not in _ALNUM:
        raise RefusedError("device name")
    if not (_ALNUM | frozenset("_-.:")).issuperset(name):
        raise RefusedError("device name")
    edits = device["containerEdits"]
    if isinstance(edits, dict) and not any(_is_edit(value) for value in edits.values()):
        raise RefusedError("empty edits")
    _check_edits(edits, release)


def _is_edit(value: object) -> bool:
    return isinstance(value, dict) or bool(value)


def _check_edits(edits: object, release: Release) -> None:
    if not isinstance(edits, dict):
        return
    _check_env(edits["env"])
    for node in _entries(edits, "deviceNodes"):
        _check_node(_not_null(node), release)
    for hook in _entries(edits, "hooks"):
        _check_hook(_not_null(hook))
    for mount in _entries(edits, "mounts"):
        if not _not_null(mount)["hostPath"] or not _not_null(mount)["containerPath"]:
            raise RefusedError("mount")
    _check_closid(edits.get("intelRdt"))
    _check_net_devices(edits)


def _not_null(entry: dict[str, object] | None) -> dict[str, object]:
    if entry is None:
        raise _PanicError
    return entry


def _check_env(entries: object) -> None:
    if isinstance(entries, list) and any(str(entry).find("=") < 1 for entry in entries):
        raise RefusedError("env")


def _check_node(node: dict[str, object], release: Release) -> None:
    if not node["path"] or node["type"] not in _TYPES:
        raise RefusedError("node")
    permissions = str(node["permissions"])
    if permissions == "none" and has("permissions may be none", release):
        return
    if not frozenset("rwm").issuperset(permissions):
        raise RefusedError("permissions")


def _check_hook(hook: dict[str, object]) -> None:
    if hook["hookName"] not in _HOOKS or not hook["path"]:
        raise RefusedError("hook")
    _check_env(hook["env"])


def _check_closid(rdt: object) -> None:
    if not isinstance(rdt, dict) or rdt["closID"] == "/":
        return
    name = str(rdt["closID"])
    if name in (".", "..") or "/" in name or "\n" in name or len(name.encode()) >= 4096:
        raise RefusedError("closID")


def _check_net_devices(edits: dict[str, object]) -> None:
    seen: dict[str, set[object]] = {"hostInterfaceName": set(), "name": set()}
    for device in _entries(edits, "netDevices"):
        for field, before in seen.items():
            value = _not_null(device)[field]
            if not value or value in before:
                raise RefusedError("network device")
            before.add(value)


def _items(value: object) -> Iterator[dict[str, object]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _entries(edits: object, field: str) -> list[dict[str, object] | None]:
    entries = edits.get(field) if isinstance(edits, dict) else None
    return entries if isinstance(entries, list) else []
