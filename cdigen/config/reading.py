"""The reader of configuration files; each fault becomes a finding with its line and column.

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
    describe,
    node_type,
    quote,
)
from cdigen.model.errors import ConfigError
from cdigen.model.profile import Profile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Any

    import yaml

    from cdigen.model.findings import Finding

MAX_PROBLEMS = 10
_HINT = "see docs/configuration.md"
# The result of reading an invalid value.
_INVALID = object()


def parse(data: bytes, *, file: str, vendors: Collection[str]) -> Settings:
    """Return the settings in DATA (the text of FILE); VENDORS are the names of the supported vendors.

    Raises ConfigError for faults. The message has at most MAX_PROBLEMS faults, each with FILE and its line.
    """
    settings, found = read(data, file=file, vendors=vendors)
    if found:
        raise as_error(found)
    return settings


def read(data: bytes, *, file: str, vendors: Collection[str]) -> tuple[Settings, tuple[Finding, ...]]:
    """Return the settings from the valid keys, and an error for each fault."""
    if len(data) > MAX_SIZE:
        too_large = fault(file, f"the file is larger than {MAX_SIZE} bytes", None, hint=NO_CONFIGURATION)
        return Settings(), (too_large,)
    try:
        root = compose(data, file)
    except NoTreeError as error:
        return Settings(), (error.finding,)
    return (Settings(), ()) if root is None else _Reading(file, vendors).settings(root)


def as_error(found: tuple[Finding, ...]) -> ConfigError:
    """Return the faults FOUND of a configuration as one error, with the position of each fault."""
    more = len(found) - MAX_PROBLEMS
    lines = [format_fault(one) for one in found[:MAX_PROBLEMS]]
    lines += [f"and {more} more"] if more > 0 else []
    return ConfigError("; ".join(lines), hint=found[0].hint, kind="config")


def format_fault(found: Finding) -> str:
    """Return FOUND as one line in the format of compilers (``FILE:LINE:COLUMN: MESSAGE``)."""
    severity = "" if found.severity == "error" else f"{found.severity}: "
    return ":".join((found.path, *map(str, found.place or ()))) + f": {severity}{found.message}"


class _Reading:
    """The reader of one file, which collects the faults with their positions."""

    def __init__(self, file: str, vendors: Collection[str]) -> None:
        self._file = file
        self._vendors = Vendors(known=vendors)
        self._found: list[Finding] = []

    def settings(self, root: yaml.Node) -> tuple[Settings, tuple[Finding, ...]]:
        """Return the settings from the valid keys of the document ROOT, and the findings."""
        settings = Settings()
        if node_type(root) != "mapping":
            self._add(root, "the file is not a mapping of keys to values")
        else:
            known = self._vendors.known
            self._vendors = Vendors(known=known, named=_texts(root, "vendors", known))
            settings = Settings(**self._mapping(root, KEYS, ""))
            # An invalid key has its default value, and _check_folders must not compare the default.
            if not self._found:
                self._check_folders(root, settings)
        return settings, tuple(sorted(self._found, key=lambda finding: finding.place or (0, 0)))

    def _mapping(self, root: yaml.Node, keys: Iterable[Key], where: str) -> dict[str, Any]:
        """Return the valid values of the mapping ROOT, by the field names of KEYS; record the faults."""
        known = {key.name: key for key in keys}
        values: dict[str, object] = {}
        present: set[str] = set()
        for node, value in root.value:
            name = node.value if node_type(node) == "text" else ""
            if not name:
                self._add(node, f"{where}a key must be a text, not {describe(node)}")
            elif name in present:
                self._add(node, f"{where}duplicate key {name!r}")
            elif name not in known:
                self._add(node, f"{where}unknown key {quote(name)}{_suggestion(name, known)}")
            else:
                present.add(name)
                read = self._value(known[name].type, value, f"{where}{name}")
                if read is not _INVALID:
                    values[known[name].field or name] = read
        return values

    def _value(self, type_: Scalar | ListOf | Table | Rows, node: yaml.Node, at: str) -> object:
        """Return the value of NODE as TYPE_; for an invalid value, record a fault and return _INVALID."""
        if isinstance(type_, Scalar):
            try:
                return type_.read(node, self._vendors)
            except WrongValueError as wrong:
                return self._add(wrong.node, f"{at} {wrong}")
        expected = "mapping" if isinstance(type_, Table) else "list"
        if node_type(node) != expected:
            return self._add(node, f"{at} must be a {expected}, not {describe(node)}")
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
            if value is not _INVALID and value in values:
                value = self._add(item, f"{at} contains {quote(str(value))} twice")
            values[value] = True
        return _INVALID if _INVALID in values else tuple(values)

    def _rows(self, type_: Rows, node: yaml.Node, at: str) -> object:
        """Return the valid rows as instances of ``type_.cls``, or _INVALID if all rows are invalid."""
        where = f"{at.rpartition(' ')[0]} {type_.row}: ".lstrip()
        rows: list[Any] = []
        for item in node.value:
            before = len(self._found)
            if node_type(item) != "mapping":
                self._add(item, f"{where}must be a list of mappings, not of {describe(item)}")
                continue
            values = self._mapping(item, type_.keys, where)
            for key in type_.keys:
                if key.is_required and all(name.value != key.name for name, _ in item.value):
                    self._add(item, f"{where}the key {key.name!r} is missing")
            if len(self._found) == before:
                row = type_.cls(**values)
                self._check_names(item, row, rows)
                rows.append(row)
        return tuple(rows) if rows or not node.value else _INVALID

    def _check_names(self, node: yaml.Node, row: object, others: list[Any]) -> None:
        """Record a fault at NODE if ROW is a profile whose name or class is also in OTHERS."""
        if not isinstance(row, Profile):
            return
        for other in others:
            if row.name == other.name:
                self._add(node, f"a second profile is named {row.name!r}")
            elif row.device_class == other.device_class:
                self._add(node, f"a second profile has the class {row.device_class!r}")

    def _vendor_keys(self, node: yaml.Node) -> list[Key]:
        present = [str(key.value) for key, _ in node.value]
        known = self._vendors.known
        return [
            Key(name=name, type=Table(keys=_options(name) if name in present else (), cls=dict), text="")
            for name in dict.fromkeys((*known, *(name for name in present if name in known)))
        ]

    def _check_folders(self, root: yaml.Node, settings: Settings) -> None:
        """Add a fault if a folder of cdigen is a spec directory.

        cdigen writes into its folders in each cycle, and a write into a spec directory starts a cycle.
        """
        own = {
            "state_dir": settings.state_dir,
            "daemon": settings.daemon.run_dir,
            "nri": settings.nri.run_dir,
            "kubelet": settings.kubelet.run_dir,
        }
        nodes = {key.value: value for key, value in root.value}
        for key, folder in own.items():
            if _normalized(folder) in map(_normalized, settings.spec_dirs):
                name = key if key == "state_dir" else f"{key}: run_dir"
                text = f"{name} must not be a spec directory ({quote(folder)})"
                self._add(nodes.get(key, root), text)

    def _add(self, node: yaml.Node, problem: str) -> object:
        self._found.append(fault(self._file, problem, place_of(node.start_mark), hint=_HINT))
        return _INVALID


def _texts(root: yaml.Node, name: str, known: Collection[str]) -> tuple[str, ...]:
    """Return the names of KNOWN in the list at the key NAME of the mapping ROOT."""
    lists = (value.value for key, value in root.value if key.value == name and node_type(value) == "list")
    return tuple(
        item.value for items in lists for item in items if node_type(item) == "text" and item.value in known
    )


def _options(vendor: str) -> tuple[Key, ...]:
    """Return the keys of VENDOR's options."""
    from cdigen.vendors.registry import load  # noqa: PLC0415 - only if there are options

    return tuple(
        Key(name=one.name, type=FLAG if isinstance(one.default, bool) else LINE, text=one.help)
        for one in load(vendor).OPTIONS
    )


def _normalized(folder: str) -> str:
    """Return FOLDER in a canonical spelling, with /run for /var/run (a link to /run)."""
    parts = [part for part in folder.split("/") if part]
    return "/".join(parts[1:] if parts[:2] == ["var", "run"] else parts)


def _suggestion(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only for a fault

    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
