"""``minimum_version``: the lowest ``cdiVersion`` that a document needs, from a table of features.

The sources of the table are SPEC.md of container-device-interface, "Released versions", and
specs-go/version.go. docs/reference/cdi-loaders.md, "Versions", explains the table. A runtime that does not
support the version ignores the whole file. Therefore a generator writes the lowest version that its content
permits (issue 91).
"""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Every released version of the specification, oldest first (docs/reference/cdi-loaders.md, "Versions").
KNOWN_VERSIONS = (
    "0.1.0",
    "0.2.0",
    "0.3.0",
    "0.4.0",
    "0.5.0",
    "0.6.0",
    "0.7.0",
    "0.8.0",
    "1.0.0",
    "1.1.0",
)
# 0.1.0 and 0.2.0 are known versions, but libraries since 0.5.4 refuse them as too low (Kubernetes PR 116279).
EARLIEST_VERSION = "0.3.0"

_DIGITS = frozenset("0123456789")


def release_order(version: str) -> tuple[int, ...]:
    """Return the sort key of VERSION, which sorts released versions from old to new.

    Raise ValueError if a part of VERSION is not a number.
    """
    return tuple(int(part) for part in version.split("."))


def is_newer(version: str, than: str) -> bool:
    """Return whether the release VERSION is newer than the release THAN."""
    return release_order(version) > release_order(than)


def minimum_version(document: dict[str, object]) -> str:
    """Return the lowest version of the specification that has all features in DOCUMENT.

    DOCUMENT is a parsed JSON document of any form. A part with a wrong type is ignored. The function raises
    no errors.
    """
    entries = document.get("devices")
    devices = [device for device in entries if isinstance(device, dict)] if isinstance(entries, list) else []
    edits = [
        owner["containerEdits"]
        for owner in (document, *devices)
        if isinstance(owner.get("containerEdits"), dict)
    ]
    for version, is_needed in _NEWEST_FIRST:
        if is_needed(_Content(document=document, devices=devices, edits=edits)):
            return version
    return EARLIEST_VERSION


@frozen
class _Content:
    """A document, its devices, and the edits of the document and the devices.

    The lists contain only JSON objects.
    """

    document: dict[str, object]
    devices: list[dict[str, object]]
    edits: list[dict[str, object]]


def _entries(content: _Content, field: str) -> Iterator[dict[str, object]]:
    for edits in content.edits:
        entries = edits.get(field)
        if isinstance(entries, list):
            yield from (entry for entry in entries if isinstance(entry, dict))


def _rdt_of_1_1(edits: dict[str, object]) -> bool:
    rdt = edits.get("intelRdt")
    return isinstance(rdt, dict) and (rdt.get("schemata") is not None or bool(rdt.get("enableMonitoring")))


def _needs_1_1(content: _Content) -> bool:
    return any(edits.get("netDevices") or _rdt_of_1_1(edits) for edits in content.edits)


def _needs_0_7(content: _Content) -> bool:
    return any(
        edits.get("additionalGids") or isinstance(edits.get("intelRdt"), dict) for edits in content.edits
    )


def _needs_0_6(content: _Content) -> bool:
    kind = content.document.get("kind")
    dotted_class = isinstance(kind, str) and "." in kind.partition("/")[2]
    return dotted_class or any(owner.get("annotations") for owner in (content.document, *content.devices))


def _begins_with_digit(name: object) -> bool:
    return isinstance(name, str) and name[:1] in _DIGITS


def _needs_0_5(content: _Content) -> bool:
    return any(_begins_with_digit(device.get("name")) for device in content.devices) or any(
        node.get("hostPath") for node in _entries(content, "deviceNodes")
    )


def _needs_0_4(content: _Content) -> bool:
    return any(mount.get("type") for mount in _entries(content, "mounts"))


_NEWEST_FIRST: tuple[tuple[str, Callable[[_Content], bool]], ...] = (
    ("1.1.0", _needs_1_1),  # netDevices, intelRdt.schemata, intelRdt.enableMonitoring
    ("0.7.0", _needs_0_7),  # intelRdt, additionalGids
    ("0.6.0", _needs_0_6),  # annotations; a dot in the class
    ("0.5.0", _needs_0_5),  # hostPath of a node; a device name that begins with a digit
    ("0.4.0", _needs_0_4),  # type of a mount
)
