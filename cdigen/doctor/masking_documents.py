"""What of a spec and of a configuration may be given away: ``spec``, ``settings``, ``configuration``.

All three make a new document in which only what is known to be harmless stands as it was. People keep
credentials in variables, hooks' arguments and annotations, in forms that no pattern over the text foresees.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any

    Rule = Callable[[object], object]

LEFT_OUT = "<left out>"
# Keys whose values are never given away, wherever they stand.
_SECRET = re.compile(r"(?i)auth|passw|secret|token|credential|username|proxy|env|header|cert|key$")
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,100}")
# Variables that the drivers' own programs read; their names may still be those of secrets (NVIDIA_API_KEY).
_TOLD = re.compile(r"(?:NVIDIA|TRITON|CUDA)_[A-Za-z0-9_]*|PATH")
# The keys of runtimes' configurations whose own values have to do with devices.
_KEPT = frozenset({
    "BinaryName", "base_runtime_spec", "cdi-spec-dirs", "cdi_spec_dirs", "cgroup_manager", "default-runtime",
    "default_runtime", "default_runtime_name", "devices", "disabled_plugins", "hooks_dir", "imports",
    "nri_listen", "nri_plugin_dir", "path", "plugin_path", "runtime", "runtimeType", "runtime_path",
    "runtime_root", "runtime_type", "socket_path", "storage-driver", "userns-remap", "version",
})  # fmt: skip
# ... and what only a certain beginning makes harmless.
_BEGINNINGS = {"exec-opts": "native.cgroupdriver="}
# The words of NVIDIA's hooks and what they are about; of others only the names of options are told.
_HOOK_WORDS = frozenset({
    "chmod", "create-symlinks", "disable-device-node-modification", "enable-cuda-compat", "hook",
    "nvidia-cdi-hook", "nvidia-container-runtime-hook", "nvidia-ctk", "prestart", "update-ldcache",
})  # fmt: skip
_HOOK_PROGRAMS = ("/nvidia-cdi-hook", "/nvidia-ctk", "/cdigen-hook")
_LIBRARY = re.compile(r"(?:\.{0,2}/|lib)[A-Za-z0-9._/+:-]*")
_OPTION = re.compile(r"(-{1,2}[A-Za-z][A-Za-z0-9-]*)(=.*)?", re.DOTALL)
_MARKS = frozenset({"cdiVersion", "kind", "devices", "containerEdits"})


def is_spec(document: Mapping[str, Any]) -> bool:
    """Return whether DOCUMENT is meant as a CDI spec at all."""
    return not _MARKS.isdisjoint(document)


def spec(document: Mapping[str, Any], known: Collection[str] = ()) -> object:
    """Return the spec DOCUMENT without values of variables, hooks' arguments and annotations.

    KNOWN are arguments that cdigen itself gives to hooks. What CDI has no field for loses its value.
    """

    def hook(value: object) -> object:
        return _hook(value, known)

    edits: dict[str, Rule] = {
        "env": _each(_variable),
        "deviceNodes": _each(_plain_record),
        "netDevices": _each(_plain_record),
        "mounts": _each(_mount),
        "hooks": _each(hook),
        "intelRdt": _plain_record,
        "additionalGids": _each(_plain),
    }
    common: dict[str, Rule] = {
        "annotations": _annotations,
        "containerEdits": lambda value: _record(value, edits),
    }
    device: dict[str, Rule] = {"name": _plain, **common}
    return _record(
        document,
        {
            "cdiVersion": _plain,
            "kind": _plain,
            "devices": _each(lambda value: _record(value, device)),
            **common,
        },
    )


def _record(value: object, rules: Mapping[str, Rule]) -> object:
    if not isinstance(value, dict):
        return None if value is None else LEFT_OUT
    return {_name(key): rules.get(str(key), _nothing)(item) for key, item in value.items()}


def _each(rule: Rule) -> Rule:
    def many(value: object) -> object:
        if not isinstance(value, list):
            return None if value is None else LEFT_OUT
        return [rule(item) for item in value]

    return many


def _nothing(_: object) -> object:
    return LEFT_OUT


def _name(key: object) -> str:
    text = str(key)
    return text if _NAME.fullmatch(text) else LEFT_OUT


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float) else LEFT_OUT


_PLAIN_FIELDS = (
    *("path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"),
    *("hostInterfaceName", "name", "closID", "l3CacheSchema", "memBwSchema", "schemata"),
    *("enableCMT", "enableMBM", "enableMonitoring"),
)


def _plain_record(value: object) -> object:
    return _record(value, dict.fromkeys(_PLAIN_FIELDS, _plain))


def _mount(value: object) -> object:
    rules = dict.fromkeys(("hostPath", "containerPath", "type"), _plain)
    return _record(value, {**rules, "options": _each(_mount_option)})


def _mount_option(value: object) -> object:
    """Return a mount's option; a value after its name may be a password (mount.cifs(8))."""
    name, equals, _ = str(value).partition("=")
    if not isinstance(value, str) or not _NAME.fullmatch(name):
        return LEFT_OUT
    return f"{name}={LEFT_OUT}" if equals else name


