"""One configuration file: its keys and what they must be.

The rules are those of ``schemas/config.schema.json``, written in Python because jsonschema takes
longer to import than the whole command takes to run; a test holds the two against each other.
Every problem is reported with its place.
"""

from __future__ import annotations

from cdigen.config import nodes
from cdigen.config.settings import (
    ANNOTATIONS,
    DEFAULT_ACTIONS,
    GPU_CAPABILITIES,
    MODES,
    SOURCES,
    STALE_SPECS,
    UNSUPPORTED_CDI,
    AllowRule,
    DaemonConfig,
    GpuKind,
    NriConfig,
    Settings,
)
from cdigen.config.tree import NO_CONFIGURATION, NoTreeError, compose, fault, place_of
from cdigen.model.errors import ConfigError
from cdigen.model.profile import CAPABILITIES, DEFAULT, HOOKS, LAYOUTS, NAMINGS, STEPS, Profile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any

    import yaml

    from cdigen.model.findings import Finding

    Reader = Callable[[yaml.Node], object]

MAX_SIZE = 1 << 20
MAX_PROBLEMS = 10
_HINT = "see docs/configuration.md"


def parse(data: bytes, *, file: str, vendors: Collection[str]) -> Settings:
    """Return the settings in the text of a configuration file; VENDORS are the names known.

    Raises ConfigError that names every problem with FILE and its line.
    """
    settings, found = read(data, file=file, vendors=vendors)
    if found:
        raise as_error(found)
    return settings


def read(data: bytes, *, file: str, vendors: Collection[str]) -> tuple[Settings, tuple[Finding, ...]]:
    """Return the settings by those keys that are right, and every problem of the others with its place."""
    if len(data) > MAX_SIZE:
        wrong = fault(file, f"the file is larger than {MAX_SIZE} bytes", None, hint=NO_CONFIGURATION)
        return Settings(), (wrong,)
    try:
        root = compose(data, file)
    except NoTreeError as error:
        return Settings(), (error.finding,)
    return (Settings(), ()) if root is None else _Reading(file, vendors).settings(root)


def as_error(found: tuple[Finding, ...]) -> ConfigError:
    """Return the error that tells of all problems FOUND in a configuration, each with its place."""
    more = len(found) - MAX_PROBLEMS
    said = [format_fault(one) for one in found[:MAX_PROBLEMS]]
    said += [f"and {more} more"] if more > 0 else []
    return ConfigError("; ".join(said), hint=found[0].hint, kind="config")


def format_fault(found: Finding) -> str:
    """Return FOUND as compilers tell of such: file, line, column and what is wrong."""
    return ":".join((found.path, *map(str, found.place or ()))) + f": {found.message}"


