"""What each release of the CDI library, and so each runtime, does with the bytes of a spec file.

An emulation, step by step in the order of the Go code, from one table keyed by the release in which
a behaviour changed. It agrees with the real loaders on the 43 documents of
``tests/data/cdi-conformance`` in six releases and on all of ``tests/data/cdi-loaders`` in two or three.
"""

from __future__ import annotations

from cdigen.cdi.library import CdiLibrary, release_of
from cdigen.cdi.loaders.decoding import RefusedError, decode_for
from cdigen.cdi.reader import BYTE_ORDER_MARK, MAX_SIZE, parse_document
from cdigen.cdi.rules.fields import quote
from cdigen.cdi.version import is_newer, minimum_version
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.cdi.reader import ParsedDocument
    from cdigen.cdi.yaml_text import YamlText

ACCEPT, REJECT, PANIC, UNKNOWN = "accept", "reject", "panic", "unknown"

DEFAULT_VERSIONS = ("0.5.2", "0.5.4", "0.6.2", "0.7.2", "0.8.1", "1.0.1", "1.1.0", "main")

_TYPES = ("", "b", "c", "u", "p")
_HOOKS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS = frozenset("0123456789")
_ALNUM = _LETTERS | _DIGITS
_OF_DEVICE_NAMES = _ALNUM | frozenset("_-.:")
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


@frozen
class LoaderVerdict:
    """What one release does with a file, and why where it does not accept it; for people."""

    verdict: str
    reason: str = ""


class _PanicError(Exception):
    """Says that the library crashes, and the runtime with it."""


class _UnsureError(Exception):
    """Says that what the library does depends on chance or is not known."""


def verdicts(
    data: bytes,
    *,
    yaml: bool,
    versions: tuple[str, ...] = DEFAULT_VERSIONS,
    parsed: ParsedDocument | None = None,
) -> dict[str, str]:
    """Return for each of VERSIONS what that release of the library does with the file content DATA.

    ``accept``, ``reject``, ``panic`` (the process that loads the file crashes) or ``unknown``. A
    version is a release as ``1.0.1``, or ``main``; releases before 0.5.2 and after 1.1.0 are unknown.
    YAML says that the file's name ends in ``.yaml``; it decides only how the file is read fastest, for
    the libraries read every file as YAML. PARSED is what ``parse_document`` made of DATA, if known.
    """
    judged = loader_verdicts(data, yaml=yaml, versions=versions, parsed=parsed)
    return {version: judgement.verdict for version, judgement in judged.items()}


def loader_verdicts(
    data: bytes,
    *,
    yaml: bool,
    versions: Iterable[str] = DEFAULT_VERSIONS,
    parsed: ParsedDocument | None = None,
) -> dict[str, LoaderVerdict]:
    """Return what ``verdicts`` does, with the reasons."""
    wanted = tuple(versions)
    try:
        case = _Case(_read(data, parsed or parse_document(data, yaml=yaml)))
    except RefusedError as error:
        return dict.fromkeys(wanted, LoaderVerdict(verdict=REJECT, reason=str(error)))
    except _UnsureError as error:
        return dict.fromkeys(wanted, LoaderVerdict(verdict=UNKNOWN, reason=str(error)))
    return {version: case.judge(version) for version in wanted}


