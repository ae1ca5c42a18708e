"""``with_nvidia_file`` adds the settings of NVIDIA's device plugin (``version: v1``) to those of cdigen.

An invalid file does not stop this process. A key that cdigen does not support, or that NVIDIA's plugin does
not have, causes a finding with the line and column of the key. The source is NVIDIA/k8s-device-plugin 0.20,
api/config/v1.
"""

from __future__ import annotations

import re

from cdigen import page_url
from cdigen.config import format_fault
from cdigen.config.reading import TableReader, valid
from cdigen.config.settings import FAMILIES, MAX_REPLICAS, MAX_SIZE, MIG_STRATEGIES, ResourceRow, SharingRow
from cdigen.config.tree import NoTreeError, compose, pairs_of, text_of
from cdigen.config.types import (
    FLAG,
    INVALID,
    PATH,
    Key,
    Rows,
    Scalar,
    Table,
    Vendors,
    WrongValueError,
    choice,
    describe,
    node_type,
    number,
    quote,
)
from cdigen.host.root import reason, shown
from cdigen.kubelet.resources.model import NVIDIA_RULE
from cdigen.kubelet.resources.selection import WHOLE
from cdigen.model.findings import Finding
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    import yaml

    from cdigen.config import KubeletConfig
    from cdigen.host.root import Root
    from cdigen.model.findings import Severity

MAX_FINDINGS = 50
VERSION = "v1"
_PREFIX = "nvidia.com/"
# The part of a resource name after nvidia.com/. The file may lack this prefix (api/config/v1/resources.go).
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,50}[a-z0-9])?")
_ALL = "all"
_MAX_SHOWN = 200
# The values of deviceListStrategy. _STRATEGIES has the corresponding values of cdigen. _OTHER_LISTS has the
# reasons why cdigen does not support the other values.
_STRATEGIES = {"cdi-cri": "cdi_devices", "cdi-annotations": "annotation"}
_CDI = "is not supported: containers get GPUs by CDI names"
_OTHER_LISTS = {
    "envvar": f"{_CDI}; 'kubelet: {{environment: true}}' adds NVIDIA_VISIBLE_DEVICES",
    "volume-mounts": _CDI,
}


def with_nvidia_file(host: Root, settings: KubeletConfig) -> tuple[KubeletConfig, tuple[Finding, ...]]:
    """Return SETTINGS with the settings of NVIDIA's file, and findings on unsupported keys.

    ``nvidia_config`` in SETTINGS is the path of the file below HOST. If the file cannot be read, SETTINGS do
    not change, and a finding has the reason. At most MAX_FINDINGS + 1 findings are returned. Each message
    begins with the file, the line and the column of the key.
    """
    read, found = read_nvidia_file(host, settings)
    return read, tuple(replace(each, message=_with_place(each)) for each in found)


def read_nvidia_file(host: Root, settings: KubeletConfig) -> tuple[KubeletConfig, tuple[Finding, ...]]:
    """Return the same values as ``with_nvidia_file``, but without file, line and column in the messages."""
    path = settings.nvidia_config
    try:
        data = host.read(path, limit=MAX_SIZE)
    except OSError as error:
        text = f"{host.outer_path(path)} cannot be read: {reason(error)}"
        return settings, (_finding(path, text, "correct 'kubelet: {nvidia_config}' or the file"),)
    read, found = apply(settings, data, file=path)
    more = len(found) - MAX_FINDINGS
    if more > 0:
        found = (*found[:MAX_FINDINGS], _finding(path, f"{more} more findings are not listed", found[0].hint))
    return read, found


