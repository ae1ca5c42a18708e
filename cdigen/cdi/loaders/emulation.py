"""Predict what each release of the CDI library, and so each runtime, does with the bytes of a spec file.

An emulation, step by step in the order of the Go code, with what ``library`` says of each release. It agrees
with the real loaders on the 43 documents of ``tests/data/cdi-conformance`` in six releases and on those of
``tests/data/cdi-loaders`` in two or three, or says that it does not know.
"""

from __future__ import annotations

from cdigen.cdi.library import DEFAULT_RELEASES, CdiLibrary, LibraryBehaviour, release_of
from cdigen.cdi.loaders.decoding import RefusedError, UnknownError, decode_document
from cdigen.cdi.reader import BYTE_ORDER_MARK, MAX_SIZE, parse_document
from cdigen.cdi.rules.fields import quote
from cdigen.cdi.version import is_newer, minimum_version
from cdigen.model.names import is_device_name, is_vendor_or_class
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.cdi.reader import ParsedDocument
    from cdigen.cdi.text.events import YamlText

ACCEPT, REJECT, PANIC, UNKNOWN = "accept", "reject", "panic", "unknown"

_TYPES = ("", "b", "c", "u", "p")
_HOOKS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


@frozen
class LoaderVerdict:
    """What one release does with a file, and why where it does not accept it; for people."""

    verdict: str
    reason: str = ""


class _PanicError(Exception):
    """Says that the library crashes, and the runtime with it."""


def loader_verdicts(
    data: bytes,
    *,
    yaml: bool,
    versions: Iterable[str] = DEFAULT_RELEASES,
    parsed: ParsedDocument | None = None,
) -> dict[str, LoaderVerdict]:
    """Return for each of VERSIONS what that release of the library does with the file content DATA.

    ``accept``, ``reject``, ``panic`` (the process that loads the file crashes) or ``unknown``. A version is
    a release as ``1.0.1``, or ``main``; releases before 0.5.2 and after 1.1.0 are unknown. YAML says that the
    file's name ends in ``.yaml``; it decides only how the file is read fastest, for the libraries read every
    file as YAML. PARSED is what ``parse_document`` made of DATA, if known.
    """
    wanted = tuple(versions)
    try:
        case = _Case(_read(data, parsed or parse_document(data, yaml=yaml)))
    except RefusedError as error:
        return dict.fromkeys(wanted, LoaderVerdict(verdict=REJECT, reason=str(error)))
    except UnknownError as error:
        return dict.fromkeys(wanted, LoaderVerdict(verdict=UNKNOWN, reason=str(error)))
    return {version: case.verdict(version) for version in wanted}


class _Case:
    """One file before several releases: those that do alike are emulated once."""

    def __init__(self, value: object) -> None:
        self._value = value
        self._known: list[tuple[CdiLibrary, LoaderVerdict]] = []

    def verdict(self, version: str) -> LoaderVerdict:
        """Return what VERSION does with the file."""
        release = release_of(version)
        if release is None:
            return _never_observed(version)
        for library, verdict in self._known:
            if library.answers_like(release):
                return verdict
        library = CdiLibrary(release)
        verdict = _verdict(self._value, library)
        self._known.append((library, verdict))
        return verdict


def _verdict(value: object, library: CdiLibrary) -> LoaderVerdict:
    return _decoded(value, library)[0]


def _decoded(value: object, library: CdiLibrary) -> tuple[LoaderVerdict, dict[str, object] | None]:
    """Return the verdict of LIBRARY on VALUE, and the document as it decodes it, None where it cannot."""
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
    """Return the verdict of the release LIBRARY on the file content DATA, and the document as it decodes it.

    Field names in any letter case, a bare 0 that becomes text, comments and trailing commas in .json: the
    library's parser is one for YAML. There is no document where it cannot be decoded, or that is not known.
    PARSED is what ``parse_document`` made of DATA, if known.
    """
    try:
        value = _read(data, parsed or parse_document(data, yaml=None))
    except RefusedError as error:
        return LoaderVerdict(verdict=REJECT, reason=str(error)), None
    except UnknownError as error:
        return LoaderVerdict(verdict=UNKNOWN, reason=str(error)), None
    release = release_of(library)
    return _decoded(value, CdiLibrary(release)) if release else (_never_observed(library), None)


def _never_observed(version: str) -> LoaderVerdict:
    return LoaderVerdict(verdict=UNKNOWN, reason=f"no library {quote(version)} was ever observed")


