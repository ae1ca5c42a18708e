"""Read a configuration file: ``read`` returns the settings, and findings with line and column of all faults.

The table ``config.keys`` has the type of each key.
"""

from __future__ import annotations

from cdigen.config.keys import KEYS, Key
from cdigen.config.settings import MAX_SIZE, Settings
from cdigen.config.tree import NO_CONFIGURATION, NoTreeError, compose, fault, place_of
from cdigen.config.types import (
    FLAG,
    LINE,
    VENDOR_OPTIONS,
    ListOf,
    Rows,
    Scalar,
    Table,
    Vendors,
    WrongValueError,
    described,
    form,
    quoted,
)
from cdigen.model.errors import ConfigError
from cdigen.model.findings import errors
from cdigen.model.profile import Profile
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Any

    import yaml

    from cdigen.model.findings import Finding

MAX_PROBLEMS = 10
OLD_KEY = "configuration-old-key"
_HINT = "see docs/configuration.md"
# Stands for a wrong value.
_WRONG = object()


def parse(data: bytes, *, file: str, vendors: Collection[str]) -> Settings:
    """Return the settings in the text of a configuration file; VENDORS are the names known.

    Raises ConfigError that names every fault with FILE and its line.
    """
    settings, found = read(data, file=file, vendors=vendors)
    if wrong := errors(found):
        raise as_error(wrong)
    return settings


def read(data: bytes, *, file: str, vendors: Collection[str]) -> tuple[Settings, tuple[Finding, ...]]:
    """Return the settings from the valid keys, and findings on the others.

    Errors are faults; a warning (``configuration-old-key``) is a key with its name in the first release.
    """
    if len(data) > MAX_SIZE:
        wrong = fault(file, f"the file is larger than {MAX_SIZE} bytes", None, hint=NO_CONFIGURATION)
        return Settings(), (wrong,)
    try:
        root = compose(data, file)
    except NoTreeError as error:
        return Settings(), (error.finding,)
    return (Settings(), ()) if root is None else _Reading(file, vendors).settings(root)


def as_error(found: tuple[Finding, ...]) -> ConfigError:
    """Return the error with all faults FOUND in a configuration, each with its place."""
    more = len(found) - MAX_PROBLEMS
    said = [format_fault(one) for one in found[:MAX_PROBLEMS]]
    said += [f"and {more} more"] if more > 0 else []
    return ConfigError("; ".join(said), hint=found[0].hint, kind="config")


def format_fault(found: Finding) -> str:
    """Return FOUND as compilers print faults: file, line, column, and what is wrong."""
    severity = "" if found.severity == "error" else f"{found.severity}: "
    return ":".join((found.path, *map(str, found.place or ()))) + f": {severity}{found.message}"