def apply(settings: KubeletConfig, data: bytes, *, file: str) -> tuple[KubeletConfig, tuple[Finding, ...]]:
    """Return SETTINGS with the changes from DATA, and findings; DATA is the content of NVIDIA's file FILE.

    Findings on invalid values are errors. Findings on unsupported or unknown keys are warnings. Findings on
    keys that are not needed are infos. A file that is not a configuration of NVIDIA changes no setting.
    """
    reader = _NvidiaReader(file, Vendors(known=()))
    if len(data) > MAX_SIZE:
        reader.add(None, f"the file is larger than {MAX_SIZE} bytes")
        return settings, tuple(reader.found)
    try:
        root = compose(data, file)
    except NoTreeError as error:
        return settings, (error.finding,)
    if root is None or node_type(root) != "mapping":
        reader.add(root, "the file is not a mapping of keys to values")
        return settings, tuple(reader.found)
    top = {text_of(key): value for key, value in pairs_of(root)}
    if "kind" in top and text_of(top["kind"]) == "ConfigMap":
        reader.add(top["kind"], "the file is a ConfigMap of Kubernetes; use one of the files in its data")
        return settings, tuple(reader.found)
    version = top.get("version")
    # NVIDIA's plugin reads a file without a version as v1.
    if version is not None and text_of(version) != VERSION:
        reader.add(version, f"version must be {VERSION!r}, not {describe(version)}")
        return settings, tuple(reader.found)
    changed = _changed(settings, valid(reader.mapping(root, _KEYS, "")))
    return changed, tuple(sorted(reader.found, key=lambda found: found.place or (0, 0)))


def _with_place(found: Finding) -> str:
    """Return the message of FOUND with file and line, as for an error in cdigen's own configuration."""
    return format_fault(replace(found, severity="error")) if found.place else found.message


def _finding(path: str, text: str, hint: str) -> Finding:
    return Finding(severity="error", rule=NVIDIA_RULE, path=path, message=text, hint=hint)


def _changed(settings: KubeletConfig, values: dict[str, Any]) -> KubeletConfig:
    flags = {"plugin": {}, **values.get("flags", {})}
    changes = {**flags.pop("plugin"), **flags}
    switched = {name: changes.pop(name) for name in FAMILIES if name in changes} | values.get("imex", {})
    kept = (family for family in settings.families if family not in switched)
    changes["families"] = (*kept, *(family for family, is_on in switched.items() if is_on))
    patterns = values.get("resources", {})
    gpus = (_gpu_row(**row) for row in patterns.get("gpus", ()))
    mig = (_mig_row(**row) for row in patterns.get("mig", ()))
    changes["resources"] = (*mig, *gpus, *settings.resources)
    for method, shared in values.get("sharing", {}).items():
        is_mps = method == "mps"
        replicated = (replace(row, mps=is_mps) for row in shared.pop("sharing", ()))
        changes["sharing"] = (*replicated, *settings.sharing)
        changes |= {**({"fail_requests_greater_than_one": True} if is_mps else {}), **shared}
    return replace(settings, **changes)


class _NvidiaReader(TableReader):
    """The reader of NVIDIA's file. If the file has a key with a ``text``, that text is a finding."""

    separator, rule, hint = ".", NVIDIA_RULE, f"see {page_url('reference/configuration')}"

    def pairs(self, root: yaml.Node, known: Mapping[str, Key], where: str) -> Iterator[tuple[str, yaml.Node]]:
        """Yield the KNOWN keys of the mapping ROOT with their values; add findings on the keys."""
        # NVIDIA's plugin reads YAML with Go's JSON decoder, which ignores upper and lower case in keys.
        names = {name.lower(): name for name in known}
        present: dict[str, yaml.Node] = {}
        for key, value in pairs_of(root):
            name = names.get(text_of(key).lower(), shown(text_of(key)))
            path = f"{where}{name}"[:_MAX_SHOWN]
            if name in present:
                self.add(key, f"{path} is set a second time; the second value is ignored")
                continue
            present[name] = value
            if name not in known:
                self.add(key, f"{path} is unknown and ignored", "warning")
            elif known[name].text and not _is_unset(value) and value.value != _ALL:
                self.add(key, f"{path} {known[name].text}", "info")
        pairs = {name: node for name, node in present.items() if name in known and not _is_unset(node)}
        if "mps" in pairs and "timeSlicing" in pairs:
            node = pairs.pop("timeSlicing")
            self.add(node, f"{where}timeSlicing is ignored, because {where}mps is set", "warning")
        return iter(pairs.items())

    def check_row(self, node: yaml.Node, row: Any, others: list[Any], *, is_valid: bool) -> None:  # noqa: ARG002 - as in the base class
        """Add a fault at NODE if ROW has a count of devices that are not GPUs."""
        counts = [one for key, one in pairs_of(node) if text_of(key) == "devices" and node_type(one) == "int"]
        if counts and isinstance(row, SharingRow) and row.resource != f"{_PREFIX}gpu":
            self.add(node, f"devices: a count is only for GPUs, not for {row.resource}; list the devices")


