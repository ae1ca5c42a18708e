"""The reader of configuration files; each fault becomes a finding with its line and column.

The table ``config.keys`` has the type of each key.
"""

from __future__ import annotations

from cdigen import page_url
from cdigen.config.keys import KEYS
from cdigen.config.settings import MAX_SIZE, Settings
from cdigen.config.tree import NO_CONFIGURATION, RULE, NoTreeError, compose, fault, place_of, text_of
from cdigen.config.types import (
    FLAG,
    INVALID,
    LINE,
    VENDOR_OPTIONS,
    Key,
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
from cdigen.model.findings import Finding
from cdigen.model.profile import Profile
from cdigen.vendors.context import DeviceFilter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from typing import Any

    import yaml

    from cdigen.model.findings import Severity

MAX_PROBLEMS = 10


def read(data: bytes, *, file: str, vendors: Collection[str]) -> tuple[Settings, tuple[Finding, ...]]:
    """Return the settings from the valid keys, and an error for each fault."""
    if len(data) > MAX_SIZE:
        too_large = fault(file, f"the file is larger than {MAX_SIZE} bytes", None, hint=NO_CONFIGURATION)
        return Settings(), (too_large,)
    try:
        root = compose(data, file)
    except NoTreeError as error:
        return Settings(), (error.finding,)
    if root is None:
        return Settings(), ()
    return _ConfigurationReader(file, Vendors(known=vendors)).settings(root)


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


class TableReader:
    """Reads the nodes of the file FILE by tables of keys, and collects the faults with their positions.

    ``separator`` is the text between the parts of a key's path in messages. ``rule`` and ``hint`` are those
    of the findings.
    """

    separator, rule, hint = ": ", RULE, f"see {page_url('reference/configuration')}"

    def __init__(self, file: str, vendors: Vendors) -> None:
        self.file = file
        self.vendors = vendors
        self.found: list[Finding] = []
        self._errors = 0

    def mapping(self, root: yaml.Node, keys: Iterable[Key], where: str) -> dict[str, Any]:
        """Return the values of the mapping ROOT by the field names of KEYS; an invalid value is INVALID."""
        known = {key.name: key for key in keys}
        return {
            known[name].field or name: self.value(known[name].type, value, f"{where}{name}")
            for name, value in self.pairs(root, known, where)
        }

    def pairs(self, root: yaml.Node, known: Mapping[str, Key], where: str) -> Iterator[tuple[str, yaml.Node]]:
        """Yield the KNOWN keys of the mapping ROOT with their values; add a fault for any other key."""
        present: set[str] = set()
        for node, value in root.value:
            name = node.value if node_type(node) == "text" else ""
            if not name:
                self.add(node, f"{where}a key must be a text, not {describe(node)}")
            elif name in present:
                self.add(node, f"{where}duplicate key {name!r}")
            elif name not in known:
                self.add(node, f"{where}unknown key {quote(name)}{_suggestion(name, known)}")
            else:
                present.add(name)
                yield name, value

    def value(self, type_: Scalar | ListOf | Table | Rows, node: yaml.Node, at: str) -> object:
        """Return the value of NODE as TYPE_; for an invalid value, add a fault and return INVALID."""
        if isinstance(type_, Scalar):
            try:
                return type_.read(node, self.vendors)
            except WrongValueError as wrong:
                for each in (wrong, *wrong.others):
                    self.add(each.node, f"{at} {each}", each.severity)
                return wrong.value
        expected = "mapping" if isinstance(type_, Table) else "list"
        if node_type(node) != expected:
            return self.add(node, f"{at} must be a {expected}, not {describe(node)}")
        if isinstance(type_, Table):
            values = self.mapping(node, self.keys(type_, node), f"{at}{self.separator}")
            return type_.cls(**valid(values))
        if len(node.value) < type_.at_least:
            return self.add(node, f"{at} must not be empty")
        return self._rows(type_, node, at) if isinstance(type_, Rows) else self._items(type_, node, at)

    def keys(self, table: Table, _node: yaml.Node) -> Iterable[Key]:
        """Return the keys that the mapping NODE of TABLE may have."""
        return table.keys

    def _items(self, type_: ListOf, node: yaml.Node, at: str) -> object:
        values: dict[object, bool] = {}
        for item in node.value:
            value = self.value(type_.item, item, at)
            if value is not INVALID and value in values:
                value = self.add(item, f"{at} contains {quote(str(value))} twice")
            values[value] = True
        return INVALID if INVALID in values else tuple(values)

    def _rows(self, type_: Rows, node: yaml.Node, at: str) -> object:
        """Return the valid rows as instances of ``type_.cls``, or INVALID if all rows are invalid."""
        rows: list[Any] = []
        others: list[Any] = []
        for item in node.value:
            if node_type(item) != "mapping":
                self.add(item, f"{at} must be a list of mappings, not of {describe(item)}")
                continue
            before = self._errors
            values = self.mapping(item, type_.keys, f"{at}{self.separator}")
            required = {key.field or key.name: key.name for key in type_.keys if key.is_required}
            for field, name in required.items():
                if field not in values:
                    self.add(item, f"{at}: the key {name!r} is missing")
            # A row with a fault is also compared, so that all its faults are reported at once.
            if required.keys() <= valid(values).keys():
                row = type_.cls(**valid(values))
                self.check_row(item, row, others, is_valid=self._errors == before)
                others.append(row)
                if self._errors == before:
                    rows.append(row)
        return tuple(rows) if rows or not node.value else INVALID

    def check_row(self, node: yaml.Node, row: Any, others: list[Any], *, is_valid: bool) -> None:
        """Add a fault at NODE if ROW contradicts OTHERS or itself.

        If IS_VALID is false, a key of the row is invalid, and ROW has the default value of this key.
        """

    def add(self, node: yaml.Node | None, problem: str, severity: Severity = "error") -> object:
        """Add a finding on NODE, and return INVALID."""
        place = place_of(node.start_mark) if node is not None else None
        found = Finding(
            severity=severity, rule=self.rule, path=self.file, message=problem, hint=self.hint, place=place
        )
        self.found.append(found)
        self._errors += severity == "error"
        return INVALID


class _ConfigurationReader(TableReader):
    """The reader of cdigen's configuration."""

    def settings(self, root: yaml.Node) -> tuple[Settings, tuple[Finding, ...]]:
        """Return the settings from the valid keys of the document ROOT, and the findings."""
        settings = Settings()
        if node_type(root) != "mapping":
            self.add(root, "the file is not a mapping of keys to values")
        else:
            known = self.vendors.known
            self.vendors = Vendors(known=known, named=_texts(root, "vendors", known))
            settings = Settings(**valid(self.mapping(root, KEYS, "")))
            self._check_folders(root, settings)
        return settings, tuple(sorted(self.found, key=lambda finding: finding.place or (0, 0)))

    def check_row(self, node: yaml.Node, row: Any, others: list[Any], *, is_valid: bool) -> None:
        """Add a fault at NODE if ROW has no condition, or is a profile whose name or class is in OTHERS."""
        if is_valid and row == DeviceFilter():
            self.add(node, "devices: exclude: a row without a condition would exclude all devices")
        if not isinstance(row, Profile):
            return
        if any(row.name == other.name for other in others):
            self.add(node, f"a second profile is named {row.name!r}")
        if any(row.device_class == other.device_class for other in others):
            self.add(node, f"a second profile has the class {row.device_class!r}")

    def keys(self, table: Table, node: yaml.Node) -> Iterable[Key]:
        """Return the keys of TABLE, or the options of the vendors."""
        if table is not VENDOR_OPTIONS:
            return table.keys
        present = [str(key.value) for key, _ in node.value]
        known = self.vendors.known
        return [
            Key(name=name, type=Table(keys=_options(name) if name in present else (), cls=dict))
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
        nodes = {text_of(key): value for key, value in root.value}
        faults = [finding.message for finding in self.found]
        for key, folder in own.items():
            name = key if key == "state_dir" else f"{key}: run_dir"
            # An invalid key has its default value, which must not be compared.
            is_invalid = any(fault.startswith((f"{name} ", f"{key} ", "spec_dirs ")) for fault in faults)
            if not is_invalid and _normalized(folder) in map(_normalized, settings.spec_dirs):
                text = f"{name} must not be a spec directory ({quote(folder)})"
                self.add(nodes.get(key, root), text)


def valid(values: Mapping[str, object]) -> dict[str, Any]:
    """Return VALUES without the invalid values."""
    return {name: value for name, value in values.items() if value is not INVALID}


def _texts(root: yaml.Node, name: str, known: Collection[str]) -> tuple[str, ...]:
    """Return the names of KNOWN in the list at the key NAME of the mapping ROOT."""
    lists = (value.value for key, value in root.value if key.value == name and node_type(value) == "list")
    return tuple(
        item.value for items in lists for item in items if node_type(item) == "text" and item.value in known
    )


def _options(vendor: str) -> tuple[Key, ...]:
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
