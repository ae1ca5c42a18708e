from __future__ import annotations

import subprocess
import sys
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.values.spec_documents import Document, plain, rich, with_edits, with_hook, with_mount, with_node

from cdigen.cdi.rules.document_rules import check, is_annotation_key
from cdigen.cdi.rules.fields import MAX_PATH, MAX_TEXT

DEVICE = "$.devices[0]"
EDITS = "$.devices[0].containerEdits"
NODE = f"{EDITS}.deviceNodes[0]"
MOUNT = f"{EDITS}.mounts[0]"
HOOK = f"{EDITS}.hooks[0]"


def found(document: object) -> set[tuple[str, str]]:
    """Return rule and path of every finding except the advice on the version."""
    return {(f.rule, f.path) for f in check(document) if f.rule != "version-higher-than-needed"}


def plain_with(**fields: object) -> Document:
    return {**plain(), **fields}


def named(name: object) -> Document:
    return plain_with(devices=[{"name": name, "containerEdits": {"env": ["A=B"]}}])


def without(document: Document, key: str) -> Document:
    del document[key]
    return document


def test_a_plain_document_has_no_finding() -> None:
    assert check(plain()) == ()


def test_a_document_with_every_field_has_no_error() -> None:
    assert [finding.line() for finding in check(rich()) if finding.severity == "error"] == []


