"""``check``: returns the findings of the rules for a CDI document.

The rules are at least as strict as all loaders and ``schemas/cdi.schema.json``. A test with random documents
proves this for the schema. The module does not import jsonschema, yaml or re, because many short commands
import the module. docs/reference/findings.md describes each rule.
"""

from __future__ import annotations

from cdigen.cdi.rules.edit_rules import check_edits, is_empty
from cdigen.cdi.rules.fields import (
    MAX_INT64,
    Shape,
    check_object,
    check_text,
    member_path,
    quote,
    reject,
    type_name,
    wrong_type,
)
from cdigen.cdi.rules.rulebook import finding
from cdigen.cdi.version import EARLIEST_VERSION, KNOWN_VERSIONS, is_newer, minimum_version
from cdigen.model.names import MAX_CLASS, MAX_VENDOR, is_device_name, is_vendor_or_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.findings import Finding

# The specification has no limit for a device name. A device name must fit into a command line and an
# annotation. The vendor has the same limit as the device name.
MAX_DEVICE_NAME = 253
# Bytes. Source: Kubernetes, apimachinery, TotalAnnotationSizeLimitB; docs/reference/cdi-loaders.md, "Names".
MAX_ANNOTATIONS = 256 * 1024

MAX_FINDINGS = 1000

_MAX_ANNOTATION_PREFIX = 253
_MAX_ANNOTATION_NAME = 63
_LOWER = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_QUALIFIED = _LOWER | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ-_.")
_LABEL = _LOWER | frozenset("-")


def check(document: object) -> tuple[Finding, ...]:
    """Return the findings for DOCUMENT, a parsed JSON document, in the order of the document.

    DOCUMENT is valid if no finding is an error. The function raises no errors.
    """
    if not isinstance(document, dict):
        return (finding("not-an-object", "$", f"the document is not an object but {type_name(document)}"),)
    out = _Findings()
    is_good = False
    try:
        is_good = check_object(document, "$", _DOCUMENT, out)
        _check_minimum(document, out, is_good=is_good)
    except _EnoughError:
        out.dropped = True
    if out.dropped:
        more = finding("more-findings", "$", f"more than {MAX_FINDINGS} findings; the others are not shown")
        return (*out, more)
    return tuple(out)


class _EnoughError(Exception):
    """The error that ends the check of a document with too many errors."""


