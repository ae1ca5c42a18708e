"""Compare the settings of a command that writes specs with the settings of a running daemon.

If the settings differ, the daemon would undo the write. status.json contains the settings of the daemon
(``maintained_document``). ``generate --write`` first compares its own settings with the daemon's settings
(``refuse_other_settings``).
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress

from cdigen.cli.shared import discovery_options, options
from cdigen.cli.shared.spec_options import explicit_profile_settings, explicit_settings, selected_profiles
from cdigen.host.root import shown
from cdigen.model.errors import CdigenError, ConfigError, SpecError
from cdigen.model.names import spec_file_name
from cdigen.model.profile import CAPABILITY_CLASSES, DEFAULT
from cdigen.value import fields, frozen, replace
from cdigen.vendors.registry import vendor_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from cdigen.config import Settings
    from cdigen.host.root import Root
    from cdigen.pipeline.generate import GeneratedSpec

# The keys that determine the content of a spec, except ``profiles``.
_KEYS = (
    "target", "driver_root", "dev_root", "container_driver_root", "library_search_paths",
    "binary_search_paths", "config_search_paths", "mode", "nvml", "mps_pipe_dir", "mps_uid", "hook",
    "hook_python", "nvidia_hook", "copy_driver_files", "vendor_options", "nri",
)  # fmt: skip
# Field of a profile -> configuration key, if the names differ.
_PROFILE_KEYS = {"device_class": "class"}
# Configuration key -> command-line option, if the names differ.
_OPTIONS = {
    "names": "--naming",
    "library_search_paths": "--library-search-path",
    "binary_search_paths": "--binary-search-path",
    "config_search_paths": "--config-search-path",
}
# The daemon reads a changed configuration within this time. It needs more time only if a vendor's library is
# slow.
_RELOAD_S = 15.0
_POLL_S = 0.1
# Texts that need no quotes in YAML. _WORDS are the exceptions, because YAML reads these words as true, false
# or null.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9/._-]*")
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "y", "n", "null"))


@frozen
class _Difference:
    """A key with a different value in the daemon's settings.

    ``value`` is the value of this command. ``profile`` is empty for a key outside ``profiles``.
    """

    key: str
    value: object
    profile: str = ""
    device_class: str = ""


def maintained_document(arguments: Namespace, host: Root, settings: Settings) -> dict[str, Any]:
    """Return the specs and settings that a daemon with ARGUMENTS and SETTINGS maintains, as JSON.

    Paths are paths on the host. ``command_line`` lists the options that override the configuration. Raises
    ConfigError if an option is invalid.
    """
    return {
        "directory": _directory(arguments, host, settings),
        "vendors": list(discovery_options.vendor_names(arguments, settings)),
        "kinds": list(options.kinds(arguments)),
        "configuration": _of_host(host, options.configuration_file(arguments)),
        "command_line": sorted(
            map(_option, {*explicit_settings(arguments), *explicit_profile_settings(arguments)})
        ),
        "settings": _document(arguments, settings),
    }


def refuse_other_settings(arguments: Namespace, host: Root, settings: Settings) -> None:
    """Raise SpecError if a running daemon maintains specs of this command with different settings."""
    is_plain = not explicit_settings(arguments) and not explicit_profile_settings(arguments)
    deadline_s = time.monotonic() + _RELOAD_S
    while (error := _conflict(arguments, host, settings)) is not None:
        # If no option causes the conflict, either the configuration has just changed, or the daemon uses
        # another configuration file.
        if not is_plain or time.monotonic() > deadline_s:
            raise error
        time.sleep(_POLL_S)


def foreign_conflicts(
    arguments: Namespace, host: Root, settings: Settings, specs: tuple[GeneratedSpec, ...]
) -> dict[str, SpecError]:
    """Return an error for each kind of SPECS whose spec a running daemon would withdraw again.

    For such a kind, the daemon keeps the file of another program. --replace-foreign moves only files in the
    directory of the new specs. Raises StoreError if the list of cdigen's own files cannot be read.
    """
    from cdigen.pipeline.publish import overriding_file  # noqa: PLC0415 - only for --write
    from cdigen.service.status import process_of  # noqa: PLC0415 - likewise

    yielding = [spec for spec in specs if spec.yields]
    status = _status(host, settings) if yielding else {}
    directories = options.spec_directories(arguments, host, settings)
    if (status.get("maintains") or {}).get("directory") != _directory(arguments, host, settings):
        return {}
    state_dir = options.outer_directory(host, settings.state_dir)
    errors: dict[str, SpecError] = {}
    for spec in yielding:
        foreign = overriding_file(spec, directories, state_dir)
        if foreign and os.path.dirname(foreign) != directories[-1]:
            file = shown(f"{directories[-1]}/{spec_file_name(spec.kind)}")
            errors[spec.kind] = SpecError(
                f"{file}: not written: for {spec.kind} the cdigen daemon, {process_of(status)}, keeps "
                f"{shown(foreign)}",
                hint=f"remove {shown(foreign)} if no program writes it any more",
                kind="daemon-settings",
            )
    return errors


def _conflict(arguments: Namespace, host: Root, settings: Settings) -> SpecError | None:
    status = _status(host, settings)
    daemons = status.get("maintains")
    if not isinstance(daemons, dict) or daemons.get("directory") != _directory(arguments, host, settings):
        return None
    try:
        if not _overlap(daemons, arguments, settings):
            return None
        ours = _document(arguments, settings)
        differences = tuple(_differences(daemons["settings"], ours, options.kinds(arguments)))
    except (LookupError, TypeError, AttributeError):
        return None  # a document with another schema
    return _error(arguments, host, settings, status, differences) if differences else None


def _status(host: Root, settings: Settings) -> Mapping[str, Any]:
    """Return the status of the running daemon; an empty mapping without a daemon."""
    from cdigen.cli.shared.daemon_files import run_directories, running_status  # noqa: PLC0415 - only for --write
    from cdigen.service.status import foreign_owner  # noqa: PLC0415 - likewise

    for run_dir in run_directories(host, settings):
        with suppress(CdigenError):
            if foreign_owner(run_dir) is None:
                return running_status(run_dir, host)
    return {}


def _overlap(daemons: Mapping[str, Any], arguments: Namespace, settings: Settings) -> bool:
    """Return whether the daemon and this command have at least one vendor and one kind in common."""
    names = discovery_options.vendor_names(arguments, settings)
    kinds = options.kinds(arguments)
    maintained = daemons.get("kinds") or kinds
    return not {*names}.isdisjoint(daemons.get("vendors") or ()) and (
        not kinds or not {*kinds}.isdisjoint(maintained)
    )


def _document(arguments: Namespace, settings: Settings) -> dict[str, Any]:
    """Return the settings of ARGUMENTS and SETTINGS by key, as JSON values."""
    merged = replace(settings, **explicit_settings(arguments))
    document: dict[str, Any] = {key: getattr(merged, key) for key in _KEYS}
    document["nri"] = {"restrict_driver_files": merged.nri.restrict_driver_files}
    document["vendor_options"] = {name: dict(row) for name, row in merged.vendor_options.items()}
    document["profiles"] = [
        {
            _PROFILE_KEYS.get(key, key): getattr(profile, key)
            for key in fields(profile)
            if key != "has_capability_kinds"
        }
        for profile in selected_profiles(arguments, settings)
    ]
    # The conversion turns tuples into lists, as in status.json.
    found: dict[str, Any] = json.loads(json.dumps(document))
    return found


def _differences(
    daemons: Mapping[str, Any], ours: Mapping[str, Any], kinds: tuple[str, ...]
) -> Iterator[_Difference]:
    """Yield the differences between the daemon's settings and OURS for KINDS; empty KINDS mean all kinds."""
    rows = ours["profiles"]
    sources = [_profile_of(kind.partition("/")[2], rows) for kind in kinds]
    # Kinds without a profile use the layout and the hook of the first profile.
    written = [row for row in rows if not kinds or row in sources or (row is rows[0] and None in sources)]
    known = {row["name"]: row for row in daemons["profiles"]}
    # A profile with its own target ignores the target of the configuration.
    own = sources and None not in sources and all(known.get(row["name"], row)["target"] for row in written)
    for key in _KEYS:
        if not _is_same(key, daemons[key], ours[key]) and not (key == "target" and own):
            yield _Difference(key=key, value=ours[key])
    if missing := [row for row in written if row["name"] not in known]:
        yield _Difference(key="profiles", value=[*map(_short, (*daemons["profiles"], *missing))])
    first = daemons["profiles"][0]["name"]
    for row in written:
        daemons_row = known.get(row["name"], row)
        profile = {"profile": row["name"], "device_class": row["class"] if row["name"] != first else ""}
        for key in row:
            default = ours["target"] if key == "target" else None
            if not _is_same(key, row[key] or default, daemons_row[key] or default):
                yield _Difference(key=key, value=row[key], **profile)


