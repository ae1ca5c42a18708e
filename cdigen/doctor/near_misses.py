"""The known device name that a misspelled name most likely means.

A number that no device has is not a near miss: a suggestion never selects another device of the same form.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

# Similarity of kinds and of long names, from 0 to 1. amd.com/gpu and nvidia.com/gpu have 0.72.
_SIMILAR = 0.8
# UUIDs and PCI addresses are long. Two short names, such as numbers, are similar without a misspelling.
_LONG = 12
_PREFIX = re.compile(r"^(?:gpu|mig|device|card)(?=[0-9])")
_OTHER = re.compile(r"[^a-z0-9]+")
_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")


def nearest(name: str, known: Collection[str]) -> str:
    """Return the name in KNOWN that NAME (``vendor/class=device``) most likely means, or an empty text."""
    kind, _, device = name.partition("=")
    kinds = {one.partition("=")[0] for one in known}
    meant = kind if kind in kinds else _similar_kind(kind, kinds)
    if not meant:
        return ""
    devices = {one.partition("=")[2] for one in known if one.startswith(f"{meant}=")}
    if not device:
        return f"{meant}=all" if "all" in devices else ""
    found = device if device in devices else _same(device, devices)
    if not found and len(device) >= _LONG:
        from difflib import get_close_matches  # noqa: PLC0415 - only for errors

        found = next(iter(get_close_matches(device, sorted(devices), n=1, cutoff=_SIMILAR)), "")
    return f"{meant}={found}" if found else ""


def _similar_kind(kind: str, kinds: Collection[str]) -> str:
    """Return the only kind in KINDS with the same class or vendor as KIND and a similar other part."""
    from difflib import SequenceMatcher  # noqa: PLC0415 - only for errors

    vendor, _, class_ = kind.partition("/")
    found = [
        one
        for one in kinds
        if (one.partition("/")[0] == vendor and one.partition("/")[2] in {f"{class_}s", class_.rstrip("s")})
        or (
            one.partition("/")[2].lower()
            in {class_.lower(), f"{class_.lower()}s", class_.lower().rstrip("s")}
            and SequenceMatcher(None, one.lower(), kind.lower()).ratio() >= _SIMILAR
        )
    ]
    return found[0] if len(found) == 1 else ""


def _same(device: str, devices: Collection[str]) -> str:
    """Return the only name in DEVICES that differs from DEVICE in letter case, prefix or separators."""
    found = [one for one in devices if _plain(one) == _plain(device)]
    return found[0] if len(found) == 1 else ""


def _plain(device: str) -> str:
    words = _PREFIX.sub(
        "", _OTHER.sub(" ", device.lower()).strip().replace("gpu ", "gpu").replace("mig ", "mig")
    )
    return _ZEROS.sub("", words)