@pytest.mark.parametrize(
    ("document", "rule", "path"),
    [
        ([], "not-an-object", "$"),
        (None, "not-an-object", "$"),
        (plain_with(foo=1), "unknown-field", "$.foo"),
        (plain_with(**{"not a name": 1}), "unknown-field", '$["not a name"]'),
        (plain_with(Kind="a.b/cd"), "unknown-field", "$.Kind"),
        (without(plain(), "kind"), "missing-field", "$"),
        (plain_with(devices=[{"name": "0"}]), "missing-field", DEVICE),
        (plain_with(devices={}), "wrong-type", "$.devices"),
        (plain_with(devices=[None]), "wrong-type", DEVICE),
        (plain_with(containerEdits=[]), "wrong-type", "$.containerEdits"),
        (plain_with(containerEdits=None), "wrong-type", "$.containerEdits"),
        (plain_with(cdiVersion=0.5), "wrong-type", "$.cdiVersion"),
        (plain_with(cdiVersion="0.5.1"), "version-unknown", "$.cdiVersion"),
        (plain_with(cdiVersion="v0.5.0"), "version-unknown", "$.cdiVersion"),
        (plain_with(cdiVersion="1.2.0"), "version-unknown", "$.cdiVersion"),
        (plain_with(cdiVersion="0.4.0"), "version-too-low", "$.cdiVersion"),
        ({**named("a"), "cdiVersion": "0.2.0"}, "version-too-low", "$.cdiVersion"),
        (plain_with(kind=5), "wrong-type", "$.kind"),
        (plain_with(kind="vendor.com"), "kind-syntax", "$.kind"),
        (plain_with(kind="3dfx.com/gpu"), "kind-syntax", "$.kind"),
        (plain_with(kind="vendor.com/gpu/x"), "kind-syntax", "$.kind"),
        (plain_with(kind="vendor.com/gpu\n"), "kind-syntax", "$.kind"),
        (plain_with(kind="/gpu"), "kind-syntax", "$.kind"),
        (plain_with(kind="v" * 254 + "/gpu"), "kind-length", "$.kind"),
        (plain_with(kind="vendor.com/" + "g" * 64), "kind-length", "$.kind"),
        (plain_with(kind="v/gpu"), "kind-one-letter", "$.kind"),
        (plain_with(kind="vendor.com/g"), "kind-one-letter", "$.kind"),
        (plain_with(kind="Vendor.com/gpu"), "kind-not-dns", "$.kind"),
        (plain_with(annotations=[]), "wrong-type", "$.annotations"),
        (plain_with(annotations={"a": 1}), "wrong-type", "$.annotations.a"),
        (plain_with(annotations={"bad key!": "x"}), "annotation-key", '$.annotations["bad key!"]'),
        (plain_with(annotations={"k": "x" * 300_000}), "annotation-size", "$.annotations"),
        (plain_with(devices=[]), "devices-empty", "$.devices"),
        (named("a=b"), "device-name", f"{DEVICE}.name"),
        (named(""), "device-name", f"{DEVICE}.name"),
        (named("a\n"), "device-name", f"{DEVICE}.name"),
        (named("é"), "device-name", f"{DEVICE}.name"),
        (named("a" * 254), "string-too-long", f"{DEVICE}.name"),
        (named(0), "wrong-type", f"{DEVICE}.name"),
        (plain_with(devices=plain()["devices"] * 2), "device-duplicate", "$.devices[1].name"),
        (plain_with(devices=[{"name": "0", "containerEdits": {}}]), "device-edits-empty", EDITS),
        (plain_with(devices=[{"name": "0", "containerEdits": {"env": []}}]), "device-edits-empty", EDITS),
        (with_edits(foo=[]), "unknown-field", f"{EDITS}.foo"),
        (with_edits(env="A=B"), "wrong-type", f"{EDITS}.env"),
        (with_edits(env=[1]), "wrong-type", f"{EDITS}.env[0]"),
        (with_edits(env=[None]), "wrong-type", f"{EDITS}.env[0]"),
        (with_edits(env=["A=B", "FOO"]), "env-syntax", f"{EDITS}.env[1]"),
        (with_edits(env=["=B"]), "env-syntax", f"{EDITS}.env[0]"),
        (with_edits(env=["A=\x00"]), "env-control-character", f"{EDITS}.env[0]"),
        (with_edits(env=["A=b\n"]), "env-control-character", f"{EDITS}.env[0]"),
        (with_edits(env=["A=\ud800"]), "lone-surrogate", f"{EDITS}.env[0]"),
        (with_edits(env=["A=" + "x" * MAX_TEXT]), "string-too-long", f"{EDITS}.env[0]"),
        (with_edits(env=["A=1", "A=2"]), "env-repeated", f"{EDITS}.env[1]"),
        (with_edits(deviceNodes=[None]), "null-entry", NODE),
        (with_edits(hooks=[None]), "null-entry", HOOK),
        (with_edits(mounts=[None]), "null-entry", MOUNT),
        (with_edits(netDevices=[None]), "null-entry", f"{EDITS}.netDevices[0]"),
        (with_node(path="dev/x"), "path-not-absolute", f"{NODE}.path"),
        (with_node(path=""), "path-not-absolute", f"{NODE}.path"),
        (with_node(path="/"), "path-not-clean", f"{NODE}.path"),
        (with_node(path="/dev//x"), "path-not-clean", f"{NODE}.path"),
        (with_node(path="/dev/../x"), "path-not-clean", f"{NODE}.path"),
        (with_node(path="/dev/x/"), "path-not-clean", f"{NODE}.path"),
        (with_node(path="/dev/x/."), "path-not-clean", f"{NODE}.path"),
        (with_node(path="/dev/x\n"), "path-control-character", f"{NODE}.path"),
        (with_node(path="/" + "é" * 2048), "string-too-long", f"{NODE}.path"),
        (with_node(hostPath="x"), "path-not-absolute", f"{NODE}.hostPath"),
        (with_node(hostPath="/dev/x"), "host-path-redundant", f"{NODE}.hostPath"),
        (with_node(type="u"), "node-type", f"{NODE}.type"),
        (with_node(type=""), "node-type", f"{NODE}.type"),
        (with_node(type=["c"]), "wrong-type", f"{NODE}.type"),
        (with_node(permissions="none"), "node-permissions", f"{NODE}.permissions"),
        (with_node(permissions=5), "wrong-type", f"{NODE}.permissions"),
        (with_node(fileMode="0666"), "wrong-type", f"{NODE}.fileMode"),
        (with_node(fileMode=0o10000), "node-file-mode", f"{NODE}.fileMode"),
        (with_node(fileMode=True), "wrong-type", f"{NODE}.fileMode"),
        (with_node(fileMode=438.0), "wrong-type", f"{NODE}.fileMode"),
        (with_node(major=-1), "node-number", f"{NODE}.major"),
        (with_node(major=10**5000), "node-number", f"{NODE}.major"),
        (with_node(major=195), "node-numbers-given", NODE),
        (with_node(uid=-1), "node-owner", f"{NODE}.uid"),
        (with_node(gid=2**32), "node-owner", f"{NODE}.gid"),
        (
            with_edits(deviceNodes=[{"path": "/a"}, {"path": "/a"}]),
            "path-repeated",
            f"{EDITS}.deviceNodes[1].path",
        ),
        (with_mount(hostPath="a"), "path-not-absolute", f"{MOUNT}.hostPath"),
        (with_mount(containerPath="/b/"), "path-unusual", f"{MOUNT}.containerPath"),
        (with_mount(options=[None]), "wrong-type", f"{MOUNT}.options[0]"),
        (with_mount(type=""), "mount-not-bind", MOUNT),
        (with_mount(type="", options=["ro"]), "mount-not-bind", MOUNT),
        (with_mount(type="", options=["rbind"]), "mount-type-missing", MOUNT),
        (with_hook(hookName="x"), "hook-name", f"{HOOK}.hookName"),
        (with_hook(hookName="prestart"), "hook-not-create-container", f"{HOOK}.hookName"),
        (with_hook(path="x"), "path-not-absolute", f"{HOOK}.path"),
        (with_hook(env=["A"]), "env-syntax", f"{HOOK}.env[0]"),
        (with_hook(env=[]), "hook-env-missing", HOOK),
        (with_hook(env=["LD_PRELOAD=/x"]), "hook-env-loader", f"{HOOK}.env"),
        (with_hook(timeout=0), "hook-timeout", f"{HOOK}.timeout"),
        (with_hook(timeout=None), "hook-timeout-missing", HOOK),
        (with_edits(additionalGids=[0]), "additional-gid", f"{EDITS}.additionalGids[0]"),
        (with_edits(additionalGids=[-1]), "additional-gid", f"{EDITS}.additionalGids[0]"),
        (with_edits(intelRdt=None), "wrong-type", f"{EDITS}.intelRdt"),
        (with_edits(intelRdt={"closID": ".."}), "rdt-closid", f"{EDITS}.intelRdt.closID"),
        (with_edits(intelRdt={"closID": "é" * 2048}), "rdt-closid", f"{EDITS}.intelRdt.closID"),
        (with_edits(intelRdt={"enableCMT": True}), "rdt-removed-field", f"{EDITS}.intelRdt.enableCMT"),
        (with_edits(intelRdt={"enableMonitoring": 1}), "wrong-type", f"{EDITS}.intelRdt.enableMonitoring"),
        (
            with_edits(netDevices=[{"hostInterfaceName": "", "name": "a"}]),
            "net-device-name",
            f"{EDITS}.netDevices[0].hostInterfaceName",
        ),
        (
            with_edits(netDevices=[{"hostInterfaceName": i, "name": "a"} for i in "xy"]),
            "net-device-duplicate",
            f"{EDITS}.netDevices[1].name",
        ),
    ],
)
def test_a_broken_rule_is_reported_with_its_path(document: object, rule: str, path: str) -> None:
    assert (rule, path) in found(document)


