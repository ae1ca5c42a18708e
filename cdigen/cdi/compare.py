"""Compare two specs of one kind: ``compare`` returns the ``Changes``, for people and for --json.

Either document may come from a disk on which anybody wrote, so what is not formed as a spec counts as
absent, and nothing here raises. A *change* is named by what a container sees: a mount by its path in the
container, a variable by its name, a hook by when it runs and what it runs.
"""

from __future__ import annotations

import json
import re

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

# Driver versions as they stand in paths: libcuda.so.535.216.03, /lib/firmware/nvidia/535.216.03.
_VERSION = re.compile(r"(?<![\w.])(\d{2,}(?:\.\d+){1,3})(?![\w.])|(?<=\.so\.)(\d{2,}(?:\.\d+){1,3})(?![\w.])")
# Other parts of a set of edits, by their key in the document.
_LISTED = ("netDevices", "additionalGids")


@frozen
class EditChanges:
    """What differs between two sets of container edits: ``mount /usr/lib64/libcuda.so.1`` and the like."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def count(self) -> int:
        """Return how many things differ."""
        return len(self.added) + len(self.removed) + len(self.changed)

    def row(self) -> dict[str, list[str]]:
        """Return it as JSON."""
        return {"added": list(self.added), "removed": list(self.removed), "changed": list(self.changed)}


NO_EDITS = EditChanges()


@frozen
class Changes:
    """What differs between two specs: names of devices, and the edits of those that changed.

    ``kept`` are the devices that both have, ``devices`` those of them whose own edits differ, each with
    what does; ``shared`` is what differs for every device. ``form`` says that the texts differ in order
    or form alone. ``versions`` are the version in the old and in the new paths, where they have one.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    devices: tuple[tuple[str, EditChanges], ...] = ()
    shared: EditChanges = NO_EDITS
    form: bool = False
    versions: tuple[str, str] = ("", "")

    def any(self) -> bool:
        """Return whether the documents differ at all."""
        return bool(self.added or self.removed or self.devices or self.shared.count() or self.form)

    def changed(self) -> tuple[str, ...]:
        """Return the devices whose containers get something else than before."""
        return self.kept if self.shared.count() else tuple(name for name, _ in self.devices)

    def rows(self) -> list[dict[str, Any]]:
        """Return as JSON which edits differ: first the shared ones (device null), then each device's."""
        groups: list[tuple[str | None, EditChanges]] = [(None, self.shared), *self.devices]
        return [{"device": name, **edits.row()} for name, edits in groups if edits.count()]

    def row(self, kind: str, file: str) -> dict[str, Any]:
        """Return what ``cdigen diff --json`` prints of one spec."""
        return {
            "kind": kind,
            "file": file,
            "added": list(self.added),
            "removed": list(self.removed),
            "changed": list(self.changed()),
            "edits": self.rows(),
            "summary": self.summary(),
        }

    def summary(self) -> str:
        """Return it as one line: ``+2 devices, -1 device, 40 edits changed (535.216.03 -> 535.309.01)``."""
        parts = [
            f"{sign}{len(names)} {_plural('device', len(names))}"
            for sign, names in (("+", self.added), ("-", self.removed))
            if names
        ]
        edits = self.shared.count() + sum(edits.count() for _, edits in self.devices)
        if edits:
            parts.append(f"{edits} {_plural('edit', edits)} changed")
        elif self.form:
            parts.append("another order or form")
        old, new = self.versions
        note = f" ({old} -> {new})" if old != new and old and new else ""
        return (", ".join(parts) or "no difference") + note


def compare(old: object, new: object) -> Changes:
    """Return what differs from the document OLD to the document NEW; None is a file that is not there."""
    before, after = _devices(old), _devices(new)
    kept = tuple(name for name in after if name in before)
    differing = ((name, _differences(before[name], after[name])) for name in kept)
    devices = tuple((name, edits) for name, edits in differing if edits.count())
    changes = Changes(
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        kept=kept,
        devices=devices,
        shared=_differences(_shared(old), _shared(new)),
        versions=(_version(old), _version(new)),
    )
    if changes.any() or _form(old) == _form(new):
        return changes
    return Changes(kept=kept, form=True)