def _is_unset(node: yaml.Node) -> bool:
    return node_type(node) == "null" or node.value == ""


def _name(node: yaml.Node, _: Vendors) -> str:
    own = text_of(node).removeprefix(_PREFIX)
    if not _NAME.fullmatch(own):
        raise WrongValueError(f"must be a name such as {_PREFIX}gpu, not {describe(node)}", node)
    return f"{_PREFIX}{own}"


def _devices(node: yaml.Node, _: Vendors) -> tuple[str, ...]:
    """Return the devices in NODE; () means all devices."""
    if node.value == _ALL:
        return ()
    if node_type(node) == "list" and node.value and all(isinstance(one.value, str) for one in node.value):
        return tuple(dict.fromkeys(one.value for one in node.value))
    if node_type(node) == "int" and re.fullmatch("[1-9][0-9]{0,3}", text_of(node)):
        return tuple(map(str, range(int(text_of(node)))))
    raise WrongValueError(f"must be 'all', a count or a list of devices, not {describe(node)}", node)


def _device_lists(node: yaml.Node, _: Vendors) -> tuple[str, ...]:
    """Return the values of cdigen for one strategy, several separated by commas, or a list of strategies."""
    items = node.value if node_type(node) == "list" else [node]
    words = dict.fromkeys(word.strip() for item in items for word in text_of(item).split(","))
    found = tuple(_STRATEGIES[word] for word in words if word in _STRATEGIES)
    others = [word for word in words if word not in _STRATEGIES]
    if others:
        reasons = [f"{quote(word)} {_OTHER_LISTS.get(word, 'is not a strategy')}" for word in others]
        severity: Severity = "info" if others == ["envvar"] else "warning"
        severity = severity if _OTHER_LISTS.keys() >= {*others} else "error"
        raise WrongValueError(f"is not applied: {'; '.join(reasons)}", node, severity, found or INVALID)
    return found


def _channels(node: yaml.Node, _: Vendors) -> object:
    channels = [text_of(item) for item in node.value] if node_type(node) == "list" else None
    if channels not in ([], ["0"]):
        raise WrongValueError(f"must be [] or [0], not {describe(node)}", node)
    return True if channels else INVALID


def _only(supported: str, reason: str) -> Scalar:
    """Return the type of a key for which cdigen has only the value SUPPORTED."""

    def read(node: yaml.Node, _: Vendors) -> object:
        if text_of(node) != supported:
            text = f"has the value {quote(text_of(node))}, which is not supported: {reason}"
            raise WrongValueError(text, node, "warning")
        return INVALID

    return _scalar(read)


def _no_wait(node: yaml.Node, vendors: Vendors) -> object:
    if FLAG.read(node, vendors):
        text = "is not supported: if no spec has the channel, pods start, and cdigen reports this"
        raise WrongValueError(text, node, "warning")
    return INVALID


def _gpu_row(name: str, pattern: str) -> ResourceRow:
    # NVIDIA's patterns match anywhere in a name.
    return ResourceRow(name=name, kind=f"{_PREFIX}gpu", models=(f"*{pattern}*",), profiles=(WHOLE,))


def _mig_row(name: str, pattern: str) -> ResourceRow:
    return ResourceRow(name=name, kind=f"{_PREFIX}gpu", profiles=(f"*{pattern}*",))


def _scalar(read: Callable[[yaml.Node, Vendors], object]) -> Scalar:
    return Scalar(read=read, schema={})


def _table(*keys: Key) -> Table:
    return Table(keys=keys, cls=dict)


def _not_needed(name: str, reason: str) -> Key:
    return Key(name=name, type=_scalar(lambda _node, _vendors: INVALID), text=f"is not needed: {reason}")


