"""Functions that predict whether each release of the CDI library accepts a spec file.

The module emulates the Go code step by step, with the table of releases in ``library``. Each runtime contains
a release of the library. The tests compare the predicted verdicts with the verdicts of the real loaders. A
predicted verdict is equal to the real verdict, or it is ``unknown``. The tests use the 43 documents in
``tests/data/cdi-conformance`` with six releases, and the documents in ``tests/data/cdi-loaders`` with two or
three releases.
"""

from __future__ import annotations

from cdigen.cdi.library import DEFAULT_RELEASES, RELEASES, CdiLibrary, LibraryBehaviour, release_of
from cdigen.cdi.loaders.decoding import RefusedError, UnknownError, decode_document
from cdigen.cdi.reader import BYTE_ORDER_MARK, MAX_SIZE, parse_document
from cdigen.cdi.rules.fields import quote
from cdigen.cdi.version import KNOWN_VERSIONS, is_newer, minimum_version
from cdigen.model.names import is_device_name, is_vendor_or_class
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.cdi.reader import ParsedDocument
    from cdigen.cdi.text.events import YamlText

ACCEPT, REJECT, PANIC, UNKNOWN = "accept", "reject", "panic", "unknown"

_TABLE = f"{RELEASES[0]} to {RELEASES[-1]}"
_TYPES = ("", "b", "c", "u", "p")
_HOOKS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


@frozen
class LoaderVerdict:
    """The verdict of one release about a file.

    ``reason`` is empty if the release accepts the file.
    """

    verdict: str
    reason: str = ""


class _PanicError(Exception):
    """The error for a document that crashes the library and the runtime."""


def loader_verdicts(
    data: bytes,
    *,
    yaml: bool,
    versions: Iterable[str] = DEFAULT_RELEASES,
    parsed: ParsedDocument | None = None,
) -> dict[str, LoaderVerdict]:
    """Return the verdict of each of VERSIONS about the file content DATA.

    A version is a release of the library, such as ``1.0.1``, ``next`` or ``main``. A verdict is ``accept``,
    ``reject``, ``panic`` (the process that loads the file crashes) or ``unknown``. Releases after 1.1.0 or
    before 0.5.2 were not tested. For these releases, the verdict is ``reject`` if the file's version of the
    specification is newer than the release. Otherwise the verdict is ``unknown``.

    YAML is true if the file name ends in ``.yaml``. YAML only selects the parser, and does not change the
    verdicts, because the libraries read every file as YAML. PARSED is the result of ``parse_document`` for
    DATA, or None.
    """
    every = tuple(versions)
    try:
        value = _read(data, parsed or parse_document(data, yaml=yaml))
    except RefusedError as error:
        return dict.fromkeys(every, LoaderVerdict(verdict=REJECT, reason=str(error)))
    except UnknownError as error:
        return dict.fromkeys(every, LoaderVerdict(verdict=UNKNOWN, reason=str(error)))
    known: list[tuple[CdiLibrary, LoaderVerdict]] = []
    return {version: _verdict(value, version, known) for version in every}


def _verdict(value: object, version: str, known: list[tuple[CdiLibrary, LoaderVerdict]]) -> LoaderVerdict:
    """Return the verdict of the release VERSION about VALUE, and add the verdict to KNOWN.

    If a release in KNOWN has the same behaviour for VALUE, VERSION is not emulated.
    """
    release = release_of(version)
    if release is None:
        return _never_observed(value, version)
    for library, verdict in known:
        if library.behaves_like(release):
            return verdict
    library = CdiLibrary(release)
    verdict, _ = _decoded(value, library)
    known.append((library, verdict))
    return verdict


def _decoded(value: object, library: CdiLibrary) -> tuple[LoaderVerdict, dict[str, object] | None]:
    """Return the verdict of LIBRARY about VALUE, and the decoded document.

    The document is None if LIBRARY cannot decode VALUE.
    """
    document = None
    try:
        document = decode_document(value, library)
        _check_version(document, library)
        _check_content(document, library)
    except RefusedError as error:
        return LoaderVerdict(verdict=REJECT, reason=str(error)), document
    except _PanicError as error:
        return LoaderVerdict(verdict=PANIC, reason=str(error)), document
    except UnknownError as error:
        return LoaderVerdict(verdict=UNKNOWN, reason=str(error)), document
    return LoaderVerdict(verdict=ACCEPT), document


