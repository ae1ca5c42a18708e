"""``compare``: returns the ``Changes`` between two specs of one kind, for text output and for --json.

The functions ignore values of a wrong type, because any program can write spec files. No function raises
errors. The name of a change is, for example, the container path of a mount, the name of a variable, or the
hook name and the command of a hook.
"""

from __future__ import annotations

import json
import re

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

# Driver versions in paths such as libcuda.so.535.216.03 and /lib/firmware/nvidia/535.216.03.
_VERSION = re.compile(r"(?<![\w.])(\d{2,}(?:\.\d+){1,3})(?![\w.])|(?<=\.so\.)(\d{2,}(?:\.\d+){1,3})(?![\w.])")
# Lists in container edits. The name of an item of these lists is the full text of the item.
_LISTED = ("netDevices", "additionalGids")


@frozen
class EditChanges:
    """The names of the edits that differ, such as ``mount /usr/lib64/libcuda.so.1``."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def count(self) -> int:
        """Return the number of differences."""
        return len(self.added) + len(self.removed) + len(self.changed)

    def row(self) -> dict[str, list[str]]:
        """Return the changes as JSON."""
        return {"added": list(self.added), "removed": list(self.removed), "changed": list(self.changed)}


NO_EDITS = EditChanges()


@frozen
class Changes:
    """The differences between two specs.

    ``added`` and ``removed`` are names of devices. ``kept`` are the names of the devices in both specs.
    ``devices`` are the kept devices with different edits, as pairs of name and changes. ``shared`` are the
    changes to the edits that apply to every device. ``form`` is true if the specs differ only in order or
    form. ``versions`` are the driver versions in the host paths of the old and the new spec, or empty texts.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    devices: tuple[tuple[str, EditChanges], ...] = ()
    shared: EditChanges = NO_EDITS
    form: bool = False
    versions: tuple[str, str] = ("", "")

    def any(self) -> bool:
        """Return whether the specs differ in any way."""
        return bool(self.added or self.removed or self.devices or self.shared.count() or self.form)

    def changed(self) -> tuple[str, ...]:
        """Return the kept devices with different edits; a change of the shared edits affects all devices."""
        return self.kept if self.shared.count() else tuple(name for name, _ in self.devices)

    def rows(self) -> list[dict[str, Any]]:
        """Return the changed edits as JSON rows.

        The first row contains the shared edits, with null as the device. Each further row contains the edits
        of one device. A row without changes is omitted.
        """
        groups: list[tuple[str | None, EditChanges]] = [(None, self.shared), *self.devices]
        return [{"device": name, **edits.row()} for name, edits in groups if edits.count()]

    def row(self, kind: str, file: str) -> dict[str, Any]:
        """Return the output of ``cdigen diff --json`` for one spec."""
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
        """Return a summary of one line.

        Example: ``+2 devices, -1 device, 40 edits changed (535.216.03 -> 535.309.01)``.
        """
        parts = [
            f"{sign}{len(names)} {_plural('device', len(names))}"
            for sign, names in (("+", self.added), ("-", self.removed))
            if names
        ]
        edits = self.shared.count() + sum(edits.count() for _, edits in self.devices)
        if edits:
            parts.append(f"{edits} {_plural('edit', edits)} changed")
        elif self.form:
            parts.append("only order or form differ")
        old, new = self.versions
        note = f" ({old} -> {new})" if old != new and old and new else ""
        return (", ".join(parts) or "no difference") + note


def compare(old: object, new: object) -> Changes:
    """Return the changes from the document OLD to the document NEW.

    A document is None if the file does not exist.
    """
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
    """Return the devices of DOCUMENT by name.

    The value of a device maps the names of its edits and annotations to their texts.
    """
    return {
        str(device.get("name")): {**_edits(device.get("containerEdits")), **_annotations(device)}
        for device in _objects(_get(document, "devices"))
    }


def _shared(document: object) -> dict[str, str]:
    """Return the parts of DOCUMENT outside its devices: shared edits, annotations, version and kind."""
    header = {
        key: _form(value) for key in ("cdiVersion", "kind") if (value := _get(document, key)) is not None
    }
    return {**header, **_edits(_get(document, "containerEdits")), **_annotations(document)}


def _edits(edits: object) -> dict[str, str]:
    """Return the full text of each edit in EDITS, by the name of the edit."""
    found: dict[str, str] = {}
    for name, value in _named_edits(edits):
        # If two edits have the same name, such as two mounts at one path, the second name has a number.
        key, number = name, 1
        while key in found:
            number += 1
            key = f"{name} #{number}"
        found[key] = value
    return found


def _named_edits(edits: object) -> Iterator[tuple[str, str]]:
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
    """Return the hook name and the command of HOOK, with at most two words of the arguments.

    NVIDIA's program contains several hooks. The arguments after the program's name select the hook.
    """
    words = [str(hook.get("hookName")), str(hook.get("path"))]
    for word in _texts(hook.get("args"))[1:3]:
        if word.startswith("-"):
            break
        words.append(word)
    return " ".join(words)


def _annotations(owner: object) -> dict[str, str]:
    annotations = _get(owner, "annotations")
    if not isinstance(annotations, dict):
        return {}
    return {f"annotation {key}": _form(value) for key, value in annotations.items()}


def _version(document: object) -> str:
    """Return the driver version that occurs in the largest number of host paths of DOCUMENT.

    The result is "" if there is no version, or if two versions occur equally often.
    """
    counts: dict[str, int] = {}
    for path in _host_paths(document):
        for match in {found[0] or found[1] for found in _VERSION.findall(path)}:
            counts[match] = counts.get(match, 0) + 1
    ranked = sorted(counts, key=lambda version: counts[version], reverse=True)
    if not ranked or (len(ranked) > 1 and counts[ranked[0]] == counts[ranked[1]]):
        return ""
    return ranked[0]


def _host_paths(document: object) -> Iterator[str]:
    owners: Iterable[object] = (document, *_objects(_get(document, "devices")))
    for owner in owners:
        for mount in _objects(_get(_get(owner, "containerEdits"), "mounts")):
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
