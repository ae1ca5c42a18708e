"""``apply`` reads a configuration of NVIDIA's device plugin (``version: v1``) as settings of cdigen.

An invalid file does not stop this process. A key that cdigen does not support, or that NVIDIA's plugin does
not have, causes a finding with the line and column of the key. The source is NVIDIA/k8s-device-plugin 0.20,
api/config/v1.
"""

from __future__ import annotations

import re

from cdigen.config.settings import MAX_REPLICAS, MAX_SIZE, MIG_STRATEGIES, ResourceRow, SharingRow
from cdigen.config.tree import NoTreeError, compose, pairs_of, place_of, text_of
from cdigen.config.types import describe, node_type, quote
from cdigen.host.root import shown
from cdigen.kubelet.resources.model import NVIDIA_RULE
from cdigen.kubelet.resources.selection import WHOLE
from cdigen.model.findings import Finding
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    import yaml

    from cdigen.config import KubeletConfig
    from cdigen.model.findings import Severity

VERSION = "v1"
_PREFIX = "nvidia.com/"
_HINT = 'see docs/configuration.md, "The kubelet"'
_TRUE = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
# The part of a resource name after nvidia.com/. The file may lack this prefix (api/config/v1/resources.go).
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,50}[a-z0-9])?")
_ALL = "all"
_MAX_SHOWN = 200

# The keys that cdigen ignores, whatever the value is, each with the reason.
_NOT_NEEDED = {
    "flags.nvidiaDriverRoot": "the daemon finds the driver ('driver_root' in the configuration of cdigen)",
    "flags.nvidiaDevRoot": "the daemon finds the device nodes ('dev_root' in the configuration of cdigen)",
    "flags.failOnInitError": "cdigen kubelet runs without a driver, and advertises GPUs when it is loaded",
    "flags.restartOnDeviceUnhealthy": "a GPU that recovers is advertised as healthy again",
    "flags.deviceDiscoveryStrategy": "the daemon discovers devices itself",
    "flags.plugin.containerDriverRoot": "no driver is mounted into this process",
    "flags.plugin.nvidiaCTKPath": "the specs are from cdigen and use its hook",
    "flags.gfd": "'kubelet: {labels}' configures the labels of the node",
    "flags.useNodeFeatureAPI": "labels are written to a file ('kubelet: {labels}')",
    "health": "the daemon watches health ('health: {ignore: [xid-31]}' in the configuration of cdigen)",
}
# The device family ('kubelet: {families}') that each key adds.
_FAMILIES = {"gdsEnabled": "gds", "mofedEnabled": "mofed", "gdrcopyEnabled": "gdrcopy"}
# The values of deviceListStrategy. _STRATEGIES has the corresponding values of cdigen. _OTHER_LISTS has the
# reasons why cdigen does not support the other values.
_STRATEGIES = {"cdi-cri": "cdi_devices", "cdi-annotations": "annotation"}
_OTHER_LISTS = {
    "envvar": "containers get GPUs by CDI names; 'kubelet: {environment: true}' adds NVIDIA_VISIBLE_DEVICES",
    "volume-mounts": "containers get GPUs by CDI names",
}


def apply(settings: KubeletConfig, data: bytes, *, file: str) -> tuple[KubeletConfig, tuple[Finding, ...]]:
    """Return SETTINGS with the changes from DATA, and findings; DATA is the content of NVIDIA's file FILE.

    Findings on invalid values are errors. Findings on unsupported or unknown keys are warnings. Findings on
    keys that are not needed are infos. A file that is not a configuration of NVIDIA changes no setting.
    """
    reading = _Reading(file, settings)
    if len(data) > MAX_SIZE:
        reading.add("error", None, f"the file is larger than {MAX_SIZE} bytes")
        return settings, tuple(reading.found)
    try:
        root = compose(data, file)
    except NoTreeError as error:
        return settings, (error.finding,)
    if root is None or node_type(root) != "mapping":
        reading.add("error", root, "the file is not a mapping of keys to values")
        return settings, tuple(reading.found)
    top = {text_of(key): value for key, value in pairs_of(root)}
    if "kind" in top and text_of(top["kind"]) == "ConfigMap":
        text = "the file is a ConfigMap of Kubernetes; use one of the files in its data"
        reading.add("error", top["kind"], text)
        return settings, tuple(reading.found)
    version = top.get("version")
    # NVIDIA's plugin reads a file without a version as v1.
    if version is not None and text_of(version) != VERSION:
        reading.add("error", version, f"version must be {VERSION!r}, not {describe(version)}")
        return settings, tuple(reading.found)
    reading.mapping(root, "", reading.top())
    return reading.settings, tuple(sorted(reading.found, key=lambda found: found.place or (0, 0)))