def _differences(old: Mapping[str, str], new: Mapping[str, str]) -> EditChanges:
    return EditChanges(
        added=tuple(key for key in new if key not in old),
        removed=tuple(key for key in old if key not in new),
        changed=tuple(key for key, value in new.items() if key in old and old[key] != value),
    )


def _devices(document: object) -> dict[str, dict[str, str]]:
    """Return the devices of DOCUMENT by name, each as its edits and annotations by what they are."""
    return {
        str(device.get("name")): {**_edits(device.get("containerEdits")), **_annotations(device)}
        for device in _objects(_get(document, "devices"))
    }


def _shared(document: object) -> dict[str, str]:
    """Return what DOCUMENT gives with every device, and its own fields."""
    header = {
        key: _form(value) for key in ("cdiVersion", "kind") if (value := _get(document, key)) is not None
    }
    return {**header, **_edits(_get(document, "containerEdits")), **_annotations(document)}


def _edits(edits: object) -> dict[str, str]:
    """Return EDITS as what each thing is and the whole of it: two are the same where both are."""
    found: dict[str, str] = {}
    for name, value in _things(edits):
        # A path mounted twice, or a hook run twice: each further one has a number.
        key, number = name, 1
        while key in found:
            number += 1
            key = f"{name} #{number}"
        found[key] = value
    return found


def _things(edits: object) -> Iterator[tuple[str, str]]:
    for entry in _texts(_get(edits, "env")):
        yield f"env {entry.partition('=')[0]}", entry
    for node in _objects(_get(edits, "deviceNodes")):
        yield f"node {node.get('path')}", _form(node)
    for mount in _objects(_get(edits, "mounts")):
        yield f"mount {mount.get('containerPath')}", _form(mount)
    for hook in _objects(_get(edits, "hooks")):
        yield f"hook {_hook(hook)}", _form(hook)
    for key in _LISTED:
        for value in _list(_get(edits, key)):
            yield f"{key} {_form(value)}", _form(value)
    if isinstance(edits, dict) and "intelRdt" in edits:
        yield "intelRdt", _form(edits["intelRdt"])


def _hook(hook: Mapping[str, Any]) -> str:
    """Return when HOOK runs and what; NVIDIA's is one program, whose first words are the hook."""
    words = [str(hook.get("hookName")), str(hook.get("path"))]
    for word in _texts(hook.get("args"))[1:3]:
        if word.startswith("-"):
            break
        words.append(word)
    return " ".join(words)


def _annotations(holder: object) -> dict[str, str]:
    annotations = _get(holder, "annotations")
    if not isinstance(annotations, dict):
        return {}
    return {f"annotation {key}": _form(value) for key, value in annotations.items()}


def _version(document: object) -> str:
    """Return the version that most of the host paths in DOCUMENT carry, "" where none leads."""
    counts: dict[str, int] = {}
    for path in _host_paths(document):
        for match in {found[0] or found[1] for found in _VERSION.findall(path)}:
            counts[match] = counts.get(match, 0) + 1
    ranked = sorted(counts, key=lambda version: counts[version], reverse=True)
    if not ranked or (len(ranked) > 1 and counts[ranked[0]] == counts[ranked[1]]):
        return ""
    return ranked[0]


def _host_paths(document: object) -> Iterator[str]:
    holders: Iterable[object] = (document, *_objects(_get(document, "devices")))
    for holder in holders:
        for mount in _objects(_get(_get(holder, "containerEdits"), "mounts")):
            yield str(mount.get("hostPath"))


def _get(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in _list(value) if isinstance(item, dict)]


def _texts(value: object) -> list[str]:
    return [item for item in _list(value) if isinstance(item, str)]


def _form(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
