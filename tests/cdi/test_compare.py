"""The differences between two specs."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.values.spec_documents import plain, rich

from cdigen.cdi.compare import NO_EDITS, Changes, EditChanges, compare

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/specs/debian13-8xh100.json"
KEYS = (
    *("cdiVersion", "kind", "devices", "name", "annotations", "containerEdits", "env", "deviceNodes", "path"),
    *("mounts", "hostPath", "containerPath", "hooks", "args", "additionalGids", "intelRdt"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=20,
)


def device(name: str, *nodes: str) -> dict[str, Any]:
    return {"name": name, "containerEdits": {"deviceNodes": [{"path": node} for node in nodes]}}


def spec(*devices: dict[str, Any], **edits: object) -> dict[str, Any]:
    return {"cdiVersion": "0.5.0", "kind": "v.com/gpu", "devices": list(devices), "containerEdits": edits}


def mount(host: str, container: str) -> dict[str, object]:
    return {"hostPath": host, "containerPath": container, "options": ["ro"]}


def test_a_spec_does_not_differ_from_itself() -> None:
    changes = compare(rich(), rich())
    assert not changes.any()
    assert changes.summary() == "no difference"


def test_added_and_removed_devices_are_listed() -> None:
    changes = compare(
        spec(device("0", "/dev/a"), device("1", "/dev/b")), spec(device("1", "/dev/b"), device("2"))
    )
    assert (changes.added, changes.removed, changes.changed()) == (("2",), ("0",), ())
    assert changes.summary() == "+1 device, -1 device"


def test_a_missing_file_has_no_devices() -> None:
    assert compare(None, spec(device("0"))).added == ("0",)
    assert compare(spec(device("0")), None).removed == ("0",)


def test_a_device_whose_nodes_differ_is_changed_and_its_edits_are_listed() -> None:
    old, new = (
        spec(device("0", "/dev/a", "/dev/b"), device("1")),
        spec(device("0", "/dev/a", "/dev/c"), device("1")),
    )
    changes = compare(old, new)
    assert changes.changed() == ("0",)
    assert changes.devices == (("0", EditChanges(added=("node /dev/c",), removed=("node /dev/b",))),)
    assert changes.shared == NO_EDITS


def test_a_change_of_shared_edits_changes_every_kept_device() -> None:
    old = spec(device("0"), device("1"), mounts=[mount("/lib/a.so.1", "/lib/a.so")], env=["A=1", "B=1"])
    new = spec(device("1"), device("2"), mounts=[mount("/lib/a.so.2", "/lib/a.so")], env=["A=2", "C=1"])
    changes = compare(old, new)
    assert changes.changed() == ("1",)
    assert changes.shared == EditChanges(
        added=("env C",), removed=("env B",), changed=("env A", "mount /lib/a.so")
    )


def test_a_json_row_has_the_documented_keys() -> None:
    row = compare(spec(device("0")), spec(device("0", "/dev/a"), device("1"))).row("v.com/gpu", "/f.json")
    assert {key: row[key] for key in ("kind", "file", "added", "removed", "changed")} == {
        "kind": "v.com/gpu",
        "file": "/f.json",
        "added": ["1"],
        "removed": [],
        "changed": ["0"],
    }
    assert row["edits"] == [{"device": "0", "added": ["node /dev/a"], "removed": [], "changed": []}]
    json.dumps(row)


def test_hooks_of_the_same_program_are_distinguished_by_the_first_argument() -> None:
    def hook(*words: str) -> dict[str, object]:
        return {"hookName": "createContainer", "path": "/usr/bin/hook", "args": ["hook", *words]}

    old = spec(hooks=[hook("update-ldcache", "--folder", "/a"), hook("chmod", "--mode", "755")])
    new = spec(hooks=[hook("chmod", "--mode", "755"), hook("update-ldcache", "--folder", "/b")])
    changed = ("hook createContainer /usr/bin/hook update-ldcache",)
    assert compare(old, new).shared == EditChanges(changed=changed)


def test_a_path_that_is_mounted_twice_has_two_entries() -> None:
    old = spec(mounts=[mount("/a", "/x"), mount("/b", "/x")])
    assert compare(old, spec(mounts=[mount("/a", "/x")])).shared.removed == ("mount /x #2",)


def test_another_order_is_a_difference_of_form_only() -> None:
    changes = compare(spec(device("0"), device("1")), spec(device("1"), device("0")))
    assert changes.any()
    assert (changes.changed(), changes.summary()) == ((), "only order or form differ")


@pytest.mark.parametrize("key", ["cdiVersion", "kind"])
def test_fields_of_the_document_itself_are_compared(key: str) -> None:
    assert compare(spec(device("0")), {**spec(device("0")), key: "other"}).shared.changed == (key,)


def test_a_driver_upgrade_is_summarized_with_its_versions() -> None:
    old = json.loads(EXAMPLE.read_text())
    text = EXAMPLE.read_text().replace("550.163.01", "560.35.03")
    changes = compare(old, json.loads(text))
    assert changes.versions == ("550.163.01", "560.35.03")
    assert changes.summary().endswith("changed (550.163.01 -> 560.35.03)")
    assert set(changes.changed()) == {each["name"] for each in old["devices"]}


def test_gids_and_intel_rdt_and_annotations_are_compared() -> None:
    old = spec({"name": "0", "annotations": {"a": "1"}, "containerEdits": {"intelRdt": {"closID": "x"}}})
    new = spec({"name": "0", "annotations": {"a": "2"}, "containerEdits": {"additionalGids": [44]}})
    ((_, edits),) = compare(old, new).devices
    assert edits == EditChanges(
        added=("additionalGids 44",), removed=("intelRdt",), changed=("annotation a",)
    )


@given(JSON, JSON)
def test_the_changes_between_two_documents_are_symmetric(one: object, other: object) -> None:
    there, back = compare(one, other), compare(other, one)
    assert (set(there.added), set(there.removed)) == (set(back.removed), set(back.added))
    assert there.any() == back.any()
    assert set(there.changed()) == set(back.changed())
    assert isinstance(there, Changes)
    json.dumps(there.row("k", "f"))


@given(JSON)
def test_any_document_is_equal_to_itself(one: object) -> None:
    assert not compare(one, json.loads(json.dumps(one))).any()


def test_unequal_documents_always_differ() -> None:
    assert compare(plain(), {**plain(), "unknown": 1}).any()