def loaded_document(
    data: bytes, library: str, parsed: ParsedDocument | None = None
) -> tuple[LoaderVerdict, dict[str, object] | None]:
    """Return the verdict of the release LIBRARY about the file content DATA, and the decoded document.

    The library parses every file as YAML. It accepts field names in upper or lower case, and an unquoted 0 as
    a text. In .json files, it accepts comments and trailing commas. The document is None if the library
    cannot decode it, or if the behaviour of the library is unknown. PARSED is the result of
    ``parse_document`` for DATA, or None.
    """
    try:
        value = _read(data, parsed or parse_document(data, yaml=None))
    except RefusedError as error:
        return LoaderVerdict(verdict=REJECT, reason=str(error)), None
    except UnknownError as error:
        return LoaderVerdict(verdict=UNKNOWN, reason=str(error)), None
    release = release_of(library)
    return _decoded(value, CdiLibrary(release)) if release else (_never_observed(value, library), None)


def _never_observed(value: object, version: str) -> LoaderVerdict:
    """Return the verdict of the release VERSION, which was not tested.

    Each release rejects a version of the specification that is newer than the release. For all other files,
    the verdict is unknown. Source: validSpecVersions in pkg/cdi. It exists in all releases since the first
    release that Podman and CRI-O contained.
    """
    rows = value.items() if isinstance(value, dict) else ()
    declared = [row for key, row in rows if str(key).lower() == "cdiversion"]
    is_release = all(part.isdecimal() for part in version.split("."))
    if is_release and len(declared) == 1 and declared[0] in KNOWN_VERSIONS and is_newer(declared[0], version):
        return LoaderVerdict(verdict=REJECT, reason=_unknown_version(declared[0]))
    return LoaderVerdict(
        verdict=UNKNOWN, reason=f"CDI library {version} is not in cdigen's table of {_TABLE}"
    )


def _read(data: bytes, parsed: ParsedDocument) -> object:
    """Return the value that the YAML parser of the libraries reads from DATA.

    If DATA is strict JSON, the result is the value of the faster JSON parser.
    """
    if len(data) > MAX_SIZE:
        raise UnknownError(f"the file has more than {MAX_SIZE} bytes")
    if parsed.yaml is not None:
        return _value_of(parsed.yaml)
    rules = {found.rule for found in parsed.findings}
    if parsed.document is not None and rules <= {"byte-order-mark"}:
        return parsed.document
    if "too-many-values" in rules:
        raise UnknownError("the file has too many values")
    from cdigen.cdi.text.events import read_yaml  # noqa: PLC0415 - most files are JSON

    return _value_of(read_yaml(_text(data)))


def _value_of(read: YamlText) -> object:
    if read.is_unsure:
        raise UnknownError("the result depends on the number of aliases, or there are too many values")
    if read.is_refused:
        raise RefusedError(read.reason)
    return read.value


def _text(data: bytes) -> str:
    """Return DATA as text, without a byte order mark.

    DATA is UTF-16 if it starts with the byte order mark of UTF-16. Otherwise DATA is UTF-8. Raise
    RefusedError if DATA is invalid.
    """
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        return data.decode(encoding).removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        raise RefusedError(f"the bytes are not {encoding.upper()}") from error


def _check_version(document: dict[str, object], library: CdiLibrary) -> None:
    """Check the version; raise RefusedError, UnknownError or _PanicError.

    A null entry can crash the library while it computes the minimum version. The library computes the minimum
    version in Go's random map order, and stops when it finds the newest version. So the library reaches a
    null entry only in some runs.
    """
    declared = str(document["cdiVersion"])
    version = declared
    if version[:1] == "v" and library.has(LibraryBehaviour.ALLOWS_V_BEFORE_VERSION):
        version = version[1:]
    if not library.has(version):
        raise RefusedError(_unknown_version(declared))
    if not library.has(LibraryBehaviour.CHECKS_MINIMUM_VERSION):
        return
    needed = minimum_version(document)
    try:
        if is_newer(needed, version):
            raise RefusedError(f"cdiVersion {version} is too low: the content needs {needed}")
        if _has_null(document):
            _check_content(document, library)
    except RefusedError as error:
        if _has_null(document):
            raise UnknownError("a null entry crashes the library in some runs only") from error
        raise


def _unknown_version(declared: str) -> str:
    return f"unknown cdiVersion {quote(declared, 20)}"


def _has_null(document: dict[str, object]) -> bool:
    """Return whether DOCUMENT has a null entry in a list of device nodes or mounts.

    The library reads these entries when it computes the minimum version.
    """
    owners = (document, *_items(document["devices"]))
    return any(
        None in _entries(owner["containerEdits"], field)
        for owner in owners
        for field in ("deviceNodes", "mounts")
    )