class _Reading:
    """One file being read: gathers problems with their places."""

    def __init__(self, file: str, vendors: Collection[str]) -> None:
        self._file = file
        self._vendors = vendors
        self._named: tuple[str, ...] = ()
        self._problems: list[Finding] = []
        self._keys: dict[str, Reader] = {
            "vendors": lambda node: nodes.items(node, lambda item: nodes.word(item, vendors)),
            "spec_dirs": lambda node: nodes.items(node, nodes.path, at_least=1),
            "state_dir": nodes.path,
            "driver_root": nodes.path,
            "dev_root": nodes.path,
            "container_driver_root": nodes.path,
            "library_search_paths": lambda node: nodes.items(node, nodes.path),
            "binary_search_paths": lambda node: nodes.items(node, nodes.path),
            "config_search_paths": lambda node: nodes.items(node, nodes.path),
            "mode": lambda node: nodes.word(node, MODES),
            "nvml": nodes.nvml,
            "create_nodes": nodes.flag,
            "mps_pipe_dir": nodes.path,
            "mps_uid": nodes.number,
            "hook": nodes.path,
            "hook_python": nodes.path,
            "nvidia_hook": nodes.path,
            "view_copies": nodes.flag,
            "vendor_options": self._vendor_options,
            "profiles": self._profiles,
            "daemon": self._daemon,
            "nri": self._nri,
        }
        self._nri_keys: dict[str, Reader] = {
            **_NRI,
            "allow": lambda node: self._rows(node, _ALLOWANCE, AllowRule, "namespaces", "allow: "),
            "gpu_kinds": lambda node: self._rows(node, _GPU_KIND, GpuKind, "kind", "gpu_kinds: "),
        }

    def settings(self, root: yaml.Node) -> tuple[Settings, tuple[Finding, ...]]:
        """Return the settings of the document ROOT, by what is right in it, and all problems."""
        if nodes.form(root) != "mapping":
            self._add(root, "the file is not a mapping of keys to values")
            return Settings(), self._found()
        self._named = nodes.texts_of(root, "vendors", self._vendors)
        settings = Settings(**self._mapping(root, self._keys, ""))  # type: ignore[arg-type]  # each reader returns its field's type
        # Where a key is wrong, its default stands for it: that is nothing to compare.
        if not self._problems:
            self._keep_apart(root, settings)
        return settings, self._found()

    def _found(self) -> tuple[Finding, ...]:
        return tuple(sorted(self._problems, key=lambda finding: finding.place or (0, 0)))

    def _keep_apart(self, root: yaml.Node, settings: Settings) -> None:
        """Refuse a spec directory as a place of our own: each cycle would change it and cause the next."""
        own = {
            "state_dir": settings.state_dir,
            "daemon": settings.daemon.run_dir,
            "nri": settings.nri.run_dir,
        }
        lines = {key.value: value for key, value in root.value}
        for key, folder in own.items():
            if _usual(folder) in map(_usual, settings.spec_dirs):
                name = key if key == "state_dir" else f"{key}: run_dir"
                self._add(
                    lines.get(key, root),
                    f"{name} must not be a spec directory, as {nodes.quoted(folder)} is",
                )

    def _mapping(self, root: yaml.Node, keys: dict[str, Reader], where: str) -> dict[str, object]:
        """Return the values of the mapping ROOT by KEYS, those that are right, and note what is wrong."""
        values: dict[str, object] = {}
        seen: set[str] = set()
        for key, value in root.value:
            name = key.value if nodes.form(key) == "text" else ""
            if not name:
                self._add(key, f"{where}a key must be a text, not {nodes.kind(key)}")
            elif name in seen:
                self._add(key, f"{where}the key {name!r} is given a second time")
            elif name not in keys:
                self._add(key, f"{where}unknown key {nodes.quoted(name)}{_meant(name, keys)}")
            else:
                seen.add(name)
                try:
                    values[name] = keys[name](value)
                except nodes.WrongError as wrong:
                    for one in (wrong, *wrong.others):
                        self._add(one.node, f"{where}{name} {one}")
        return values

    def _profiles(self, node: yaml.Node) -> tuple[Profile, ...]:
        """Return the profiles of a list; two of one name or one class are wrong."""
        if nodes.form(node) != "list":
            raise nodes.WrongError(node, f"must be a list, not {nodes.kind(node)}")
        if not node.value:
            raise nodes.WrongError(node, "must not be empty")
        profiles: list[Profile] = []
        for item in node.value:
            if nodes.form(item) != "mapping":
                self._add(item, f"a profile must be a mapping, not {nodes.kind(item)}")
                continue
            before = len(self._problems)
            values = self._mapping(item, {**_PROFILE, "names": self._names}, "profile: ")
            for name in ("name", "class"):
                if _lacks(item, name):
                    self._add(item, f"profile: the key {name!r} is missing")
            if len(self._problems) > before:
                continue
            profile = Profile(device_class=values.pop("class"), **values)  # type: ignore[arg-type]
            self._tell_apart(item, profile, profiles)
            profiles.append(profile)
        return tuple(profiles) or (DEFAULT,)

    def _names(self, node: yaml.Node) -> tuple[str, ...]:
        return nodes.items(node, self._naming, at_least=1)

    def _naming(self, node: yaml.Node) -> str:
        """Return a naming: one of the tree's vendors, or of one of another package that ``vendors`` names."""
        from cdigen.vendors.registry import has_naming  # noqa: PLC0415 - hardly anybody names devices

        is_own = isinstance(node.value, str) and has_naming(node.value, self._named)
        return nodes.word(node, (*NAMINGS, node.value) if is_own else NAMINGS)

    def _tell_apart(self, node: yaml.Node, profile: Profile, others: list[Profile]) -> None:
        for other in others:
            if profile.name == other.name:
                self._add(node, f"a second profile is named {profile.name!r}")
            elif profile.device_class == other.device_class:
                self._add(node, f"a second profile has the class {profile.device_class!r}")

    def _daemon(self, node: yaml.Node) -> DaemonConfig:
        """Return the times and places of the daemon in a mapping."""
        if nodes.form(node) != "mapping":
            raise nodes.WrongError(node, f"must be a mapping, not {nodes.kind(node)}")
        return DaemonConfig(**self._mapping(node, _DAEMON, "daemon: "))  # type: ignore[arg-type]  # likewise

    def _vendor_options(self, node: yaml.Node) -> Mapping[str, object]:
        """Return the options of a mapping of vendors to theirs."""
        if nodes.form(node) != "mapping":
            raise nodes.WrongError(node, f"must be a mapping, not {nodes.kind(node)}")
        named = [str(key.value) for key, _ in node.value]
        known = dict.fromkeys((*self._vendors, *(name for name in named if name in self._vendors)))
        return self._mapping(node, {name: self._options_of(name) for name in known}, "vendor_options: ")

    def _options_of(self, vendor: str) -> Reader:
        def read(node: yaml.Node) -> Mapping[str, object]:
            from cdigen.vendors.registry import load  # noqa: PLC0415 - only where options are given

            if nodes.form(node) != "mapping":
                raise nodes.WrongError(node, f"must be a mapping, not {nodes.kind(node)}")
            keys: dict[str, Reader] = {
                option.name: nodes.flag if isinstance(option.default, bool) else nodes.line
                for option in load(vendor).OPTIONS
            }
            return self._mapping(node, keys, f"vendor_options: {vendor}: ")

        return read

    def _nri(self, node: yaml.Node) -> NriConfig:
        """Return what a mapping says of the NRI plugin."""
        if nodes.form(node) != "mapping":
            raise nodes.WrongError(node, f"must be a mapping, not {nodes.kind(node)}")
        return NriConfig(**self._mapping(node, self._nri_keys, "nri: "))  # type: ignore[arg-type]  # likewise

    def _rows(
        self, node: yaml.Node, keys: dict[str, Reader], cls: type, required: str, where: str
    ) -> tuple[Any, ...]:
        """Return the mappings of a list, each as a CLS, which has to have the key REQUIRED."""
        if nodes.form(node) != "list":
            raise nodes.WrongError(node, f"must be a list, not {nodes.kind(node)}")
        rows = []
        for item in node.value:
            if nodes.form(item) != "mapping":
                self._add(item, f"nri: {where}must be a list of mappings, not of {nodes.kind(item)}")
                continue
            before = len(self._problems)
            values = self._mapping(item, keys, f"nri: {where}")
            if _lacks(item, required):
                self._add(item, f"nri: {where}the key {required!r} is missing")
            elif len(self._problems) == before:
                rows.append(cls(**values))
        return tuple(rows)

    def _add(self, node: yaml.Node, format_fault: str) -> None:
        place = place_of(node.start_mark)
        self._problems.append(fault(self._file, format_fault, place, hint=_HINT))