class _Case:
    """One file before several releases: what is alike for two of them is found out once."""

    def __init__(self, value: object) -> None:
        self._value = value
        self._decoded: list[tuple[CdiLibrary, dict[str, object]]] = []
        self._judged: list[tuple[CdiLibrary, LoaderVerdict]] = []
        self._checked: list[tuple[CdiLibrary, Exception | None]] = []

    def judge(self, version: str) -> LoaderVerdict:
        """Return what VERSION does with the file."""
        release = release_of(version)
        if release is None:
            return LoaderVerdict(verdict=UNKNOWN, reason=f"no library {quote(version)} was ever observed")
        for library, judgement in self._judged:
            if library.does_as(release):
                return judgement
        library = CdiLibrary(release)
        judgement = self._verdict(library)
        self._judged.append((library, judgement))
        return judgement

    def _verdict(self, library: CdiLibrary) -> LoaderVerdict:
        try:
            document = self._document(library)
            _check_version(document, library)
            self._check_rest(document, library)
        except RefusedError as error:
            return LoaderVerdict(verdict=REJECT, reason=str(error))
        except _PanicError as error:
            return LoaderVerdict(verdict=PANIC, reason=str(error))
        except _UnsureError as error:
            return LoaderVerdict(verdict=UNKNOWN, reason=str(error))
        return LoaderVerdict(verdict=ACCEPT)

    def _check_rest(self, document: dict[str, object], library: CdiLibrary) -> None:
        for before, error in self._checked:
            if before.does_as(library.release):
                library.asked.update(before.asked)
                if error:
                    raise error
                return
        asked = CdiLibrary(library.release)
        error = None
        try:
            _after_version(document, asked)
        except (RefusedError, _PanicError) as caught:
            error = caught
        self._checked.append((asked, error))
        library.asked.update(asked.asked)
        if error:
            raise error

    def _document(self, library: CdiLibrary) -> dict[str, object]:
        for before, document in self._decoded:
            if before.does_as(library.release):
                library.asked.update(before.asked)
                return document
        document = decode_for(self._value, library)
        self._decoded.append((library.copy(), document))
        return document


def _read(data: bytes, parsed: ParsedDocument) -> object:
    """Return DATA as the YAML parser of the libraries reads it: strict JSON first, which is faster."""
    if len(data) > MAX_SIZE:
        raise _UnsureError(f"more than {MAX_SIZE} bytes were not read")
    if parsed.yaml is not None:
        return _value_of(parsed.yaml)
    rules = {found.rule for found in parsed.findings}
    if parsed.document is not None and rules <= {"byte-order-mark"}:
        return parsed.document
    if "too-many-values" in rules:
        raise _UnsureError("too many values were not read")
    if "json-syntax" not in rules:
        for found in parsed.findings:
            if found.rule in _REFUSED_BY_ALL:
                raise RefusedError(found.message)
    return _value_of(read_yaml(_text(data)))


def read_yaml(text: str) -> YamlText:
    """Return what the libraries' YAML parser makes of TEXT."""
    from cdigen.cdi import yaml_text  # noqa: PLC0415 -- most files are JSON

    return yaml_text.read_yaml(text)


def _value_of(read: YamlText) -> object:
    if read.is_unsure:
        raise _UnsureError("aliases, whose count decides, or too many values")
    if read.is_refused:
        raise RefusedError(read.reason)
    return read.value


def _text(data: bytes) -> str:
    """Return the text of DATA, which a byte order mark may make UTF-16; else it is UTF-8."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        return data.decode(encoding).removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        raise RefusedError(f"the bytes are no {encoding.upper()}") from error


def _check_version(document: dict[str, object], library: CdiLibrary) -> None:
    """Validate the version; a null entry crashes here already where the minimum is computed.

    The minimum is searched in Go's random map order, and the search ends early once it has found the
    newest version there is. Where that can happen, a null entry may or may not be reached.
    """
    declared = str(document["cdiVersion"])
    spelt = declared
    if declared[:1] == "v" and library.has("a v may stand before the version"):
        declared = declared[1:]
    if not library.knows(declared):
        raise RefusedError(f"unknown cdiVersion {quote(spelt, 20)}")
    if not library.has("the version must be enough"):
        return
    needed = _needed(document, library)
    is_enough = not is_newer(needed, declared)
    if _search_meets_null(document, library):
        if needed != library.newest() or _ends_in_panic(document, library, is_enough=is_enough):
            raise _PanicError("a null entry in a list of edits")
        raise _UnsureError("a null entry, which chance finds or does not")
    if not is_enough:
        raise RefusedError(f"cdiVersion {declared} is too low: the content needs {needed}")


def _ends_in_panic(document: dict[str, object], library: CdiLibrary, *, is_enough: bool) -> bool:
    if not is_enough:
        return False
    try:
        _after_version(document, library)
    except RefusedError:
        return False
    except _PanicError:
        return True
    return False


def _needed(document: dict[str, object], library: CdiLibrary) -> str:
    needed = minimum_version(document)
    return "0.5.0" if is_newer("0.5.0", needed) and _has_name_of_0_5(document, library) else needed


def _has_name_of_0_5(document: dict[str, object], library: CdiLibrary) -> bool:
    """Return whether a device's name begins in a way for which the search asks for 0.5.0."""
    firsts = {str(device["name"])[:1] for device in _items(document["devices"])}
    if not _DIGITS.isdisjoint(firsts):
        return True
    is_odd = not (_LETTERS | {""}).issuperset(firsts)
    return is_odd and library.has("whatever is no letter before a name needs 0.5.0")