def _variable(value: object) -> object:
    name, equals, _ = str(value).partition("=")
    if not isinstance(value, str) or not equals or not _NAME.fullmatch(name):
        return LEFT_OUT
    return value if _TOLD.fullmatch(name) and not _SECRET.search(name) else f"{name}={LEFT_OUT}"


def _annotations(value: object) -> object:
    return _record(value, {})


def _hook(value: object, known: Collection[str]) -> object:
    path = str(value.get("path", "")) if isinstance(value, dict) else ""
    words = {*known, *_HOOK_WORDS, path, path.rpartition("/")[2]}
    arguments = value.get("args") if isinstance(value, dict) else None
    programs = (path, *(str(word) for word in arguments)) if isinstance(arguments, list) else (path,)
    is_ours = any(program.endswith(_HOOK_PROGRAMS) for program in programs)

    def argument(word: object) -> object:
        if not isinstance(word, str):
            return LEFT_OUT
        if word in words or (is_ours and _LIBRARY.fullmatch(word)):
            return word
        option = _OPTION.fullmatch(word)
        if option is None:
            return LEFT_OUT
        # A short option may have its value stuck to it: -pSECRET.
        name = option[1] if option[1].startswith("--") else option[1][:2]
        return name if name == word else f"{name}={LEFT_OUT}"

    rules: dict[str, Rule] = dict.fromkeys(("hookName", "path", "timeout"), _plain)
    return _record(value, {**rules, "args": _each(argument), "env": _each(_variable)})


def hook_words(document: Mapping[str, Any]) -> set[str]:
    """Return the arguments of all hooks in DOCUMENT, a spec that cdigen made."""
    edits = [document.get("containerEdits", {})]
    edits += [device.get("containerEdits", {}) for device in document.get("devices", ())]
    return {word for edit in edits for hook in edit.get("hooks", ()) for word in hook.get("args", ())}


def settings(document: object, *, key: str = "", above: str = "") -> object:
    """Return of a runtime's configuration all keys, and the values of those that have to do with devices.

    KEY is where DOCUMENT stands, ABOVE the key above that one.
    """
    if isinstance(document, dict):
        return {
            str(name): LEFT_OUT if _SECRET.search(str(name)) else settings(item, key=str(name), above=key)
            for name, item in document.items()
        }
    if isinstance(document, list):
        items = [settings(item, key=key, above=above) for item in document]
        return items if key in _KEPT or any(item != LEFT_OUT for item in items) else LEFT_OUT
    return document if _is_told(document, key, above) else LEFT_OUT


def _is_told(value: object, key: str, above: str) -> bool:
    if key in _KEPT or isinstance(value, bool):
        return True
    if key in _BEGINNINGS:
        return str(value).startswith(_BEGINNINGS[key])
    # containers.conf(5): [engine.runtimes] crun = ["/usr/bin/crun"]; the key is anybody's.
    return above == "runtimes" and str(value).startswith("/")


def configuration(document: object) -> object:
    """Return cdigen's own configuration, which has no secrets, but for keys that it does not know."""
    if isinstance(document, dict):
        return {
            str(name): LEFT_OUT if _SECRET.search(str(name)) else configuration(item)
            for name, item in document.items()
        }
    if isinstance(document, list):
        return [configuration(item) for item in document]
    return _plain(document)