def _profile_of(device_class: str, rows: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the profile in ROWS for DEVICE_CLASS, or None if no profile has the class (such as ``gds``)."""
    by_class = {f"{row['class']}-{word}": row for row in rows for word, _ in CAPABILITY_CLASSES}
    return (by_class | {row["class"]: row for row in rows}).get(device_class)


def _is_same(key: str, one: Any, other: Any) -> bool:
    """Return whether two values of KEY result in equal specs.

    Two lists of targets result in equal specs if the strictest target of each list is the same.
    """
    if key != "target":
        return bool(one == other)
    from cdigen.runtimes import targets  # noqa: PLC0415 - only with a target

    try:
        first, second = (tuple(map(targets.parse, texts)) for texts in (one or (), other or ()))
    except ConfigError:
        return False
    return targets.strictest(first) == targets.strictest(second)


def _short(row: Mapping[str, Any]) -> dict[str, object]:
    """Return the required keys of a profile, and the keys whose values differ from the defaults."""
    defaults = json.loads(json.dumps({key: getattr(DEFAULT, key) for key in fields(DEFAULT)}))
    return {
        key: value for key, value in row.items() if key in {"name", "class"} or defaults.get(key) != value
    }


def _error(
    arguments: Namespace,
    host: Root,
    settings: Settings,
    status: Mapping[str, Any],
    differences: tuple[_Difference, ...],
) -> SpecError:
    from cdigen.service.status import process_of  # noqa: PLC0415 - only with a daemon

    daemons = status["maintains"]
    file = str(daemons.get("configuration"))
    # The key ``hook`` of the configuration is the path of the hook. The option --hook sets the key ``hook``
    # of profiles.
    changed = [_option(one.key) for one in differences if one.profile or one.key != "hook"]
    overridden = [option for option in changed if option in (daemons.get("command_line") or ())]
    if overridden:
        hint = f"change the option {overridden[0]} of 'cdigen run', which overrides {shown(file)}"
    else:
        lines = _lines(differences, daemons["settings"]["profiles"])
        hint = f"set {' and '.join(lines)} in {shown(file)}"
    files = _files(arguments, host, settings, status, differences)
    objects = "this file" if len(files) == 1 else "these files" if files else "the specs in this directory"
    where = ", ".join(map(shown, files or [_directory(arguments, host, settings)]))
    keys = ", ".join(dict.fromkeys(one.key for one in differences))
    return SpecError(
        f"{where}: not written: the cdigen daemon, {process_of(status)}, maintains {objects} with other "
        f"settings ({keys})",
        hint=hint,
        kind="daemon-settings",
    )


def _lines(differences: Iterable[_Difference], profiles: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines that the daemon's configuration needs; PROFILES are the daemon's profiles."""
    by_profile: dict[str, dict[str, object]] = {}
    for one in differences:
        if one.profile:
            by_profile.setdefault(one.profile, {})[one.key] = one.value
        else:
            yield f"'{one.key}: {flow(one.value)}'"
    for profile, values in by_profile.items():
        if [row["name"] for row in profiles] == [DEFAULT.name]:
            row = {**_short(profiles[0]), **values}
            yield f"'profiles: {flow([row])}'"
        else:
            pairs = ", ".join(f"{key}: {flow(value)}" for key, value in values.items())
            yield f"'{pairs}' in the profile {profile!r}"


def _files(
    arguments: Namespace,
    host: Root,
    settings: Settings,
    status: Mapping[str, Any],
    differences: tuple[_Difference, ...],
) -> list[str]:
    """Return the files of the daemon that this command would write.

    If the daemon has none of these files, the result is the files for the kinds of --kind.
    """
    directory = _directory(arguments, host, settings)
    names, selected = discovery_options.vendor_names(arguments, settings), options.kinds(arguments)
    kinds = [str(row.get("kind")) for row in status["specs"] if isinstance(row, dict)]
    kinds = [kind for kind in kinds if kind in selected or not selected] or [*selected]
    kinds = [kind for kind in kinds if vendor_of(kind, names)]
    classes = {one.device_class for one in differences}
    if "" not in classes:
        kinds = [kind for kind in kinds if kind.partition("/")[2] in classes] or kinds
    return [f"{directory}/{spec_file_name(kind)}" for kind in kinds]


def flow(value: object) -> str:
    """Return VALUE as YAML in one line; VALUE is a text, number, Boolean, list or mapping."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(flow, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {flow(each)}' for key, each in value.items())}}}"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value)


def _directory(arguments: Namespace, host: Root, settings: Settings) -> str:
    """Return the path on the host of the directory for new specs, with all links resolved."""
    return _of_host(host, os.path.realpath(options.spec_directories(arguments, host, settings)[-1]))


def _option(key: str) -> str:
    return _OPTIONS.get(key, f"--{key.replace('_', '-')}")


def _of_host(host: Root, path: str) -> str:
    """Return the path on HOST for PATH of this machine; return PATH unchanged if it is outside the root."""
    outer = host.outer.rstrip("/")
    return path.removeprefix(outer) if outer and path.startswith(f"{outer}/") else path
