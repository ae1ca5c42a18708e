"""The checks of the rules for container edits, such as environment, device nodes, mounts and hooks.

docs/reference/findings.md describes each rule.
"""

from __future__ import annotations

from cdigen.cdi.library import NEWEST_RELEASE
from cdigen.cdi.rules.fields import (
    MAX_INT64,
    MAX_UINT32,
    Shape,
    check_boolean,
    check_clean_path,
    check_object,
    check_text,
    check_unbroken,
    check_usual_path,
    integer,
    list_of,
    one_of,
    quote,
    reject,
    wrong_type,
)
from cdigen.cdi.rules.rulebook import finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.cdi.rules.fields import Check
    from cdigen.model.findings import Finding

HOOK_NAMES = ("createContainer", "createRuntime", "poststart", "poststop", "prestart", "startContainer")
# All loaders refuse a device that has no entry in these lists and no intelRdt.
EDIT_LISTS = ("env", "deviceNodes", "netDevices", "hooks", "mounts", "additionalGids")

_MAX_CLOSID = 4095
_BIND_OPTIONS = frozenset(("bind", "rbind"))
_PERMISSIONS = frozenset("rwm")


def check_edits(value: object, path: str, out: list[Finding]) -> bool:
    """Check VALUE, a ``containerEdits`` object; return whether VALUE is an object without errors."""
    good = check_object(value, path, _EDITS, out)
    if isinstance(value, dict):
        _warn_repeated(value, path, out)
    return good


def is_empty(edits: dict[str, object]) -> bool:
    """Return whether EDITS change nothing; all loaders refuse a device with such edits."""
    return not any(edits.get(field) for field in EDIT_LISTS) and edits.get("intelRdt") is None


def check_env_entry(value: object, path: str, out: list[Finding]) -> bool:
    """Check an environment entry (KEY=VALUE); return whether VALUE is valid."""
    if not check_text(value, path, out) or not isinstance(value, str):
        return False
    if value.find("=") < 1:
        return reject(out, "env-syntax", path, f"{quote(value)} is not KEY=VALUE")
    return check_unbroken("env-control-character", value, path, out)


def _permissions(value: object, path: str, out: list[Finding]) -> bool:
    if not isinstance(value, str):
        return wrong_type(value, path, "a text", out)
    if _PERMISSIONS.issuperset(value):
        return True
    if value == "none":
        message = f"all releases up to {NEWEST_RELEASE} refuse {quote(value)}; the next release accepts it"
        return reject(out, "node-permissions", path, message)
    return reject(out, "node-permissions", path, f"{quote(value)} has letters other than r, w and m")


def _closid(value: object, path: str, out: list[Finding]) -> bool:
    if not check_text(value, path, out) or not isinstance(value, str):
        return False
    is_name = value not in (".", "..") and "/" not in value and "\n" not in value
    if value == "/" or (is_name and len(value.encode()) <= _MAX_CLOSID):
        return True
    return reject(out, "rdt-closid", path, f"{quote(value)} is not a file name")


def _removed(_value: object, path: str, out: list[Finding]) -> bool:
    message = "was removed in 1.1.0; libraries from 1.1.0 refuse the file"
    return reject(out, "rdt-removed-field", path, message)


def _interface(value: object, path: str, out: list[Finding]) -> bool:
    if not check_text(value, path, out):
        return False
    return value != "" or reject(out, "net-device-name", path, "is empty")


def _entry(shape: Shape, advise: Check) -> Check:
    """Return the check of a list entry with SHAPE; the check ADVISE has the additional rules.

    A null entry is an error, because it crashes all versions of the loaders.
    """

    def check(value: object, path: str, out: list[Finding]) -> bool:
        if value is None:
            return reject(out, "null-entry", path, "is null, which crashes every loader")
        return check_object(value, path, shape, out) & advise(value, path, out)

    return check


def _advise_node(value: object, path: str, out: list[Finding]) -> bool:
    if isinstance(value, dict):
        if "major" in value or "minor" in value:
            message = "sets device numbers: runtimes use them even if the host has other numbers"
            out.append(finding("node-numbers-given", path, message))
        if "hostPath" in value and value["hostPath"] == value.get("path"):
            # Source: nvidia-container-toolkit issue 38.
            out.append(finding("host-path-redundant", f"{path}.hostPath", "is the same as path"))
    return True


def _check_mount(value: object, path: str, out: list[Finding]) -> bool:
    if not isinstance(value, dict) or value.get("type"):
        return True
    options = value.get("options")
    if isinstance(options, list) and any(isinstance(o, str) and o in _BIND_OPTIONS for o in options):
        out.append(
            finding(
                "mount-type-missing", path, "has no type", 'set "type": "bind", and at least cdiVersion 0.4.0'
            )
        )
        return True
    message = 'has neither a type nor the option bind or rbind: runc fails with "no such device"'
    return reject(out, "mount-not-bind", path, message)