def _lacks(mapping: yaml.Node, name: str) -> bool:
    return all(key.value != name for key, _ in mapping.value)


def _usual(folder: str) -> str:
    """Return FOLDER without the different ways in which it can be written: /var/run is a link to /run."""
    parts = [part for part in folder.split("/") if part]
    return "/".join(parts[1:] if parts[:2] == ["var", "run"] else parts)


def _meant(name: str, known: dict[str, Reader]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only where something is wrong

    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known) or 'none'}"


_PROFILE: dict[str, Reader] = {
    "name": nodes.class_name,
    "class": nodes.class_name,
    "capabilities": lambda node: nodes.items(node, lambda item: nodes.word(item, CAPABILITIES)),
    "graphics": nodes.flag,
    "x11": nodes.flag,
    "firmware": nodes.flag,
    "sockets": nodes.flag,
    "mps": nodes.flag,
    "compat32": nodes.flag,
    "whole_gpus": nodes.flag,
    "layout": lambda node: nodes.word(node, LAYOUTS),
    "hook": lambda node: nodes.word(node, HOOKS),
    "hook_steps": lambda node: nodes.items(node, lambda item: nodes.word(item, STEPS)),
    "hook_required": lambda node: nodes.items(node, lambda item: nodes.word(item, STEPS)),
}

_DAEMON: dict[str, Reader] = {
    "debounce_s": nodes.seconds,
    "max_delay_s": nodes.seconds,
    "settle_timeout_s": nodes.seconds,
    "backoff_min_s": nodes.seconds,
    "backoff_max_s": nodes.seconds,
    "poll_s": nodes.seconds,
    "resync_s": nodes.seconds,
    "stale_specs": lambda node: nodes.word(node, STALE_SPECS),
    "run_dir": nodes.path,
    "http_port": nodes.port,
}

_NRI: dict[str, Reader] = {
    "management_namespaces": lambda node: nodes.items(node, nodes.namespace),
    "management_kinds": lambda node: nodes.items(node, nodes.kind_pattern),
    "annotations": lambda node: nodes.items(node, lambda item: nodes.word(item, ANNOTATIONS)),
    "default_action": lambda node: nodes.word(node, DEFAULT_ACTIONS),
    "require": nodes.require,
    "unsupported_cdi": lambda node: nodes.word(node, UNSUPPORTED_CDI),
    "socket": nodes.path,
    "index": nodes.index,
    "run_dir": nodes.path,
    "http_port": nodes.port,
}

_ALLOWANCE: dict[str, Reader] = {
    "namespaces": lambda node: nodes.items(node, nodes.namespace, at_least=1),
    "runtime_handlers": lambda node: nodes.items(node, nodes.handler),
    "labels": nodes.labels,
    "sources": lambda node: nodes.items(node, lambda item: nodes.word(item, SOURCES), at_least=1),
    "kinds": lambda node: nodes.items(node, nodes.kind_pattern, at_least=1),
}

_GPU_KIND: dict[str, Reader] = {
    "kind": nodes.gpu_kind,
    "capabilities": lambda node: nodes.items(node, lambda item: nodes.word(item, GPU_CAPABILITIES)),
}
