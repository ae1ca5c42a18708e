"""``requiring``: the keys that make NRI's default validator refuse containers while the plugin is away.

The validator is a part of the runtime, off by default; it checks a container after all plugins were called.
It refuses each container for which a required plugin was not called. Sources: containerd
docs/NRI.md, "Default Validator"; containerd/nri plugins/default-validator; cri-o internal/config/nri.
"""

from __future__ import annotations

import re

from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.model.findings import Finding
from cdigen.runtimes.documents import DesiredKey, broken, lookup
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cdigen.runtimes.settings.config_files import RuntimeSettings

# The plugin's name; names with an index (20-cdigen) match as well (default-validator, Validate).
PLUGIN = "cdigen"
_IS_PLUGIN = re.compile(rf"(?:[0-9]{{2}}-)?{PLUGIN}")
# If none is set: in the domain of NRI's own annotations (required-plugins.noderesource.dev).
TOLERATION = "tolerate-missing-plugins.noderesource.dev"
# The key in ``RuntimeSettings.source`` of the file that sets the validator's keys last.
SOURCE = "nri_validator"
_TYPES = {bool: "true or false", list: "a list of texts", str: "a text"}


@frozen
class ValidatorKeys:
    """A runtime's usual name, and its names for the validator's table and the keys in it."""

    runtime: str
    table: tuple[str, ...]
    enable: str
    required: str
    toleration: str


CONTAINERD = ValidatorKeys(
    runtime="containerd",
    table=("plugins", "io.containerd.nri.v1.nri", "default_validator"),
    enable="enable",
    required="required_plugins",
    toleration="tolerate_missing_plugins_annotation",
)
CRIO = ValidatorKeys(
    runtime="CRI-O",
    table=("crio", "nri", "default_validator"),
    enable="nri_enable_default_validator",
    required="nri_validator_required_plugins",
    toleration="nri_validator_tolerate_missing_plugins_annotation",
)


def missing(release: str, first: str) -> ConfigError:
    """Return the error for a RELEASE without a validator; FIRST is the first release with one."""
    return ConfigError(
        f"{release} has no validator of NRI plugins, so that it cannot be made to require one",
        hint=f"install {first} or newer, or omit --nri-required",
    )


def requiring(
    settings: RuntimeSettings,
    documents: Mapping[str, dict[str, Any]],
    names: ValidatorKeys,
    *,
    is_release_known: bool,
) -> tuple[RuntimeSettings, tuple[DesiredKey, ...], tuple[Finding, ...]]:
    """Return the changes that make the validator of DOCUMENTS, priority rising, require the plugin.

    These are SETTINGS with the document that sets the validator last (``SOURCE``), the keys to set, and a
    finding about the consequences; no finding without a key. Plugins that are required already
    stay so. ConfigError: a key has a type that the runtime does not accept.
    """
    enabled, toleration = False, ""
    listed: tuple[str, ...] = ()
    for path, document in documents.items():
        table = lookup(document, names.table)
        if table is None:
            continue
        if not isinstance(table, dict):
            raise broken(path, f"is wrong: {names.table[-1]} is not a table")
        enabled = _checked(table, names.enable, bool, path, enabled)
        listed = tuple(_checked(table, names.required, list, path, listed))
        toleration = _checked(table, names.toleration, str, path, toleration)
        if not table.keys().isdisjoint({names.enable, names.required, names.toleration}):
            settings = replace(settings, set_by=(*settings.set_by, (SOURCE, path)))
    required = listed if any(map(_IS_PLUGIN.fullmatch, listed)) else (*listed, PLUGIN)
    rows = (
        (names.enable, enabled, True),
        (names.required, listed, required),
        (names.toleration, toleration, toleration or TOLERATION),
    )
    wanted = tuple(
        DesiredKey(path=(*names.table, key), value=value) for key, now, value in rows if now != value
    )
    if not wanted:
        return settings, (), ()
    text = (
        f"from its next restart on, {names.runtime} starts no container, system pods included, while one of "
        f"its NRI plugins is away: {', '.join(map(shown, required))}; pods with the annotation "
        f'{shown(toleration or TOLERATION)}: "true" start all the same'
    )
    if not is_release_known:
        text = f"{text} (the installed release is unknown, and older ones ignore all of this)"
    warning = Finding(severity="warning", rule="nri-required", path=names.runtime, message=text)
    return settings, wanted, (warning,)


def _checked(table: dict[str, Any], key: str, kind: type, path: str, default: Any) -> Any:
    """Return the value in TABLE at KEY, of the type KIND, or DEFAULT if there is none."""
    value = table.get(key)
    if value is None:
        return default
    is_good = type(value) is kind
    if is_good and kind is list:
        is_good = all(isinstance(item, str) for item in value)
    if not is_good:
        raise broken(path, f"is wrong: {key} is not {_TYPES[kind]}")
    return value
