"""The rules compared with an independent implementation of the CDI specification.

The schema in this module follows SPEC.md and specs-go/config.go, not schemas/. Python functions check the
constraints that a schema cannot express. The random documents have small changes to valid documents, so valid
and invalid documents are frequent.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.law_examples import examples

from cdigen.cdi.render import render
from cdigen.cdi.validation import validate_content

INT64, UINT32 = 2**63 - 1, 2**32 - 1


def closed(required: str = "", **fields: object) -> dict[str, object]:
    return {
        "type": "object",
        "properties": fields,
        "required": required.split(),
        "additionalProperties": False,
    }


def listed(items: object) -> dict[str, object]:
    return {"type": "array", "items": items}


TEXT: dict[str, object] = {"type": "string"}
PATH = {"type": "string", "pattern": r"\A/[^\n\0]*\Z"}
UNSIGNED = {"type": "integer", "minimum": 0, "maximum": UINT32}
NUMBER = {"type": "integer", "minimum": 0, "maximum": INT64}
ENV = listed({"type": "string", "pattern": r"\A[^=\n\0]+=[^\n\0]*\Z"})
HOOKS = ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"]
EDITS = closed(
    env=ENV,
    deviceNodes=listed(
        closed(
            "path",
            path=PATH,
            hostPath=PATH,
            type={"enum": ["b", "c", "p"]},
            major=NUMBER,
            minor=NUMBER,
            fileMode={"type": "integer", "minimum": 0, "maximum": 0o7777},
            permissions={"type": "string", "pattern": r"\A[rwm]*\Z"},
            uid=UNSIGNED,
            gid=UNSIGNED,
        )
    ),
    netDevices=listed(
        closed(
            "hostInterfaceName name",
            hostInterfaceName={"minLength": 1, **TEXT},
            name={"minLength": 1, **TEXT},
        )
    ),
    hooks=listed(
        closed(
            "hookName path",
            hookName={"enum": HOOKS},
            path=PATH,
            args=listed(TEXT),
            env=ENV,
            timeout={"type": "integer", "minimum": 1, "maximum": INT64},
        )
    ),
    mounts=listed(
        closed("hostPath containerPath", hostPath=PATH, containerPath=PATH, options=listed(TEXT), type=TEXT)
    ),
    intelRdt=closed(
        closID=TEXT,
        l3CacheSchema=TEXT,
        memBwSchema=TEXT,
        schemata=listed(TEXT),
        enableMonitoring={"type": "boolean"},
    ),
    additionalGids=listed({"type": "integer", "minimum": 1, "maximum": UINT32}),
)
ANNOTATIONS = {"type": "object", "additionalProperties": TEXT}
STRICT = Draft202012Validator(
    closed(
        "cdiVersion kind devices",
        cdiVersion=TEXT,
        kind=TEXT,
        annotations=ANNOTATIONS,
        containerEdits=EDITS,
        devices={
            "minItems": 1,
            **listed(closed("name containerEdits", name=TEXT, annotations=ANNOTATIONS, containerEdits=EDITS)),
        },
    )
)
PART = r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]"
VERSIONS = ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"]


def is_strictly_good(document: Any) -> bool:
    """Return whether DOCUMENT is a spec that every library of its version accepts and a kernel can apply."""
    if not STRICT.is_valid(document) or holds_float(document):
        return False
    every = [
        document.get("containerEdits", {}),
        *(device["containerEdits"] for device in document["devices"]),
    ]
    names = [device["name"] for device in document["devices"]]
    return (
        document["cdiVersion"] in VERSIONS
        and VERSIONS.index(document["cdiVersion"]) >= VERSIONS.index(needed(document, every))
        and re.fullmatch(f"{PART}/{PART}", document["kind"]) is not None
        and all(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", name) for name in names)
        and len(set(names)) == len(names)
        and all(changes(device["containerEdits"]) for device in document["devices"])
        and all(map(fits, every))
        and all(
            is_key(key) for owner in (document, *document["devices"]) for key in owner.get("annotations", {})
        )
    )


def holds_float(value: object) -> bool:
    if isinstance(value, dict | list):
        return any(map(holds_float, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float)


def changes(edits: dict[str, Any]) -> bool:
    return "intelRdt" in edits or any(edits.values())


def is_key(key: str) -> bool:
    name = r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
    label = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
    return re.fullmatch(rf"({label}(\.{label})*/)?{name}", key) is not None


def fits(edits: dict[str, Any]) -> bool:
    """Return whether EDITS satisfy the constraints that a schema cannot express."""
    nodes, nets = edits.get("deviceNodes", []), edits.get("netDevices", [])
    paths = [node[field] for node in nodes for field in ("path", "hostPath") if field in node]
    closid = edits.get("intelRdt", {}).get("closID", "")
    return (
        all(part not in ("", ".", "..") for path in paths for part in path[1:].split("/"))
        and all(
            m.get("type") or {"bind", "rbind"} & set(m.get("options", [])) for m in edits.get("mounts", [])
        )
        and all(len({net[field] for net in nets}) == len(nets) for field in ("hostInterfaceName", "name"))
        and (closid == "/" or (closid not in (".", "..") and "/" not in closid and "\n" not in closid))
    )


def needed(document: dict[str, Any], every: list[dict[str, Any]]) -> str:
    """Return the lowest version that the table of changes in SPEC.md permits."""
    nodes = [node for edits in every for node in edits.get("deviceNodes", [])]
    mounts = [mount for edits in every for mount in edits.get("mounts", [])]
    rdts = [edits["intelRdt"] for edits in every if "intelRdt" in edits]
    if any(e.get("netDevices") for e in every) or any(
        "schemata" in r or r.get("enableMonitoring") for r in rdts
    ):
        return "1.1.0"
    if rdts or any(edits.get("additionalGids") for edits in every):
        return "0.7.0"
    if "." in document["kind"].split("/", 1)[-1] or any(
        owner.get("annotations") for owner in (document, *document["devices"])
    ):
        return "0.6.0"
    if any(d["name"][:1].isdigit() for d in document["devices"]) or any(
        node.get("hostPath") for node in nodes
    ):
        return "0.5.0"
    return "0.4.0" if any(mount.get("type") for mount in mounts) else "0.3.0"


GOOD: list[dict[str, Any]] = [
    {
        "cdiVersion": "1.1.0",
        "kind": "vendor.com/gpu.large",
        "annotations": {"example.com/a": "b"},
        "devices": [
            {"name": "0", "annotations": {"k": "v"}, "containerEdits": {"env": ["A=B", "C="]}},
            {
                "name": "g:1",
                "containerEdits": {
                    "deviceNodes": [
                        {"path": "/dev/a", "hostPath": "/dev/b", "type": "c", "major": 1, "minor": 2},
                        {"path": "/dev/b", "fileMode": 438, "permissions": "rw", "uid": 0, "gid": 5},
                    ],
                    "netDevices": [
                        {"hostInterfaceName": "a", "name": "b"},
                        {"hostInterfaceName": "c", "name": "d"},
                    ],
                },
            },
        ],
        "containerEdits": {
            "mounts": [
                {"hostPath": "/a", "containerPath": "/b", "type": "bind", "options": ["ro"]},
                {"hostPath": "/a", "containerPath": "/c", "options": ["rbind"]},
            ],
            "hooks": [
                {"hookName": "createContainer", "path": "/h", "args": ["h"], "env": ["P=1"], "timeout": 5}
            ],
            "intelRdt": {"closID": "c", "l3CacheSchema": "x", "schemata": ["y"], "enableMonitoring": True},
            "additionalGids": [44],
        },
    },
    {
        "cdiVersion": "0.3.0",
        "kind": "vendor.com/gpu",
        "devices": [{"name": "gpu", "containerEdits": {"deviceNodes": [{"path": "/dev/a"}]}}],
        "containerEdits": {"mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["bind"]}]},
    },
]
SAMPLES: tuple[object, ...] = (
    None, True, False, 0, 1, -1, 438, 4096, UINT32, UINT32 + 1, INT64, INT64 + 1, 1.0, 1.5, [], {}, [None],
    [{}], "", "a", "A=B", "=B", "A", "A=\n", "A=\0", "/", "/dev/x", "/dev/../x", "/dev/", "//a", "dev",
    "/a\n", "é=1", "0", "a:b", "-a", "a b", "v/g", "vv/gg", "vv/g.g", "vv/g/g", "vv/", "1v/gg", "vv/gg\n",
    "b", "u", "p", "rwm", "x", "none", "bind", "rbind", "prestart", "createContainer", "custom", "..",
    "c/d", *VERSIONS, "0.2.0", "1.2.0", "0.5", ["A=B"], ["A"], ["ro"], ["rbind"], [1], [0], [44],
    {"a": "b"}, {"a": 1}, {"a b": "c"}, {"a/b/c": "d"}, {"x": {}},
)  # fmt: skip
KEYS = (
    *("cdiVersion", "CDIVersion", "kind", "annotations", "name", "env", "type", "hostPath", "timeout", "x"),
    *("options", "schemata", "enableMonitoring", "netDevices", "additionalGids", "intelRdt", "major"),
)


def containers(value: object) -> list[Any]:
    found: list[Any] = []
    waiting = [value]
    while waiting:
        top = waiting.pop()
        if isinstance(top, dict | list):
            found.append(top)
            waiting.extend(top.values() if isinstance(top, dict) else top)
    return found


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Return a strategy for copies of a valid document with up to three changes."""
    document: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(0, 3))):
        target = draw(st.sampled_from(containers(document)))
        value = copy.deepcopy(draw(st.sampled_from((*SAMPLES, *containers(document)))))
        if isinstance(target, list):
            index = draw(st.integers(0, len(target)))
            target[index : index + draw(st.integers(0, 1))] = draw(st.sampled_from(([value], [])))
            continue
        key = draw(st.sampled_from((*target, *target, *KEYS)))
        if key in target and draw(st.integers(0, 3)) == 0:
            del target[key]
        else:
            target[key] = value
    return document


@examples(4)
@given(documents())
def test_the_rules_accept_exactly_the_documents_that_the_strict_implementation_accepts(
    document: dict[str, Any],
) -> None:
    findings = validate_content(render(document), yaml=False).findings
    is_valid = not any(found.severity == "error" for found in findings)
    assert is_valid is is_strictly_good(document), (document, findings)


def test_the_strict_implementation_distinguishes_valid_and_invalid_documents() -> None:
    assert all(map(is_strictly_good, GOOD))
    assert not is_strictly_good({**GOOD[0], "cdiVersion": "1.0.0"})
    assert not is_strictly_good({**GOOD[1], "x": 1})
