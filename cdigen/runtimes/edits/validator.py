"""Plan the keys of NRI's default validator, which rejects containers while cdigen's plugin is absent.

The validator is a part of the runtime and is off by default. It runs after all plugins. It rejects each
container for which the runtime did not call a required plugin. Sources: containerd docs/NRI.md, "Default
Validator"; containerd/nri plugins/default-validator; cri-o internal/config/nri.
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

# The name of the plugin. Names with an index (20-cdigen) match too (default-validator, Validate).
PLUGIN = "cdigen"
_IS_PLUGIN = re.compile(rf"(?:[0-9]{{2}}-)?{PLUGIN}")
# The default name of the annotation with which a pod starts without the required plugins. The domain is that
# of NRI's own annotations (required-plugins.noderesource.dev).
TOLERATION = "tolerate-missing-plugins.noderesource.dev"
# The key in ``RuntimeSettings.source`` for the file that sets the keys of the validator last.
SOURCE = "nri_validator"
_TYPES = {bool: "true or false", list: "a list of texts", str: "a text"}


@frozen
class ValidatorKeys:
    """The usual name of a runtime, and the names of the validator's table and keys in its configuration."""

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
    """Return the error for a RELEASE without a validator; FIRST is the first release with a validator."""
    return ConfigError(
        f"{release} has no validator for NRI plugins, so it cannot require a plugin",
        hint=f"install {first} or newer, or omit --nri-required",
    )


def requiring(
    settings: RuntimeSettings,
    documents: Mapping[str, dict[str, Any]],
    names: ValidatorKeys,
    *,
    is_release_known: bool,
) -> tuple[RuntimeSettings, tuple[DesiredKey, ...], tuple[Finding, ...]]:
    """Return the changes with which the validator in DOCUMENTS requires the plugin.

    DOCUMENTS are in rising priority. The first part of the result is SETTINGS with the document that sets the
    validator last (``SOURCE``). The second part is the keys to set. If there are keys to set, the third part
    is a finding about the consequences. Plugins that are already required stay required. Raises ConfigError
    if a key has a type that the runtime does not accept.
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
        DesiredKey(path=(*names.table, key), value=value) for key, present, value in rows if present != value
    )
    if not wanted:
        return settings, (), ()
    text = (
        f"from its next restart, {names.runtime} starts no container, not even for system pods, while a "
        f"required NRI plugin ({', '.join(map(shown, required))}) is absent; pods with the annotation "
        f'{shown(toleration or TOLERATION)}: "true" start nevertheless'
    )
    if not is_release_known:
        text = f"{text} (the installed release is unknown, and older releases ignore these keys)"
    warning = Finding(severity="warning", rule="nri-required", path=names.runtime, message=text)
    return settings, wanted, (warning,)


def _checked(table: dict[str, Any], key: str, kind: type, path: str, default: Any) -> Any:
    """Return the value in TABLE at KEY, which must have the type KIND; DEFAULT if KEY is missing."""
    value = table.get(key)
    if value is None:
        return default
    is_good = type(value) is kind
    if is_good and kind is list:
        is_good = all(isinstance(item, str) for item in value)
    if not is_good:
        raise broken(path, f"is wrong: {key} is not {_TYPES[kind]}")
    return value