def _read(data: bytes, parsed: ParsedDocument) -> object:
    """Return DATA as the YAML parser of the libraries reads it: strict JSON first, which is faster."""
    if len(data) > MAX_SIZE:
        raise UnknownError(f"more than {MAX_SIZE} bytes were not read")
    if parsed.yaml is not None:
        return _value_of(parsed.yaml)
    rules = {found.rule for found in parsed.findings}
    if parsed.document is not None and rules <= {"byte-order-mark"}:
        return parsed.document
    if "too-many-values" in rules:
        raise UnknownError("too many values were not read")
    return _value_of(read_yaml(_text(data)))


def read_yaml(text: str) -> YamlText:
    """Return what the libraries' YAML parser makes of TEXT."""
    from cdigen.cdi.text import events  # noqa: PLC0415 -- most files are JSON

    return events.read_yaml(text)


def _value_of(read: YamlText) -> object:
    if read.is_unsure:
        raise UnknownError("aliases, whose count decides, or too many values")
    if read.is_refused:
        raise RefusedError(read.reason)
    return read.value


def _text(data: bytes) -> str:
    """Return the text of DATA, which a byte order mark may make UTF-16; else it is UTF-8."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        return data.decode(encoding).removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        raise RefusedError(f"the bytes are not {encoding.upper()}") from error


def _check_version(document: dict[str, object], library: CdiLibrary) -> None:
    """Validate the version; a null entry may crash here already, where the minimum is computed.

    The minimum is searched in Go's random map order, and the search ends early where it has found the
    newest version there is, so chance decides whether it comes to a null entry.
    """
    declared = str(document["cdiVersion"])
    version = declared
    if version[:1] == "v" and library.has(LibraryBehaviour.ALLOWS_V_BEFORE_VERSION):
        version = version[1:]
    if not library.knows(version):
        raise RefusedError(f"unknown cdiVersion {quote(declared, 20)}")
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
            raise UnknownError("a null entry, which chance finds or does not") from error
        raise


def _has_null(document: dict[str, object]) -> bool:
    """Return whether the search for hostPath and for a mount's type may come to a null entry."""
    owners = (document, *_items(document["devices"]))
    return any(
        None in _entries(owner["containerEdits"], field)
        for owner in owners
        for field in ("deviceNodes", "mounts")
    )


def _check_content(document: dict[str, object], library: CdiLibrary) -> None:
    """Validate what comes after the version, in the order of the Go code."""
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
            raise RefusedError(f"device {quote(name)} is there twice")
        names.add(name)
    if not names and library.has(LibraryBehaviour.REFUSES_EMPTY_DEVICES):
        raise RefusedError("no devices")


def _check_kind_part(name: str, library: CdiLibrary) -> None:
    if name in _LETTERS:
        if library.has(LibraryBehaviour.CRASHES_ON_ONE_LETTER):
            raise _PanicError(f"{quote(name)} in kind is one letter")
    elif not is_vendor_or_class(name):
        raise RefusedError(f"{quote(name)} in kind is not letters, digits and inner _ . - from a letter on")


def _check_device(device: dict[str, object], library: CdiLibrary) -> None:
    name = str(device["name"])
    if not is_device_name(name):
        raise RefusedError(f"device name {quote(name)}")
    edits = device["containerEdits"]
    if isinstance(edits, dict) and not any(_is_edit(value) for value in edits.values()):
        raise RefusedError(f"device {quote(name)} has no edits of its own")
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
        raise RefusedError("a device node without path, or of an unknown type")
    permissions = str(node["permissions"])
    if permissions == "none" and library.has(LibraryBehaviour.ALLOWS_PERMISSIONS_NONE):
        return
    if not frozenset("rwm").issuperset(permissions):
        raise RefusedError(f"device permissions {quote(permissions)}")


def _check_hook(hook: dict[str, object]) -> None:
    if hook["hookName"] not in _HOOKS or not hook["path"]:
        raise RefusedError("a hook without path, or of an unknown name")
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
    seen: dict[str, set[object]] = {"hostInterfaceName": set(), "name": set()}
    for device in _entries(edits, "netDevices"):
        for field, before in seen.items():
            value = _not_null(device)[field]
            if not value or value in before:
                raise RefusedError("a network device without both names, or one given twice")
            before.add(value)


def _items(value: object) -> Iterator[dict[str, object]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _entries(edits: object, field: str) -> list[dict[str, object] | None]:
    entries = edits.get(field) if isinstance(edits, dict) else None
    return entries if isinstance(entries, list) else []