class _Reading:
    """One file being read: gathers faults with their places."""

    def __init__(self, file: str, vendors: Collection[str]) -> None:
        self._file = file
        self._vendors = Vendors(known=vendors)
        self._found: list[Finding] = []

    def settings(self, root: yaml.Node) -> tuple[Settings, tuple[Finding, ...]]:
        """Return the settings from the valid keys of the document ROOT, and the findings."""
        settings = Settings()
        if form(root) != "mapping":
            self._add(root, "the file is not a mapping of keys to values")
        else:
            known = self._vendors.known
            self._vendors = Vendors(known=known, named=_texts(root, "vendors", known))
            settings = Settings(**self._mapping(root, KEYS, ""))
            # A wrong key is replaced by its default, which must not be compared.
            if not errors(self._found):
                self._keep_apart(root, settings)
        return settings, tuple(sorted(self._found, key=lambda finding: finding.place or (0, 0)))

    def _mapping(self, root: yaml.Node, keys: Iterable[Key], where: str) -> dict[str, Any]:
        """Return the valid values of the mapping ROOT by the fields of KEYS, and note faults."""
        known = {name: key for key in keys for name in (key.name, key.old) if name}
        given = [key.value if form(key) == "text" else "" for key, _ in root.value]
        values: dict[str, object] = {}
        seen: set[str] = set()
        for (node, value), name in zip(root.value, given, strict=True):
            if not name:
                self._add(node, f"{where}a key must be a text, not {described(node)}")
            elif name in seen:
                self._add(node, f"{where}the key {name!r} is given a second time")
            elif name not in known:
                self._add(
                    node,
                    f"{where}unknown key {quoted(name)}{_meant(name, [key.name for key in known.values()])}",
                )
            elif name == known[name].old and known[name].name in given:
                self._add(
                    node, f"{where}{name!r} is the old name of {known[name].name!r}, which is also given"
                )
            else:
                seen.add(name)
                if name == known[name].old:
                    self._warn(node, f"{where}the key {name!r} is now {known[name].name!r}")
                read = self._value(known[name].type, value, f"{where}{name}")
                if read is not _WRONG:
                    values[known[name].field or known[name].name] = read
        return values

    def _value(self, type_: Scalar | ListOf | Table | Rows, node: yaml.Node, at: str) -> object:
        """Return the value of NODE as TYPE_ reads it; _WRONG, with a finding, if it is invalid."""
        if isinstance(type_, Scalar):
            try:
                return type_.read(node, self._vendors)
            except WrongValueError as wrong:
                return self._add(wrong.node, f"{at} {wrong}")
        wanted = "mapping" if isinstance(type_, Table) else "list"
        if form(node) != wanted:
            return self._add(node, f"{at} must be a {wanted}, not {described(node)}")
        if isinstance(type_, Table):
            keys = type_.keys if type_ is not VENDOR_OPTIONS else self._vendor_keys(node)
            return type_.cls(**self._mapping(node, keys, f"{at}: "))
        if len(node.value) < type_.at_least:
            return self._add(node, f"{at} must not be empty")
        return self._rows(type_, node, at) if isinstance(type_, Rows) else self._items(type_, node, at)

    def _items(self, type_: ListOf, node: yaml.Node, at: str) -> object:
        values: dict[object, bool] = {}
        for item in node.value:
            value = self._value(type_.item, item, at)
            if value is not _WRONG and value in values:
                value = self._add(item, f"{at} holds {quoted(str(value))} twice")
            values[value] = True
        return _WRONG if _WRONG in values else tuple(values)

    def _rows(self, type_: Rows, node: yaml.Node, at: str) -> object:
        """Return the valid rows, each as a ``type_.cls``; _WRONG if there are none."""
        where = f"{at.rpartition(' ')[0]} {type_.row}: ".lstrip()
        rows: list[Any] = []
        for item in node.value:
            before = len(self._found)
            if form(item) != "mapping":
                self._add(item, f"{where}must be a list of mappings, not of {described(item)}")
                continue
            values = self._mapping(item, type_.keys, where)
            for key in type_.keys:
                if key.is_required and all(name.value != key.name for name, _ in item.value):
                    self._add(item, f"{where}the key {key.name!r} is missing")
            if len(self._found) == before:
                row = type_.cls(**values)
                self._tell_apart(item, row, rows)
                rows.append(row)
        return tuple(rows) if rows or not node.value else _WRONG

    def _tell_apart(self, node: yaml.Node, row: object, others: list[Any]) -> None:
        """Note if ROW, read from NODE, is a profile with the name or the class of one of OTHERS."""
        if not isinstance(row, Profile):
            return
        for other in others:
            if row.name == other.name:
                self._add(node, f"a second profile is named {row.name!r}")
            elif row.device_class == other.device_class:
                self._add(node, f"a second profile has the class {row.device_class!r}")

    def _vendor_keys(self, node: yaml.Node) -> list[Key]:
        given = [str(key.value) for key, _ in node.value]
        known = self._vendors.known
        return [
            Key(name=name, type=Table(keys=_options(name) if name in given else (), cls=dict), text="")
            for name in dict.fromkeys((*known, *(name for name in given if name in known)))
        ]

    def _keep_apart(self, root: yaml.Node, settings: Settings) -> None:
        """Refuse a spec directory as our own folder: each cycle would change it and cause the next."""
        own = {
            "state_dir": settings.state_dir,
            "daemon": settings.daemon.run_dir,
            "nri": settings.nri.run_dir,
            "kubelet": settings.kubelet.run_dir,
        }
        nodes = {key.value: value for key, value in root.value}
        for key, folder in own.items():
            if _usual(folder) in map(_usual, settings.spec_dirs):
                name = key if key == "state_dir" else f"{key}: run_dir"
                text = f"{name} must not be a spec directory, as {quoted(folder)} is"
                self._add(nodes.get(key, root), text)

    def _add(self, node: yaml.Node, problem: str) -> object:
        self._found.append(fault(self._file, problem, place_of(node.start_mark), hint=_HINT))
        return _WRONG

    def _warn(self, node: yaml.Node, text: str) -> None:
        found = fault(
            self._file, text, place_of(node.start_mark), hint="rename it: the next release refuses it"
        )
        self._found.append(replace(found, severity="warning", rule=OLD_KEY))


def _texts(root: yaml.Node, name: str, known: Collection[str]) -> tuple[str, ...]:
    """Return which of KNOWN are in the list under the key NAME of the mapping ROOT."""
    lists = (value.value for key, value in root.value if key.value == name and form(value) == "list")
    return tuple(
        item.value for items in lists for item in items if form(item) == "text" and item.value in known
    )


def _options(vendor: str) -> tuple[Key, ...]:
    """Return the keys of VENDOR's options."""
    from cdigen.vendors.registry import load  # noqa: PLC0415 - only where options are given

    return tuple(
        Key(name=one.name, type=FLAG if isinstance(one.default, bool) else LINE, text=one.help)
        for one in load(vendor).OPTIONS
    )


def _usual(folder: str) -> str:
    """Return FOLDER in one spelling: /var/run is a link to /run."""
    parts = [part for part in folder.split("/") if part]
    return "/".join(parts[1:] if parts[:2] == ["var", "run"] else parts)


def _meant(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only where something is wrong

    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
