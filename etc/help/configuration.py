"""Generate the JSON schema and etc/config.yaml from ``cdigen.config.keys``; ``TABLES`` are for its page."""

from __future__ import annotations

import json

from cdigen import DOCUMENTATION, page_url
from cdigen.config.keys import (
    DAEMON_KEYS,
    DEVICES_KEYS,
    EXCLUDE_KEYS,
    HEALTH_KEYS,
    KEYS,
    PAGE_KEYS,
    PROFILE_KEYS,
)
from cdigen.config.service_keys import (
    ALLOW_KEYS,
    GPU_KIND_KEYS,
    KUBELET_KEYS,
    NRI_KEYS,
    RESOURCE_KEYS,
    SHARED_MEMORY_KEYS,
    SHARING_KEYS,
)
from cdigen.config.settings import (
    AllowRule,
    DaemonConfig,
    DevicesConfig,
    GpuKind,
    HealthConfig,
    KubeletConfig,
    NriConfig,
    PageConfig,
    ResourceRow,
    Settings,
    SharedMemory,
    SharingRow,
)
from cdigen.config.types import VENDOR_OPTIONS, Key, ListOf, Rows, Scalar, Table
from cdigen.model.profile import Profile
from cdigen.vendors.context import DeviceFilter
from cdigen.vendors.registry import VENDORS, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The assigned characters of Unicode for which str.isprintable is false (a test compares them).
_UNPRINTABLE = (
    r"\u0000-\u001f\u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u1680\u180e"
    r"\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ud800-\uf8ff\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001-\U000e007f"
    "\U000f0000-\U0010fffd"
)
_DEFINITIONS = {
    "path": {
        "description": "An absolute path without '.' and '..', of printable characters: no control or format "
        "character, no space except U+0020, no private-use character. cdigen also rejects characters that "
        "Unicode has not assigned.",
        "type": "string",
        "pattern": "^/",
        "not": {"pattern": rf"/\.{{1,2}}(?:/|$)|[{_UNPRINTABLE}]"},
    },
    "vendor": {"enum": list(VENDORS)},
}
# The tables of docs/reference/configuration.md: the path of the keys in the file, the head of the first
# column, the keys, the class with the defaults.
TABLES: dict[str, tuple[str, str, tuple[Key, ...], type]] = {
    "keys": ("", "key", KEYS, Settings),
    "devices": ("devices.", "key of `devices`", DEVICES_KEYS, DevicesConfig),
    "exclude": ("devices.exclude.", "key of a row of `exclude`", EXCLUDE_KEYS, DeviceFilter),
    "profiles": ("profiles.", "key of a profile", PROFILE_KEYS, Profile),
    "daemon": ("daemon.", "key of `daemon`", DAEMON_KEYS, DaemonConfig),
    "health": ("health.", "key of `health`", HEALTH_KEYS, HealthConfig),
    "page": ("page.", "key of `page`", PAGE_KEYS, PageConfig),
    "nri": ("nri.", "key of `nri`", NRI_KEYS, NriConfig),
    "allow": ("nri.allow.", "key of a row of `allow`", ALLOW_KEYS, AllowRule),
    "gpu_kinds": ("nri.gpu_kinds.", "key of a row of `gpu_kinds`", GPU_KIND_KEYS, GpuKind),
    "kubelet": ("kubelet.", "key of `kubelet`", KUBELET_KEYS, KubeletConfig),
    "resources": ("kubelet.resources.", "key of a row of `resources`", RESOURCE_KEYS, ResourceRow),
    "sharing": ("kubelet.sharing.", "key of a row of `sharing`", SHARING_KEYS, SharingRow),
    "shared_memory": ("kubelet.shared_memory.", "key of `shared_memory`", SHARED_MEMORY_KEYS, SharedMemory),
}


def schema() -> str:
    """Return schemas/config.schema.json."""
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{DOCUMENTATION}/schemas/config.schema.json",
        "title": "Configuration of cdigen: /etc/cdigen/config.yaml",
        "description": "For editors; generated from cdigen/config/keys.py, which is also the source of the "
        "reader. An empty file is valid, because every key has a default.",
        **_mapping(KEYS, Settings),
        "$defs": _DEFINITIONS,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def example() -> str:
    """Return etc/config.yaml: every key with its default or an example, as a comment."""
    lines = [
        "# The configuration of cdigen, with its defaults. The meaning of each key:",
        f"# {page_url('reference/configuration')}",
        "",
    ]
    for key in KEYS:
        if isinstance(key.type, Table) and key.type.keys:
            lines.append(f"#{key.name}:")
            lines += [f"#  {_line(one, key.type.cls)}" for one in key.type.keys]
        else:
            lines.append(f"#{_line(key, Settings)}")
    return "\n".join(lines) + "\n"


def _line(key: Key, cls: type) -> str:
    """Return KEY with its default of the class CLS, or with an example if the default is no value."""
    line = f"{key.name}: {_yaml(key, cls)}"
    if _default(key, cls) == "":
        return f"{line}  # an example; default: {key.default.replace('`', '')}"
    return line


def _mapping(keys: tuple[Key, ...], cls: type) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for key in keys:
        rule = _typed(key.type)
        default = _default(key, cls)
        if not key.is_required and not key.default:
            rule["default"] = dict(default) if rule.get("type") == "object" else default
        properties[key.name] = {"description": key.text.replace("`", ""), **rule}
    made: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
    if required := [key.name for key in keys if key.is_required]:
        made["required"] = required
    return made


def _typed(type_: Scalar | ListOf | Table | Rows) -> dict[str, Any]:
    if isinstance(type_, Scalar):
        return dict(type_.schema)
    if isinstance(type_, Table):
        return _vendor_options() if type_ is VENDOR_OPTIONS else _mapping(type_.keys, type_.cls)
    made: dict[str, Any] = {"type": "array", **({"minItems": type_.at_least} if type_.at_least else {})}
    if isinstance(type_, Rows):
        return {**made, "items": _mapping(type_.keys, type_.cls)}
    return {**made, "uniqueItems": True, "items": _typed(type_.item)}


def _vendor_options() -> dict[str, Any]:
    options = {
        vendor: {
            one.name: {
                "description": one.help,
                "type": "boolean" if isinstance(one.default, bool) else "string",
                "default": one.default,
            }
            for one in load(vendor).OPTIONS
        }
        for vendor in VENDORS
    }
    rows = {
        vendor: {"type": "object", "additionalProperties": False, "properties": properties}
        for vendor, properties in options.items()
    }
    return {"type": "object", "additionalProperties": False, "properties": rows}


def _default(key: Key, cls: type) -> Any:
    """Return the default of KEY as a JSON value, or None if CLS has no default for KEY."""
    default = vars(cls)["_defaults"].get(key.field or key.name)
    if isinstance(default, tuple):
        return list(default)
    # The number 5.0 is written as 5.
    return int(default) if isinstance(default, float) and default.is_integer() else default


def shown_default(key: Key, cls: type) -> str:
    """Return the default of KEY of the class CLS as Markdown."""
    return "required" if key.is_required else key.default or _shown(_default(key, cls))


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"`[{', '.join(map(str, value))}]`" if value else "none"
    return (
        str(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else f"`{_plain(value)}`"
    )


def _yaml(key: Key, cls: type) -> str:
    value = _default(key, cls)
    if key.example or value is None:
        return key.example or "{}"
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else _plain(value)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