class _Findings(list["Finding"]):
    """A list of findings with limited memory; the list is full if it has MAX_FINDINGS findings."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped = False
        self._errors = 0

    def append(self, found: Finding) -> None:
        """Add FOUND. Drop a warning if the list is full. Raise _EnoughError after MAX_FINDINGS errors."""
        if found.severity == "error":
            self._errors += 1
            if self._errors > MAX_FINDINGS:
                raise _EnoughError
        elif len(self) >= MAX_FINDINGS:
            self.dropped = True
            return
        super().append(found)


def _version(value: object, path: str, out: list[Finding]) -> bool:
    if not isinstance(value, str):
        return wrong_type(value, path, "a text", out)
    if value in KNOWN_VERSIONS:
        return True
    hint = f"known: {', '.join(KNOWN_VERSIONS[2:])}"
    return reject(out, "version-unknown", path, f"{quote(value)} is not a released version", hint)


def _check_minimum(document: dict[str, object], out: list[Finding], *, is_good: bool) -> None:
    declared = document.get("cdiVersion")
    if not isinstance(declared, str) or declared not in KNOWN_VERSIONS:
        return
    needed = minimum_version(document)
    if is_newer(needed, declared):
        what = "any document" if needed == EARLIEST_VERSION else "this document"
        out.append(
            finding("version-too-low", "$.cdiVersion", f"{declared} is too low: {what} needs {needed}")
        )
    elif is_good and is_newer(declared, needed):
        # Source: container-device-interface issue 91; nvidia-container-toolkit issues 38, 1262, 1860.
        message = f"{declared} is higher than needed: runtimes that support only {needed} ignore the file"
        out.append(finding("version-higher-than-needed", "$.cdiVersion", message))


def _kind(value: object, path: str, out: list[Finding]) -> bool:
    if not check_text(value, path, out) or not isinstance(value, str):
        return False
    vendor, slash, class_ = value.partition("/")
    if not slash:
        return reject(out, "kind-syntax", path, f"{quote(value)} has no slash")
    good = True
    for what, name, limit in (("vendor", vendor, MAX_VENDOR), ("class", class_, MAX_CLASS)):
        good &= _kind_part(what, name, limit, path, out)
    if good and (vendor != vendor.lower() or "_" in vendor):
        out.append(finding("kind-not-dns", path, f"the vendor {quote(vendor)} is not a lower-case DNS name"))
    return good


def _kind_part(what: str, name: str, limit: int, path: str, out: list[Finding]) -> bool:
    if len(name) > limit:
        return reject(out, "kind-length", path, f"the {what} has {len(name)} characters, more than {limit}")
    if is_vendor_or_class(name):
        return True
    if len(name) == 1 and name.isascii() and name.isalpha():
        message = f"the {what} is the one letter {quote(name)}, which crashes loaders up to 1.1.0"
        return reject(out, "kind-one-letter", path, message)
    message = (
        f"the {what} {quote(name)} must have only letters, digits and _ . -, start with a letter, and "
        "end with a letter or digit"
    )
    return reject(out, "kind-syntax", path, message)


def _annotations(value: object, path: str, out: list[Finding]) -> bool:
    if not isinstance(value, dict):
        return wrong_type(value, path, "an object", out)
    good = True
    size = 0
    for key, text in value.items():
        where = member_path(path, key)
        if not is_annotation_key(str(key)):
            good = reject(out, "annotation-key", where, f"{quote(str(key))} is not a qualified name")
        good &= check_text(text, where, out, MAX_INT64)  # the limit applies to the sum
        size += _bytes(key) + _bytes(text)
    if size > MAX_ANNOTATIONS:
        message = f"the annotations have {size} bytes, more than {MAX_ANNOTATIONS}"
        return reject(out, "annotation-size", path, message)
    return good


def _bytes(text: object) -> int:
    return len(text.encode(errors="surrogatepass")) if isinstance(text, str) else 0


def is_annotation_key(key: str) -> bool:
    """Return whether KEY is a qualified name of Kubernetes.

    Such a name has an optional DNS prefix with a slash, and a name. Source: Kubernetes, apimachinery,
    IsQualifiedName, which is called with the key in lower case.
    """
    prefix, slash, name = key.rpartition("/")
    if slash and not (prefix.isascii() and _is_subdomain(prefix.lower())):
        return False
    return (
        0 < len(name) <= _MAX_ANNOTATION_NAME
        and _QUALIFIED.issuperset(name)
        and name[0].isalnum()
        and name[-1].isalnum()
    )


def _is_subdomain(name: str) -> bool:
    return len(name) <= _MAX_ANNOTATION_PREFIX and all(
        label and _LABEL.issuperset(label) and label[0] != "-" and label[-1] != "-"
        for label in name.split(".")
    )


def _device_name(value: object, path: str, out: list[Finding]) -> bool:
    if not isinstance(value, str):
        return wrong_type(value, path, "a text", out)
    if len(value) > MAX_DEVICE_NAME:
        message = f"has {len(value)} characters, more than {MAX_DEVICE_NAME}"
        return reject(out, "string-too-long", path, message)
    if is_device_name(value):
        return True
    message = f"{quote(value)} must have only letters, digits and _ . : -, and a letter or digit at both ends"
    return reject(out, "device-name", path, message)


def _device_edits(value: object, path: str, out: list[Finding]) -> bool:
    good = check_edits(value, path, out)
    if isinstance(value, dict) and is_empty(value):
        return reject(out, "device-edits-empty", path, "contains no edits")
    return good


def _devices(value: object, path: str, out: list[Finding]) -> bool:
    if not isinstance(value, list):
        return wrong_type(value, path, "a list", out)
    if not value:
        return reject(out, "devices-empty", path, "lists no device")
    good = True
    first: dict[str, int] = {}
    for index, device in enumerate(value):
        where = f"{path}[{index}]"
        good &= check_object(device, where, _DEVICE, out)
        name = device.get("name") if isinstance(device, dict) else None
        if isinstance(name, str) and first.setdefault(name, index) != index:
            message = f"{quote(name)} is also the name of devices[{first[name]}]"
            good = reject(out, "device-duplicate", f"{where}.name", message)
    return good


_DEVICE = Shape(
    fields={"name": _device_name, "annotations": _annotations, "containerEdits": _device_edits},
    required=("name", "containerEdits"),
)
_DOCUMENT = Shape(
    fields={
        "cdiVersion": _version,
        "kind": _kind,
        "annotations": _annotations,
        "devices": _devices,
        "containerEdits": check_edits,
    },
    required=("cdiVersion", "kind", "devices"),
)