def _advise_hook(value: object, path: str, out: list[Finding]) -> bool:
    if not isinstance(value, dict):
        return True
    if value.get("hookName") in HOOK_NAMES and value["hookName"] != "createContainer":
        out.append(finding("hook-not-create-container", f"{path}.hookName", f"runs at {value['hookName']}"))
    env = value.get("env")
    if not env:
        out.append(
            finding(
                "hook-env-missing", path, "has no env: the hook gets the environment of the runtime or image"
            )
        )
    elif isinstance(env, list) and any(isinstance(entry, str) and entry.startswith("LD_") for entry in env):
        out.append(finding("hook-env-loader", f"{path}.env", "sets an LD_ variable"))
    if value.get("timeout") is None:
        out.append(
            finding("hook-timeout-missing", path, "has no timeout: a hook that hangs blocks the container")
        )
    return True


def _net_devices(value: object, path: str, out: list[Finding]) -> bool:
    good = _NET_DEVICES(value, path, out)
    for field in ("hostInterfaceName", "name"):
        for index in _repeated(_values(value, field)):
            message = f"{field} is the same as in an earlier entry"
            good = reject(out, "net-device-duplicate", f"{path}[{index}].{field}", message)
    return good


def _values(entries: object, field: str) -> list[object]:
    """Return FIELD of each of ENTRIES, or None for an entry that is not an object.

    The result is empty if there are fewer than two entries, because there can be no repetition.
    """
    if not isinstance(entries, list) or len(entries) < 2:
        return []
    return [entry.get(field) if isinstance(entry, dict) else None for entry in entries]


def _repeated(values: list[object]) -> list[int]:
    """Return the indexes of the texts in VALUES that repeat an earlier text."""
    texts = [value for value in values if isinstance(value, str)]
    if len(set(texts)) == len(texts):
        return []
    earlier: set[str] = set()
    repeated = []
    for index, value in enumerate(values):
        if isinstance(value, str):
            if value in earlier:
                repeated.append(index)
            earlier.add(value)
    return repeated


def _warn_repeated(edits: dict[str, object], path: str, out: list[Finding]) -> None:
    for field, key in (("deviceNodes", "path"), ("mounts", "containerPath")):
        for index in _repeated(_values(edits.get(field), key)):
            where = f"{path}.{field}[{index}].{key}"
            out.append(finding("path-repeated", where, "replaces an earlier entry with the same path"))
    env = edits.get("env")
    if isinstance(env, list):
        for index in _repeated([e.partition("=")[0] if isinstance(e, str) else None for e in env]):
            where = f"{path}.env[{index}]"  # source: container-device-interface commit 9c49c2b
            out.append(finding("env-repeated", where, "sets a key that an earlier entry sets"))


_UINT32 = integer("node-owner", 0, MAX_UINT32)
_NUMBER = integer("node-number", 0, MAX_INT64)
_TEXTS = list_of(check_text)

_NODE = Shape(
    fields={
        "path": check_clean_path,
        "hostPath": check_clean_path,
        "type": one_of("node-type", ("b", "c", "p")),
        "major": _NUMBER,
        "minor": _NUMBER,
        "fileMode": integer("node-file-mode", 0, 0o7777),
        "permissions": _permissions,
        "uid": _UINT32,
        "gid": _UINT32,
    },
    required=("path",),
)
_MOUNT = Shape(
    fields={
        "hostPath": check_usual_path,
        "containerPath": check_usual_path,
        "options": _TEXTS,
        "type": check_text,
    },
    required=("hostPath", "containerPath"),
)
_HOOK = Shape(
    fields={
        "hookName": one_of("hook-name", HOOK_NAMES),
        "path": check_usual_path,
        "args": _TEXTS,
        "env": list_of(check_env_entry),
        "timeout": integer("hook-timeout", 1, MAX_INT64),
    },
    required=("hookName", "path"),
)
_NET_DEVICE = Shape(
    fields={"hostInterfaceName": _interface, "name": _interface}, required=("hostInterfaceName", "name")
)
_RDT = Shape(
    fields={
        "closID": _closid,
        "l3CacheSchema": check_text,
        "memBwSchema": check_text,
        "schemata": _TEXTS,
        "enableMonitoring": check_boolean,
        "enableCMT": _removed,
        "enableMBM": _removed,
    }
)
_NET_DEVICES = list_of(_entry(_NET_DEVICE, lambda _value, _path, _out: True))
_EDITS = Shape(
    fields={
        "env": list_of(check_env_entry),
        "deviceNodes": list_of(_entry(_NODE, _advise_node)),
        "netDevices": _net_devices,
        "hooks": list_of(_entry(_HOOK, _advise_hook)),
        "mounts": list_of(_entry(_MOUNT, _check_mount)),
        "intelRdt": lambda value, path, out: check_object(value, path, _RDT, out),
        "additionalGids": list_of(integer("additional-gid", 1, MAX_UINT32)),
    }
)
