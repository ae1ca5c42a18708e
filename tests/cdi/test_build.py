"""The document that is built from a draft: device `all`, order, lowest version, no empty fields."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.cdi.build import build
from cdigen.cdi.render import render
from cdigen.model.cdi import ContainerEdits, Device, DeviceNode, Draft, Mount
from cdigen.value import replace

KIND = "nvidia.com/gpu"
NOTHING = ContainerEdits()


def node(path: str, **fields: object) -> DeviceNode:
    return replace(DeviceNode(path=path), **fields)


def mount(path: str, source: str = "/a") -> Mount:
    return Mount(host_path=source, container_path=path, options=("ro", "rbind"))


def device(name: str, *nodes: str) -> Device:
    return Device(name=name, edits=ContainerEdits(device_nodes=tuple(node(path) for path in nodes)))


def draft(*devices: Device, edits: ContainerEdits = NOTHING, kind: str = KIND) -> Draft:
    return Draft(kind=kind, devices=devices, edits=edits)


def names(*devices: str) -> list[str]:
    return [entry["name"] for entry in build(draft(*(device(name, "/dev/a") for name in devices)))["devices"]]


def test_a_draft_can_omit_the_device_all() -> None:
    document = build(replace(draft(device("0", "/dev/a"), device("1", "/dev/b")), has_all=False))
    assert [entry["name"] for entry in document["devices"]] == ["0", "1"]


def test_a_document_has_the_content_of_the_draft_and_the_device_all() -> None:
    edits = ContainerEdits(
        env=("A=B",), device_nodes=(node("/dev/ctl", host_path="/srv/ctl", file_mode=0o640, gid=44),)
    )
    assert build(draft(device("0", "/dev/a"), edits=replace(edits, mounts=(mount("/lib"),)))) == {
        "cdiVersion": "0.5.0",
        "kind": KIND,
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": [{"path": "/dev/a", "permissions": "rw"}]}}
            for name in ("0", "all")
        ],
        "containerEdits": {
            "env": ["A=B"],
            "deviceNodes": [
                {"path": "/dev/ctl", "hostPath": "/srv/ctl", "fileMode": 416, "gid": 44, "permissions": "rw"}
            ],
            "mounts": [
                {"hostPath": "/a", "containerPath": "/lib", "type": "bind", "options": ["ro", "rbind"]}
            ],
        },
    }


def test_devices_are_in_natural_order_and_the_device_all_is_last() -> None:
    given = ("GPU-b", "10", "zebra", "2", "0", "GPU-a", "0:10", "0:9")
    assert names(*given) == ["0", "0:9", "0:10", "2", "10", "GPU-a", "GPU-b", "zebra", "all"]


def test_nodes_are_in_natural_order() -> None:
    document = build(draft(device("0", "/dev/nvidia10", "/dev/nvidia2", "/dev/dri/card1")))
    paths = [entry["path"] for entry in document["devices"][0]["containerEdits"]["deviceNodes"]]
    assert paths == ["/dev/dri/card1", "/dev/nvidia2", "/dev/nvidia10"]


def test_the_device_all_has_the_edits_of_a_gpu_with_two_names_once() -> None:
    document = build(draft(device("0", "/dev/a"), device("GPU-a", "/dev/a"), device("1", "/dev/b")))
    (every,) = [entry for entry in document["devices"] if entry["name"] == "all"]
    assert [entry["path"] for entry in every["containerEdits"]["deviceNodes"]] == ["/dev/a", "/dev/b"]


def test_a_device_all_of_the_draft_is_unchanged_and_last() -> None:
    document = build(draft(device("all", "/dev/a"), device("zebra", "/dev/b"), device("0", "/dev/c")))
    assert [entry["name"] for entry in document["devices"]] == ["0", "zebra", "all"]
    nodes = document["devices"][-1]["containerEdits"]["deviceNodes"]
    assert [entry["path"] for entry in nodes] == ["/dev/a"]


def test_a_draft_without_devices_has_no_device_all() -> None:
    assert build(draft())["devices"] == []


def test_empty_fields_are_omitted_from_the_document() -> None:
    document = build(draft(device("0", "/dev/a")))
    assert "containerEdits" not in document
    assert document["devices"][0]["containerEdits"].keys() == {"deviceNodes"}


@pytest.mark.parametrize(
    ("made", "version"),
    [
        (draft(device("gpu0", "/dev/a")), "0.3.0"),
        (draft(device("gpu0", "/dev/a"), edits=ContainerEdits(mounts=(mount("/lib"),))), "0.4.0"),
        (draft(device("0", "/dev/a")), "0.5.0"),
        (draft(device("gpu0", "/dev/a"), kind="nvidia.com/gpu.shared"), "0.6.0"),
    ],
)
def test_the_version_is_the_lowest_that_the_content_allows(made: Draft, version: str) -> None:
    assert build(made)["cdiVersion"] == version


PATHS = st.lists(
    st.sampled_from([f"/{letter}{number}" for letter in "ab" for number in (1, 2, 10)]), unique=True
)
EDITS = st.builds(
    ContainerEdits,
    env=st.lists(st.sampled_from(["A=1", "B=2", "C=3"]), unique=True).map(tuple),
    device_nodes=PATHS.map(lambda some: tuple(map(node, some))),
    mounts=PATHS.map(lambda some: tuple(map(mount, some))),
)
DRAFTS = st.builds(
    Draft,
    kind=st.just(KIND),
    devices=st.lists(
        st.builds(Device, name=st.text("019ab", min_size=1, max_size=3), edits=EDITS),
        unique_by=lambda device: device.name,
        max_size=6,
    ).map(tuple),
    edits=EDITS,
)


@given(DRAFTS)
def test_the_edits_of_the_device_all_are_the_edits_of_all_devices(drawn: Draft) -> None:
    *devices, every = build(drawn)["devices"] or [{"containerEdits": {}}]
    for field in ("env", "deviceNodes", "mounts"):
        union = {str(entry) for each in devices for entry in each["containerEdits"].get(field, ())}
        whole = [str(entry) for entry in every["containerEdits"].get(field, ())]
        assert set(whole) == union
        assert len(whole) == len(union)


@given(DRAFTS)
def test_the_document_has_exactly_the_devices_of_the_draft_and_the_device_all(drawn: Draft) -> None:
    made = [entry["name"] for entry in build(drawn)["devices"]]
    assert sorted(made) == sorted([device.name for device in drawn.devices] + ["all"] * bool(drawn.devices))


@given(DRAFTS, st.randoms(use_true_random=False))
def test_the_bytes_do_not_depend_on_the_order_of_the_draft(drawn: Draft, random: Random) -> None:
    def shuffled(edits: ContainerEdits) -> ContainerEdits:
        return ContainerEdits(
            env=tuple(random.sample(edits.env, len(edits.env))),
            device_nodes=tuple(random.sample(edits.device_nodes, len(edits.device_nodes))),
            mounts=tuple(random.sample(edits.mounts, len(edits.mounts))),
        )

    devices = [Device(name=each.name, edits=shuffled(each.edits)) for each in drawn.devices]
    random.shuffle(devices)
    other = Draft(kind=drawn.kind, devices=tuple(devices), edits=shuffled(drawn.edits))
    assert render(build(other)) == render(build(drawn))
