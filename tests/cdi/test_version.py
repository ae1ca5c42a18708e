from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.values.spec_documents import plain, rich, with_edits

from cdigen.cdi.version import KNOWN_VERSIONS, is_newer, minimum_version, release_order


def device(name: str = "gpu", **edits: object) -> dict[str, object]:
    return {"kind": "vendor.com/gpu", "devices": [{"name": name, "containerEdits": edits}]}


@pytest.mark.parametrize(
    ("document", "version"),
    [
        ({}, "0.3.0"),
        (device(), "0.3.0"),
        (device(mounts=[{"type": ""}]), "0.3.0"),
        (device(mounts=[{"type": "bind"}]), "0.4.0"),
        (device("0"), "0.5.0"),
        (device(deviceNodes=[{"path": "/dev/x", "hostPath": "/dev/x"}]), "0.5.0"),
        (device(deviceNodes=[{"path": "/dev/x", "hostPath": ""}]), "0.3.0"),
        (device() | {"annotations": {"a": "b"}}, "0.6.0"),
        (device() | {"annotations": {}}, "0.3.0"),
        ({"devices": [{"name": "a", "annotations": {"a": "b"}}]}, "0.6.0"),
        ({"kind": "vendor.com/g.pu"}, "0.6.0"),
        ({"kind": "vendor.com/a/g.pu"}, "0.6.0"),
        (device(intelRdt={}), "0.7.0"),
        (device(intelRdt=None), "0.3.0"),
        (device(additionalGids=[0]), "0.7.0"),
        (device(additionalGids=[]), "0.3.0"),
        (device(intelRdt={"schemata": []}), "1.1.0"),
        (device(intelRdt={"schemata": None, "enableMonitoring": False}), "0.7.0"),
        (device(intelRdt={"enableMonitoring": True}), "1.1.0"),
        (device(netDevices=[{}]), "1.1.0"),
        ({"containerEdits": {"additionalGids": [1]}}, "0.7.0"),
        (plain(), "0.5.0"),
        (rich(), "1.1.0"),
        (with_edits(), "0.5.0"),
    ],
)
def test_the_newest_feature_determines_the_version(document: dict[str, object], version: str) -> None:
    assert minimum_version(document) == version


JSON = st.recursive(
    st.sampled_from([None, True, 0, 1.5, "", "a", "0", "a/b.c"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "devices", "containerEdits", "intelRdt", "deviceNodes", "mounts", "kind", "name",
                    "annotations",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["devices", "containerEdits", "kind", "annotations"]), JSON))
def test_a_document_of_any_shape_has_a_version(document: dict[str, object]) -> None:
    assert minimum_version(document) in KNOWN_VERSIONS


def test_versions_are_ordered_by_release_and_not_by_text() -> None:
    assert sorted(["1.1.0", "0.10.0", "0.9.0"], key=release_order) == ["0.9.0", "0.10.0", "1.1.0"]
    assert is_newer("0.10.0", "0.9.0")
    assert not is_newer("0.9.0", "0.9.0")
    assert sorted(KNOWN_VERSIONS, key=release_order) == list(KNOWN_VERSIONS)
