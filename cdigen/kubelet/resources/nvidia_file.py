"""Read a configuration of NVIDIA's device plugin (``version: v1``) as settings of ours: ``apply``.

Nothing in it stops this process: what cannot be done, and what NVIDIA's plugin would not know either, is a
finding with its place. Source: NVIDIA/k8s-device-plugin 0.20, api/config/v1.
"""

from __future__ import annotations

import re

from cdigen.config.settings import MAX_REPLICAS, MAX_SIZE, MIG_STRATEGIES, ResourceRow, SharingRow
from cdigen.config.tree import NoTreeError, compose, pairs_of, place_of, text_of
from cdigen.config.types import described, form, quoted
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
# As NVIDIA's names have it, with or without the domain (api/config/v1/resources.go).
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,50}[a-z0-9])?")
_ALL = "all"
_MAX_SHOWN = 200

# What is not done of a key, whatever its value.
_NOT_DONE = {
    "flags.nvidiaDriverRoot": "the daemon finds the driver: 'driver_root' in the configuration of cdigen",
    "flags.nvidiaDevRoot": "the daemon finds the nodes: 'dev_root' in the configuration of cdigen",
    "flags.failOnInitError": "cdigen kubelet goes on without a driver, and offers GPUs once there are any",
    "flags.restartOnDeviceUnhealthy": "a GPU that is healthy again is offered again",
    "flags.deviceDiscoveryStrategy": "the daemon finds devices by itself",
    "flags.plugin.containerDriverRoot": "no driver is mounted into this process",
    "flags.plugin.nvidiaCTKPath": "specs are cdigen's own, and have its hook",
    "flags.gfd": "the node's labels are those of 'kubelet: {labels}'",
    "flags.useNodeFeatureAPI": "labels go by a file: 'kubelet: {labels}'",
    "health": "the daemon watches health: 'health: {ignore: [xid-31]}' in the configuration of cdigen",
}
# Families by the key that adds them.
_FAMILIES = {"gdsEnabled": "gds", "mofedEnabled": "mofed", "gdrcopyEnabled": "gdrcopy"}
# What a word of deviceListStrategy is with us: a way to name CDI devices, or why there is none.
_ANSWERS = {"cdi-cri": "cdi_devices", "cdi-annotations": "annotation"}
_OTHER_LISTS = {
    "envvar": "containers get GPUs by CDI names; 'kubelet: {environment: true}' sets the variable as well",
    "volume-mounts": "containers get GPUs by CDI names",
}


def apply(settings: KubeletConfig, data: bytes, *, file: str) -> tuple[KubeletConfig, tuple[Finding, ...]]:
    """Return SETTINGS with what the text DATA of NVIDIA's FILE says, and findings on the rest.

    Errors are values that are wrong, warnings what is not done or not known, and infos what is not needed. A
    file that is no configuration of NVIDIA's changes nothing.
    """
    reading = _Reading(file, settings)
    if len(data) > MAX_SIZE:
        reading.add("error", None, f"the file is larger than {MAX_SIZE} bytes")
        return settings, tuple(reading.found)
    try:
        root = compose(data, file)
    except NoTreeError as error:
        return settings, (error.finding,)
    if root is None or form(root) != "mapping":
        reading.add("error", root, "the file is not a mapping of keys to values")
        return settings, tuple(reading.found)
    top = {text_of(key): value for key, value in pairs_of(root)}
    if "kind" in top and text_of(top["kind"]) == "ConfigMap":
        text = "the file is a ConfigMap of Kubernetes; what is meant is one of the files in its data"
        reading.add("error", top["kind"], text)
        return settings, tuple(reading.found)
    given = top.get("version")
    # NVIDIA's plugin takes a file without one as the first.
    if given is not None and text_of(given) != VERSION:
        reading.add("error", given, f"version must be {VERSION!r}, not {described(given)}")
        return settings, tuple(reading.found)
    reading.mapping(root, "", reading.top())
    return reading.settings, tuple(sorted(reading.found, key=lambda found: found.place or (0, 0)))