def _search_meets_null(document: dict[str, object], library: CdiLibrary) -> bool:
    """Return whether the search for hostPath or for a mount's type comes to a null entry."""
    ends_early = _has_name_of_0_5(document, library)
    return (not ends_early and _null_before(document, "deviceNodes", "hostPath")) or _null_before(
        document, "mounts", "type"
    )


def _null_before(document: dict[str, object], field: str, wanted: str) -> bool:
    """Return whether a null comes before the first entry that has WANTED, which ends the search."""
    for owner in [*_items(document["devices"]), document]:
        edits = owner["containerEdits"]
        for entry in (edits[field] if isinstance(edits, dict) else None) or ():
            if entry is None:
                return True
            if entry[wanted]:
                return False
    return False


def _after_version(document: dict[str, object], library: CdiLibrary) -> None:
    """Validate what comes after the version, in the order of the Go code."""
    vendor, slash, class_ = str(document["kind"]).partition("/")
    if not (vendor and slash and class_):
        raise RefusedError("kind is not vendor/class")
    _check_name(vendor, library, dots=True)
    _check_name(class_, library, dots="." not in class_ or library.has("a class may have dots"))
    _check_edits(document["containerEdits"], library)
    names: set[str] = set()
    for device in _items(document["devices"]):
        _check_device(device, library)
        name = str(device["name"])
        if name in names:
            raise RefusedError(f"device {quote(name)} is there twice")
        names.add(name)
    if not names and library.has("a file without devices is refused"):
        raise RefusedError("no devices")


def _check_name(name: str, library: CdiLibrary, *, dots: bool) -> None:
    if name[0] not in _LETTERS:
        raise RefusedError(f"{quote(name)} in kind does not begin with a letter")
    if len(name) == 1:
        if library.has("a name of one letter crashes"):
            raise _PanicError(f"{quote(name)} in kind is one letter")
        return
    inner = _ALNUM | frozenset("_-." if dots else "_-")
    if not inner.issuperset(name[1:-1]) or name[-1] not in _ALNUM:
        raise RefusedError(f"{quote(name)} in kind holds a character that it may not")


def _check_device(device: dict[str, object], library: CdiLibrary) -> None:
    name = str(device["name"])
    if not name or name[0] not in _ALNUM or name[-1] not in _ALNUM:
        raise RefusedError(f"device name {quote(name)}")
    if not _OF_DEVICE_NAMES.issuperset(name):
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
    if permissions == "none" and library.has("permissions may be none"):
        return
    if not frozenset("rwm").issuperset(permissions):
        raise RefusedError(f"device permissions {quote(permissions)}")


def _check_hook(hook: dict[str, object]) -> None:
    if hook["hookName"] not in _HOOKS or not hook["path"]:
        raise RefusedError("a hook without path, or of an unknown name")
    _check_env(hook["env"])


def _check_closid(rdt: object, library: CdiLibrary) -> None:
    if not isinstance(rdt, dict) or (rdt["closID"] == "/" and library.has("closID may be a slash")):
        return
    name = str(rdt["closID"])
    if name in (".", "..") or "/" in name or "\n" in name or len(name.encode()) >= 4096:
        raise RefusedError("a closID that is no file name")


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