class _Reading:
    """Reads one file and collects settings and findings."""

    def __init__(self, file: str, settings: KubeletConfig) -> None:
        self._file = file
        self.settings = settings
        self.found: list[Finding] = []

    def top(self) -> Mapping[str, Callable[[yaml.Node, str], None]]:
        """Return the readers of the keys of the file."""
        return {
            "version": lambda _node, _at: None,
            "flags": lambda node, at: self.mapping(node, at, self._flags()),
            "resources": lambda node, at: self.mapping(node, at, {"gpus": self._names, "mig": self._names}),
            "sharing": self._sharing,
            "imex": lambda node, at: self.mapping(node, at, self._imex()),
        }

    def mapping(
        self, node: yaml.Node, at: str, readers: Mapping[str, Callable[[yaml.Node, str], None]]
    ) -> None:
        """Read the mapping NODE; AT is the key path of NODE, and READERS has the reader of each key."""
        if node_type(node) == "null":
            return
        if node_type(node) != "mapping":
            self.add("error", node, f"{at} must be a mapping, not {describe(node)}")
            return
        # NVIDIA's plugin reads YAML with Go's JSON decoder, which ignores upper and lower case in keys.
        known = {
            name.lower(): name for name in (*readers, *(path.rpartition(".")[2] for path in _NOT_NEEDED))
        }
        done = set()
        for key, value in pairs_of(node):
            name = known.get(text_of(key).lower(), shown(text_of(key)))
            path = f"{at}.{name}".lstrip(".")
            if name in done:
                self.add("error", key, f"{path} is set a second time; the second value is ignored")
            elif name in readers:
                readers[name](value, path)
            elif path in _NOT_NEEDED:
                self.add("info", key, f"{path} is not needed: {_NOT_NEEDED[path]}")
            else:
                self.add("warning", key, f"{path[:_MAX_SHOWN]} is unknown and ignored")
            done.add(name)

    def add(self, severity: Severity, node: yaml.Node | None, text: str) -> None:
        """Add a finding on NODE."""
        place = place_of(node.start_mark) if node is not None else None
        self.found.append(
            Finding(
                severity=severity,
                rule=NVIDIA_RULE,
                path=self._file,
                message=text,
                hint=_HINT,
                place=place,
            )
        )

    def _set(self, **changes: Any) -> None:
        self.settings = replace(self.settings, **changes)

    def _flags(self) -> Mapping[str, Callable[[yaml.Node, str], None]]:
        return {
            "migStrategy": self._mig_strategy,
            "mpsRoot": self._mps_root,
            **dict.fromkeys(_FAMILIES, self._family),
            "plugin": lambda node, at: self.mapping(
                node,
                at,
                {
                    "passDeviceSpecs": self._pass_device_specs,
                    "deviceListStrategy": self._device_lists,
                    "deviceIDStrategy": self._only("uuid", "the ids of GPUs are their UUIDs"),
                    "cdiAnnotationPrefix": self._only("cdi.k8s.io/", "runtimes read only this prefix"),
                    "sharedDevicesAllocationPolicy": self._allocation,
                },
            ),
        }

    def _imex(self) -> Mapping[str, Callable[[yaml.Node, str], None]]:
        return {"channelIDs": self._channels, "required": self._required}

    def _mig_strategy(self, node: yaml.Node, at: str) -> None:
        if node.value in MIG_STRATEGIES:
            self._set(mig_strategy=node.value)
        elif node_type(node) != "null":
            self.add("error", node, f"{at} must be one of {', '.join(MIG_STRATEGIES)}, not {describe(node)}")

    def _mps_root(self, node: yaml.Node, at: str) -> None:
        value = text_of(node)
        if value.startswith("/") and ".." not in value.split("/") and value.isprintable():
            self._set(mps_root=value)
        elif value and node_type(node) != "null":
            self.add("error", node, f"{at} must be an absolute path, not {describe(node)}")

    def _family(self, node: yaml.Node, at: str) -> None:
        family = _FAMILIES[at.rpartition(".")[2]]
        is_on = self._flag(node, at)
        if is_on is not None:
            others = tuple(each for each in self.settings.families if each != family)
            self._set(families=(*others, family) if is_on else others)

    def _pass_device_specs(self, node: yaml.Node, at: str) -> None:
        is_on = self._flag(node, at)
        if is_on is not None:
            self._set(device_nodes=is_on)

    def _device_lists(self, node: yaml.Node, at: str) -> None:
        """Read one strategy, several strategies separated by commas, or a list of strategies."""
        items = node.value if node_type(node) == "list" else [node]
        words = [(item, word.strip()) for item in items for word in text_of(item).split(",")]
        for item, word in words:
            if word in _OTHER_LISTS:
                severity: Severity = "info" if word == "envvar" else "warning"
                self.add(severity, item, f"{at}: {word} is not supported: {_OTHER_LISTS[word]}")
            elif word not in _STRATEGIES and node_type(item) != "null":
                self.add("error", item, f"{at}: {quote(word)} is not a strategy")
        strategy = tuple(dict.fromkeys(_STRATEGIES[word] for _, word in words if word in _STRATEGIES))
        if strategy:
            self._set(device_list_strategy=strategy)

    def _allocation(self, node: yaml.Node, at: str) -> None:
        if text_of(node) in {"distributed", "packed"}:
            self._set(shared_allocation=node.value)
        elif node_type(node) != "null":
            self.add("error", node, f"{at} must be distributed or packed, not {describe(node)}")

    def _only(self, value: str, reason: str) -> Callable[[yaml.Node, str], None]:
        """Return the reader of a key for which cdigen supports only VALUE."""

        def read(node: yaml.Node, at: str) -> None:
            if node_type(node) != "null" and text_of(node) not in {value, ""}:
                self.add("warning", node, f"{at}: {quote(text_of(node))} is not supported: {reason}")

        return read

    def _channels(self, node: yaml.Node, at: str) -> None:
        channels = [text_of(item) for item in node.value] if node_type(node) == "list" else None
        if channels == ["0"]:
            self._set(families=tuple(dict.fromkeys((*self.settings.families, "imex"))))
        elif (channels is None and node_type(node) != "null") or channels:
            self.add("error", node, f"{at} must be [] or [0], not {describe(node)}")

    def _required(self, node: yaml.Node, at: str) -> None:
        if self._flag(node, at):
            text = f"{at} is not supported: if no spec has the channel, pods start, and cdigen reports this"
            self.add("warning", node, text)

    def _names(self, node: yaml.Node, at: str) -> None:
        """Read the resource name of each pattern; NVIDIA's plugin ignores these rows."""
        rows: list[ResourceRow] = []
        for item in self._items(node, at):
            values: dict[str, str] = {}
            self.mapping(item, at, {"name": _into(values, "name"), "pattern": _into(values, "pattern")})
            name = self._resource(item, f"{at}.name", values.get("name", ""))
            if "pattern" not in values:
                self.add("error", item, f"{at}.pattern is missing")
            elif name:
                # NVIDIA's patterns match anywhere in a name.
                patterns = (f"*{values['pattern']}*",)
                is_gpu = at.endswith("gpus")
                rows.append(
                    ResourceRow(
                        name=name,
                        kind=f"{_PREFIX}gpu",
                        models=patterns if is_gpu else (),
                        profiles=(WHOLE,) if is_gpu else patterns,
                    )
                )
        if rows:
            self.add("info", node, f"{at} is applied; NVIDIA's plugin ignores this key")
        self._set(resources=(*rows, *self.settings.resources))

    def _sharing(self, node: yaml.Node, at: str) -> None:
        keys = {text_of(key): value for key, value in pairs_of(node)} if node_type(node) == "mapping" else {}
        has_mps = "mps" in keys and node_type(keys["mps"]) != "null"
        if has_mps and "timeSlicing" in keys and node_type(keys["timeSlicing"]) != "null":
            self.add("warning", keys["timeSlicing"], f"{at}.timeSlicing is ignored, because {at}.mps is set")
        readers = {
            "timeSlicing": lambda value, path: None if has_mps else self._replicated(value, path, mps=False),
            "mps": lambda value, path: self._replicated(value, path, mps=True),
        }
        self.mapping(node, at, readers)

    def _replicated(self, node: yaml.Node, at: str, *, mps: bool) -> None:
        flags: dict[str, bool] = {}
        rows: list[SharingRow] = []

        def read_flag(value: yaml.Node, path: str) -> None:
            is_on = self._flag(value, path)
            if is_on is not None:
                flags[path.rpartition(".")[2]] = is_on

        def read_rows(value: yaml.Node, path: str) -> None:
            rows.extend(row for item in self._items(value, path) if (row := self._row(item, path, mps=mps)))

        self.mapping(
            node,
            at,
            {
                "strategy": self._only("", "there is only one strategy of time-slicing"),
                "renameByDefault": read_flag,
                "failRequestsGreaterThanOne": read_flag,
                "resources": read_rows,
            },
        )
        self._set(
            sharing=(*rows, *self.settings.sharing),
            rename_shared=flags.get("renameByDefault", self.settings.rename_shared),
            fail_requests_greater_than_one=flags.get(
                "failRequestsGreaterThanOne", mps or self.settings.fail_requests_greater_than_one
            ),
        )

    def _row(self, node: yaml.Node, at: str, *, mps: bool) -> SharingRow | None:
        values: dict[str, str] = {}
        devices: list[tuple[str, ...] | None] = [()]
        has_count = [False]

        def read_devices(value: yaml.Node, path: str) -> None:
            devices[0] = self._devices(value, path)
            has_count[0] = node_type(value) == "int"

        self.mapping(
            node,
            at,
            {
                "name": _into(values, "name"),
                "replicas": _into(values, "replicas"),
                "rename": _into(values, "rename"),
                "devices": read_devices,
            },
        )
        name = self._resource(node, f"{at}.name", values.get("name", ""))
        rename = self._resource(node, f"{at}.rename", values["rename"]) if values.get("rename") else ""
        replicas = values.get("replicas", "")
        if not re.fullmatch("[1-9][0-9]{0,8}", replicas) or int(replicas) > MAX_REPLICAS:
            text = quote(replicas) if replicas else "missing"
            self.add("error", node, f"{at}.replicas must be a number from 1 to {MAX_REPLICAS}, and is {text}")
            return None
        if not name or rename is None or devices[0] is None:
            return None
        if has_count[0] and name != f"{_PREFIX}gpu":
            self.add(
                "error", node, f"{at}.devices: a count is only for GPUs, not for {name}; list the devices"
            )
            return None
        return SharingRow(resource=name, replicas=int(replicas), devices=devices[0], rename=rename, mps=mps)

    def _devices(self, node: yaml.Node, at: str) -> tuple[str, ...] | None:
        """Return the devices in NODE. () means all devices. None means that NODE is invalid."""
        if node_type(node) == "null" or node.value == _ALL:
            return ()
        self.add("info", node, f"{at} is applied; NVIDIA's plugin ignores this key and shares all devices")
        if (
            node_type(node) == "list"
            and node.value
            and all(isinstance(item.value, str) for item in node.value)
        ):
            return tuple(dict.fromkeys(item.value for item in node.value))
        if node_type(node) == "int" and re.fullmatch("[1-9][0-9]{0,3}", text_of(node)):
            return tuple(map(str, range(int(text_of(node)))))
        self.add("error", node, f"{at} must be 'all', a count or a list of devices, not {describe(node)}")
        return None

    def _resource(self, node: yaml.Node, at: str, name: str) -> str | None:
        own = name.removeprefix(_PREFIX)
        if _NAME.fullmatch(own):
            return f"{_PREFIX}{own}"
        self.add(
            "error",
            node,
            f"{at} must be a name such as {_PREFIX}gpu, and is {quote(name) if name else 'missing'}",
        )
        return None

    def _items(self, node: yaml.Node, at: str) -> list[yaml.Node]:
        if node_type(node) == "list":
            return list(node.value)
        if node_type(node) != "null":
            self.add("error", node, f"{at} must be a list, not {describe(node)}")
        return []

    def _flag(self, node: yaml.Node, at: str) -> bool | None:
        """Return the boolean value of NODE, or None if NODE has no boolean value."""
        value = _TRUE.get(text_of(node).lower()) if node_type(node) in {"bool", "text"} else None
        if value is None and node_type(node) != "null":
            self.add("error", node, f"{at} must be true or false, not {describe(node)}")
        return value


def _into(values: dict[str, str], name: str) -> Callable[[yaml.Node, str], None]:
    """Return a reader that stores the text of a node in VALUES, under the key NAME."""

    def read(node: yaml.Node, _: str) -> None:
        values[name] = text_of(node)

    return read