_OWN = "in the configuration of cdigen"
_APPLIED = "is applied; NVIDIA's plugin ignores this key"
_RESOURCE = _scalar(_name)
# fmt: off
_PATTERN_KEYS = (
    Key(name="name", type=_RESOURCE, is_required=True),
    Key(name="pattern", type=_scalar(lambda node, _: text_of(node)), is_required=True),
)
_ROW_KEYS = (
    Key(name="name", type=_RESOURCE, field="resource", is_required=True),
    Key(name="replicas", type=number(MAX_REPLICAS, minimum=1), is_required=True),
    Key(name="rename", type=_RESOURCE),
    Key(name="devices", type=_scalar(_devices), text=f"{_APPLIED} and shares all devices"),
)
_SHARED = _table(
    Key(name="strategy", type=_only("", "there is only one strategy of time-slicing")),
    Key(name="renameByDefault", type=FLAG, field="rename_shared"),
    Key(name="failRequestsGreaterThanOne", type=FLAG, field="fail_requests_greater_than_one"),
    Key(name="resources", type=Rows(keys=_ROW_KEYS, cls=SharingRow), field="sharing"),
)
_PLUGIN = _table(
    Key(name="passDeviceSpecs", type=FLAG, field="device_nodes"),
    Key(name="deviceListStrategy", type=_scalar(_device_lists), field="device_list_strategy"),
    Key(name="deviceIDStrategy", type=_only("uuid", "the ids of GPUs are their UUIDs")),
    Key(name="cdiAnnotationPrefix", type=_only("cdi.k8s.io/", "runtimes read only this prefix")),
    Key(name="sharedDevicesAllocationPolicy", type=choice("distributed", "packed"),
        field="shared_allocation"),
    _not_needed("containerDriverRoot", "no driver is mounted into this process"),
    _not_needed("nvidiaCTKPath", "the specs are from cdigen and use its hook"),
)
_FLAGS = _table(
    Key(name="migStrategy", type=choice(*MIG_STRATEGIES), field="mig_strategy"),
    Key(name="mpsRoot", type=PATH, field="mps_root"),
    Key(name="gdsEnabled", type=FLAG, field="gds"),
    Key(name="mofedEnabled", type=FLAG, field="mofed"),
    Key(name="gdrcopyEnabled", type=FLAG, field="gdrcopy"),
    Key(name="plugin", type=_PLUGIN),
    _not_needed("nvidiaDriverRoot", f"the daemon finds the driver ('driver_root' {_OWN})"),
    _not_needed("nvidiaDevRoot", f"the daemon finds the device nodes ('dev_root' {_OWN})"),
    _not_needed("failOnInitError",
        "cdigen kubelet runs without a driver, and advertises GPUs when it is loaded"),
    _not_needed("restartOnDeviceUnhealthy", "a GPU that recovers is advertised as healthy again"),
    _not_needed("deviceDiscoveryStrategy", "the daemon discovers devices itself"),
    _not_needed("gfd", "'kubelet: {labels}' configures the labels of the node"),
    _not_needed("useNodeFeatureAPI", "labels are written to a file ('kubelet: {labels}')"),
)
_RESOURCES = _table(
    Key(name="gpus", type=Rows(keys=_PATTERN_KEYS, cls=dict), text=_APPLIED),
    Key(name="mig", type=Rows(keys=_PATTERN_KEYS, cls=dict), text=_APPLIED),
)
_IMEX = _table(
    Key(name="channelIDs", type=_scalar(_channels), field="imex"),
    Key(name="required", type=_scalar(_no_wait)),
)
_KEYS = (
    Key(name="version", type=choice(VERSION)),
    Key(name="flags", type=_FLAGS),
    Key(name="resources", type=_RESOURCES),
    Key(name="sharing", type=_table(Key(name="timeSlicing", type=_SHARED), Key(name="mps", type=_SHARED))),
    Key(name="imex", type=_IMEX),
    _not_needed("health", f"the daemon watches health ('health: {{ignore: [xid-31]}}' {_OWN})"),
)
# fmt: on
