"""``requiring``: the keys that make NRI's default validator refuse containers while the plugin is away.

The validator is a part of the runtime, off by default; it judges a container after all plugins had their say.
With a required plugin it refuses each container that this plugin was not asked about. Sources: containerd
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

# What the plugin is called; names with an index (20-cdigen) are taken as well (default-validator, Validate).
PLUGIN = "cdigen"
_IS_PLUGIN = re.compile(rf"(?:[0-9]{{2}}-)?{PLUGIN}")
# Where none is set: of the domain that NRI's own annotations have (required-plugins.noderesource.dev).
TOLERATION = "tolerate-missing-plugins.noderesource.dev"
# What ``RuntimeSettings.source`` calls the file that sets the validator's keys last.
SOURCE = "nri_validator"
_TYPES = {bool: "true or false", list: "a list of texts", str: "a text"}


@frozen
class ValidatorKeys:
    """What a runtime, as people call it, calls the validator's table and the keys in it."""

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
    """Return the error for a RELEASE that has no validator; FIRST is the first that has."""
    return ConfigError(
        f"{release} has no validator of NRI plugins, so that it cannot be made to require one",
        hint=f"install {first} or newer, or leave --nri-required away",
    )


def requiring(
    settings: RuntimeSettings,
    documents: Mapping[str, dict[str, Any]],
    names: ValidatorKeys,
    *,
    is_release_known: bool,
) -> tuple[RuntimeSettings, tuple[DesiredKey, ...], tuple[Finding, ...]]:
    """Return what makes the validator of DOCUMENTS, in the order in which they count, require the plugin.

    These are SETTINGS that know which document has the last word on the validator (``SOURCE``), the keys to
    set, and what whoever sets them must know; no finding without a key. Plugins that are required already
    stay so. ConfigError: a key is of another type than the runtime takes.
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
        text = f"{text} (which release is here is not known, and older ones pass over all of this)"
    warning = Finding(severity="warning", rule="nri-required", path=names.runtime, message=text)
    return settings, wanted, (warning,)


def _checked(table: dict[str, Any], key: str, kind: type, path: str, default: Any) -> Any:
    """Return what TABLE has at KEY, of the type KIND, or DEFAULT where it has nothing."""
    value = table.get(key)
    if value is None:
        return default
    is_good = type(value) is kind
    if is_good and kind is list:
        is_good = all(isinstance(item, str) for item in value)
    if not is_good:
        raise broken(path, f"is wrong: {key} is not {_TYPES[kind]}")
    return value