class _Reading:
    """One file being read: gathers settings and findings."""

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
        """Read the mapping NODE, found at the path AT, by the READERS of its keys."""
        if form(node) == "null":
            return
        if form(node) != "mapping":
            self.add("error", node, f"{at} must be a mapping, not {described(node)}")
            return
        # Go's reader of JSON, by which NVIDIA's plugin reads YAML, too, takes keys in any case of letters.
        known = {name.lower(): name for name in (*readers, *(path.rpartition(".")[2] for path in _NOT_DONE))}
        seen = set()
        for key, value in pairs_of(node):
            name = known.get(text_of(key).lower(), shown(text_of(key)))
            path = f"{at}.{name}".lstrip(".")
            if name in seen:
                self.add("error", key, f"{path} is given a second time, which is passed over")
            elif name in readers:
                readers[name](value, path)
            elif path in _NOT_DONE:
                self.add("info", key, f"{path} is not needed: {_NOT_DONE[path]}")
            else:
                self.add("warning", key, f"{path[:_MAX_SHOWN]} is unknown, and passed over")
            seen.add(name)

    def add(self, severity: Severity, node: yaml.Node | None, text: str) -> None:
        """Note what is wrong with NODE."""
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
                    "deviceIDStrategy": self._only("uuid", "the kubelet knows GPUs by their UUIDs"),
                    "cdiAnnotationPrefix": self._only("cdi.k8s.io/", "runtimes read this one"),
                    "sharedDevicesAllocationPolicy": self._allocation,
                },
            ),
        }

    def _imex(self) -> Mapping[str, Callable[[yaml.Node, str], None]]:
        return {"channelIDs": self._channels, "required": self._required}

    def _mig_strategy(self, node: yaml.Node, at: str) -> None:
        if node.value in MIG_STRATEGIES:
            self._set(mig_strategy=node.value)
        elif form(node) != "null":
            self.add("error", node, f"{at} must be one of {', '.join(MIG_STRATEGIES)}, not {described(node)}")

    def _mps_root(self, node: yaml.Node, at: str) -> None:
        value = text_of(node)
        if value.startswith("/") and ".." not in value.split("/") and value.isprintable():
            self._set(mps_root=value)
        elif value and form(node) != "null":
            self.add("error", node, f"{at} must be an absolute path, not {described(node)}")

    def _family(self, node: yaml.Node, at: str) -> None:
        family = _FAMILIES[at.rpartition(".")[2]]
        given = self._flag(node, at)
        if given is not None:
            others = tuple(each for each in self.settings.families if each != family)
            self._set(families=(*others, family) if given else others)

    def _pass_device_specs(self, node: yaml.Node, at: str) -> None:
        given = self._flag(node, at)
        if given is not None:
            self._set(device_nodes=given)

    def _device_lists(self, node: yaml.Node, at: str) -> None:
        """Read one word, words with commas between them, or a list of words."""
        items = node.value if form(node) == "list" else [node]
        words = [(item, word.strip()) for item in items for word in text_of(item).split(",")]
        for item, word in words:
            if word in _OTHER_LISTS:
                severity: Severity = "info" if word == "envvar" else "warning"
                self.add(severity, item, f"{at}: {word} is not done: {_OTHER_LISTS[word]}")
            elif word not in _ANSWERS and form(item) != "null":
                self.add("error", item, f"{at} has {quoted(word)}, which is no strategy")
        answer = tuple(dict.fromkeys(_ANSWERS[word] for _, word in words if word in _ANSWERS))
        if answer:
            self._set(answer=answer)

    def _allocation(self, node: yaml.Node, at: str) -> None:
        if text_of(node) in {"distributed", "packed"}:
            self._set(shared_allocation=node.value)
        elif form(node) != "null":
            self.add("error", node, f"{at} must be distributed or packed, not {described(node)}")

    def _only(self, value: str, reason: str) -> Callable[[yaml.Node, str], None]:
        """Return the reader of a key of which VALUE alone is done."""

        def read(node: yaml.Node, at: str) -> None:
            if form(node) != "null" and text_of(node) not in {value, ""}:
                self.add("warning", node, f"{at}: {quoted(text_of(node))} is not done: {reason}")

        return read

    def _channels(self, node: yaml.Node, at: str) -> None:
        given = [text_of(item) for item in node.value] if form(node) == "list" else None
        if given == ["0"]:
            self._set(families=tuple(dict.fromkeys((*self.settings.families, "imex"))))
        elif (given is None and form(node) != "null") or given:
            self.add("error", node, f"{at} must be [] or [0], not {described(node)}")

    def _required(self, node: yaml.Node, at: str) -> None:
        if self._flag(node, at):
            text = f"{at} is not done: a family that no spec offers is left out, and reported"
            self.add("warning", node, text)

    def _names(self, node: yaml.Node, at: str) -> None:
        """Read other names by patterns, which NVIDIA's plugin has code for and does not allow."""
        rows: list[ResourceRow] = []
        for item in self._items(node, at):
            given: dict[str, str] = {}
            self.mapping(item, at, {"name": _into(given, "name"), "pattern": _into(given, "pattern")})
            name = self._resource(item, f"{at}.name", given.get("name", ""))
            if "pattern" not in given:
                self.add("error", item, f"{at}.pattern is missing")
            elif name:
                # Theirs match anywhere in a name.
                patterns = (f"*{given['pattern']}*",)
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
            self.add("info", node, f"{at} is done here; NVIDIA's plugin passes it over")
        self._set(resources=(*rows, *self.settings.resources))

    def _sharing(self, node: yaml.Node, at: str) -> None:
        given = {text_of(key): value for key, value in pairs_of(node)} if form(node) == "mapping" else {}
        has_mps = "mps" in given and form(given["mps"]) != "null"
        if has_mps and "timeSlicing" in given and form(given["timeSlicing"]) != "null":
            self.add("warning", given["timeSlicing"], f"{at}.timeSlicing does not count beside {at}.mps")
        readers = {
            "timeSlicing": lambda value, path: None if has_mps else self._shares(value, path, mps=False),
            "mps": lambda value, path: self._shares(value, path, mps=True),
        }
        self.mapping(node, at, readers)

    def _shares(self, node: yaml.Node, at: str, *, mps: bool) -> None:
        flags: dict[str, bool] = {}
        rows: list[SharingRow] = []

        def read_flag(value: yaml.Node, path: str) -> None:
            given = self._flag(value, path)
            if given is not None:
                flags[path.rpartition(".")[2]] = given

        def read_rows(value: yaml.Node, path: str) -> None:
            rows.extend(row for item in self._items(value, path) if (row := self._row(item, path, mps=mps)))

        self.mapping(
            node,
            at,
            {
                "strategy": self._only("", "there is one way to share time"),
                "renameByDefault": read_flag,
                "failRequestsGreaterThanOne": read_flag,
                "resources": read_rows,
            },
        )
        self._set(
            sharing=(*rows, *self.settings.sharing),
            rename_shared=flags.get("renameByDefault", self.settings.rename_shared),
            single_shares=flags.get("failRequestsGreaterThanOne", mps or self.settings.single_shares),
        )

    def _row(self, node: yaml.Node, at: str, *, mps: bool) -> SharingRow | None:
        given: dict[str, str] = {}
        devices: list[tuple[str, ...] | None] = [()]
        has_count = [False]

        def read_devices(value: yaml.Node, path: str) -> None:
            devices[0] = self._devices(value, path)
            has_count[0] = form(value) == "int"

        self.mapping(
            node,
            at,
            {
                "name": _into(given, "name"),
                "replicas": _into(given, "replicas"),
                "rename": _into(given, "rename"),
                "devices": read_devices,
            },
        )
        name = self._resource(node, f"{at}.name", given.get("name", ""))
        rename = self._resource(node, f"{at}.rename", given["rename"]) if given.get("rename") else ""
        replicas = given.get("replicas", "")
        if not re.fullmatch("[1-9][0-9]{0,8}", replicas) or int(replicas) > MAX_REPLICAS:
            said = quoted(replicas) if replicas else "missing"
            self.add("error", node, f"{at}.replicas must be a number from 1 to {MAX_REPLICAS}, and is {said}")
            return None
        if not name or rename is None or devices[0] is None:
            return None
        if has_count[0] and name != f"{_PREFIX}gpu":
            self.add(
                "error", node, f"{at}.devices: a count is of GPUs alone, not of {name}; name the devices"
            )
            return None
        return SharingRow(resource=name, replicas=int(replicas), devices=devices[0], rename=rename, mps=mps)

    def _devices(self, node: yaml.Node, at: str) -> tuple[str, ...] | None:
        """Return the devices of a row, none for all, None where they are wrong."""
        if form(node) == "null" or node.value == _ALL:
            return ()
        self.add("info", node, f"{at} is done here; NVIDIA's plugin shares all devices whatever it says")
        if form(node) == "list" and node.value and all(isinstance(item.value, str) for item in node.value):
            return tuple(dict.fromkeys(item.value for item in node.value))
        if form(node) == "int" and re.fullmatch("[1-9][0-9]{0,3}", text_of(node)):
            return tuple(map(str, range(int(text_of(node)))))
        self.add("error", node, f"{at} must be 'all', a count or a list of devices, not {described(node)}")
        return None

    def _resource(self, node: yaml.Node, at: str, name: str) -> str | None:
        own = name.removeprefix(_PREFIX)
        if _NAME.fullmatch(own):
            return f"{_PREFIX}{own}"
        self.add(
            "error",
            node,
            f"{at} must be a name such as {_PREFIX}gpu, and is {quoted(name) if name else 'missing'}",
        )
        return None

    def _items(self, node: yaml.Node, at: str) -> list[yaml.Node]:
        if form(node) == "list":
            return list(node.value)
        if form(node) != "null":
            self.add("error", node, f"{at} must be a list, not {described(node)}")
        return []

    def _flag(self, node: yaml.Node, at: str) -> bool | None:
        """Return whether NODE says so, None where it says nothing."""
        given = _TRUE.get(text_of(node).lower()) if form(node) in {"bool", "text"} else None
        if given is None and form(node) != "null":
            self.add("error", node, f"{at} must be true or false, not {described(node)}")
        return given


def _into(given: dict[str, str], name: str) -> Callable[[yaml.Node, str], None]:
    """Return the reader that puts a text or a number into GIVEN."""

    def read(node: yaml.Node, _: str) -> None:
        given[name] = text_of(node)

    return read