def _check_content(document: dict[str, object], library: CdiLibrary) -> None:
    """Check all fields except the version, in the order of the Go code.

    Raise RefusedError or _PanicError.
    """
    vendor, slash, class_ = str(document["kind"]).partition("/")
    if not (vendor and slash and class_):
        raise RefusedError("kind is not vendor/class")
    _check_kind_part(vendor, library)
    _check_kind_part(class_, library)
    if "." in class_ and not library.has(LibraryBehaviour.ALLOWS_DOTS_IN_CLASS):
        raise RefusedError(f"the class {quote(class_)} has a dot")
    _check_edits(document["containerEdits"], library)
    names: set[str] = set()
    for device in _items(document["devices"]):
        _check_device(device, library)
        name = str(device["name"])
        if name in names:
            raise RefusedError(f"device {quote(name)} is defined twice")
        names.add(name)
    if not names and library.has(LibraryBehaviour.REFUSES_EMPTY_DEVICES):
        raise RefusedError("no devices")


def _check_kind_part(name: str, library: CdiLibrary) -> None:
    if name in _LETTERS:
        if library.has(LibraryBehaviour.CRASHES_ON_ONE_LETTER):
            raise _PanicError(f"{quote(name)} in kind is one letter")
    elif not is_vendor_or_class(name):
        raise RefusedError(
            f"{quote(name)} in kind must have only letters, digits and _ . -, start with a letter, and end "
            "with a letter or digit"
        )


def _check_device(device: dict[str, object], library: CdiLibrary) -> None:
    name = str(device["name"])
    if not is_device_name(name):
        raise RefusedError(f"invalid device name {quote(name)}")
    edits = device["containerEdits"]
    if isinstance(edits, dict) and not any(_is_edit(value) for value in edits.values()):
        raise RefusedError(f"device {quote(name)} has no container edits")
    _check_edits(edits, library)


def _is_edit(value: object) -> bool:
    return isinstance(value, dict) or bool(value)


def _check_edits(edits: object, library: CdiLibrary) -> None:
    if not isinstance(edits, dict):
        return
    _check_env(edits["env"])
    for node in _entries(edits, "deviceNodes"):
        _check_node(_not_null(node), library)
    for hook in _entries(edits, "hooks"):
        _check_hook(_not_null(hook))
    for mount in _entries(edits, "mounts"):
        if not _not_null(mount)["hostPath"] or not _not_null(mount)["containerPath"]:
            raise RefusedError("a mount without hostPath or containerPath")
    _check_closid(edits.get("intelRdt"), library)
    _check_net_devices(edits)


def _not_null(entry: dict[str, object] | None) -> dict[str, object]:
    if entry is None:
        raise _PanicError("a null entry in a list of edits")
    return entry


def _check_env(entries: object) -> None:
    if isinstance(entries, list) and any(str(entry).find("=") < 1 for entry in entries):
        raise RefusedError("an environment entry that is not KEY=VALUE")


def _check_node(node: dict[str, object], library: CdiLibrary) -> None:
    if not node["path"] or node["type"] not in _TYPES:
        raise RefusedError("a device node without path, or with an unknown type")
    permissions = str(node["permissions"])
    if permissions == "none" and library.has(LibraryBehaviour.ALLOWS_PERMISSIONS_NONE):
        return
    if not frozenset("rwm").issuperset(permissions):
        raise RefusedError(f"invalid device permissions {quote(permissions)}")


def _check_hook(hook: dict[str, object]) -> None:
    if hook["hookName"] not in _HOOKS or not hook["path"]:
        raise RefusedError("a hook without path, or with an unknown name")
    _check_env(hook["env"])


def _check_closid(rdt: object, library: CdiLibrary) -> None:
    if not isinstance(rdt, dict) or (
        rdt["closID"] == "/" and library.has(LibraryBehaviour.ALLOWS_SLASH_AS_CLOSID)
    ):
        return
    name = str(rdt["closID"])
    if name in (".", "..") or "/" in name or "\n" in name or len(name.encode()) >= 4096:
        raise RefusedError("a closID that is not a file name")


def _check_net_devices(edits: dict[str, object]) -> None:
    earlier: dict[str, set[object]] = {"hostInterfaceName": set(), "name": set()}
    for device in _entries(edits, "netDevices"):
        for field, before in earlier.items():
            value = _not_null(device)[field]
            if not value or value in before:
                raise RefusedError("a network device without both names, or with a repeated name")
            before.add(value)


def _items(value: object) -> Iterator[dict[str, object]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _entries(edits: object, field: str) -> list[dict[str, object] | None]:
    entries = edits.get(field) if isinstance(edits, dict) else None
    return entries if isinstance(entries, list) else []