def test_independent_problems_are_all_reported() -> None:
    document = plain_with(
        kind="x", devices=[{"name": "a b", "containerEdits": {"env": ["A"], "hooks": [None]}}]
    )
    assert found(document) == {
        ("kind-syntax", "$.kind"),
        ("device-name", f"{DEVICE}.name"),
        ("env-syntax", f"{EDITS}.env[0]"),
        ("null-entry", HOOK),
    }


def test_a_version_above_the_minimum_is_a_warning_with_the_minimum() -> None:
    (finding,) = check(plain_with(cdiVersion="0.8.0"))
    assert (finding.rule, finding.severity) == ("version-higher-than-needed", "warning")
    assert "0.5.0" in finding.message


def test_texts_of_the_maximum_length_of_the_kernel_are_valid() -> None:
    document = with_edits(
        env=["A=" + "x" * (MAX_TEXT - 2)], deviceNodes=[{"path": "/" + "x" * (MAX_PATH - 1)}]
    )
    assert not [finding for finding in check(document) if finding.severity == "error"]


@pytest.mark.parametrize(
    ("key", "is_good"),
    [
        ("a", True),
        ("example.com/a_b.c-d", True),
        ("EXAMPLE.com/A", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("a" * 253 + "/a", True),
        ("a" * 254 + "/a", False),
        ("", False),
        ("/a", False),
        ("a/", False),
        ("a/b/c", False),
        ("-a", False),
        ("a..b/c", False),
        ("a-.b/c", False),
        ("\u212aind.com/a", False),
    ],
)
def test_annotation_keys_are_qualified_names(key: str, is_good: bool) -> None:  # noqa: FBT001
    assert is_annotation_key(key) is is_good


FIELDS = (
    "cdiVersion", "kind", "annotations", "devices", "containerEdits", "name", "env", "deviceNodes", "hooks",
    "netDevices", "mounts", "intelRdt", "additionalGids", "path", "hostPath", "type", "major", "fileMode",
    "permissions", "hookName", "timeout", "options", "containerPath", "closID",
)  # fmt: skip
VALUES = st.recursive(
    st.sampled_from([None, True, 0, -1, 10**30, 1.5, "", "a", "0.5.0", "a.b/c", "/x", "A=B", "\ud800", "\n"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6),
    max_leaves=25,
)


@given(VALUES)
def test_any_json_value_is_checked_without_an_exception(document: object) -> None:
    assert all(finding.rule and finding.path.startswith("$") for finding in check(document))


def test_a_thousand_devices_are_checked_within_fifty_milliseconds() -> None:
    nodes = ["nvidia", "dri/card", "dri/renderD"]
    document = plain_with(
        devices=[
            {
                "name": str(index),
                "containerEdits": {"deviceNodes": [{"path": f"/dev/{node}{index}"} for node in nodes]},
            }
            for index in range(1000)
        ]
    )
    times = []
    for _ in range(5):
        start = process_time()
        assert check(document) == ()
        times.append(process_time() - start)
    assert min(times) < 0.05


def test_the_rules_import_neither_yaml_nor_jsonschema_nor_typing() -> None:
    code = (
        "import sys, cdigen.cdi.rules.document_rules, cdigen.cdi.reader, cdigen.cdi.version\n"
        "print(sorted({'yaml', 'jsonschema', 'typing'} & sys.modules.keys()))"
    )
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout == "[]\n"
