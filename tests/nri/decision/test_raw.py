"""cdigen converts a spec into an adjustment, for runtimes that drop CDI devices."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.paths import REPOSITORY

from cdigen.cdi.library import CdiLibrary
from cdigen.cdi.loaders.decoding import decode_document
from cdigen.host.root import Root
from cdigen.nri.decision.decide import IGNORED_REQUEST_CAUSES, IgnoredRequest
from cdigen.nri.decision.raw import PreparedSpec, prepare, raw_adjustment, read_node
from cdigen.nri.decision.request.refusal import REFUSAL_CAUSES, InjectionRefusal
from cdigen.nri.pods import Adjustment, ContainerDevice, ContainerHook, ContainerMount
from cdigen.nri.wire import messages

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.nri.decision.raw import NodeNumbers

EXAMPLE = REPOSITORY / "examples/specs/debian13-8xh100.json"
# A GPU's node as NVIDIA's driver makes it.
OPEN_NODE: NodeNumbers = ("c", 195, 0, 0o666, 0, 0)
RENDER_NODE: NodeNumbers = ("c", 226, 128, 0o660, 0, 105)


def spec(*devices: dict[str, Any], kind: str = "nvidia.com/gpu", **common: Any) -> PreparedSpec:
    """Return a spec whose devices have the edits DEVICES and the names 0, 1, 2 and so on."""
    entries = [{"name": str(number), "containerEdits": edits} for number, edits in enumerate(devices)]
    return prepared({"cdiVersion": "0.5.0", "kind": kind, "devices": entries, "containerEdits": common})


def prepared(document: dict[str, Any]) -> PreparedSpec:
    """Return the edits of DOCUMENT as the newest library decodes it, with all fields."""
    return prepare(decode_document(document, CdiLibrary((1, 1, 0))))


def adjusted(
    *devices: dict[str, Any], host: dict[str, NodeNumbers] | NodeNumbers = OPEN_NODE, **common: Any
) -> tuple[Adjustment, tuple[IgnoredRequest, ...]]:
    """Return the adjustment for all DEVICES of a spec. HOST has numbers for all nodes, or numbers by path."""
    one = spec(*devices, **common)

    def numbers(path: str) -> NodeNumbers:
        if not isinstance(host, dict):
            return host
        if path not in host:
            raise FileNotFoundError(2, "No such file or directory", path)
        return host[path]

    return raw_adjustment([(one, str(number)) for number in range(len(devices))], numbers)


def node(path: str = "/dev/nvidia0", **fields: Any) -> dict[str, Any]:
    return {"deviceNodes": [{"path": path, **fields}]}


def bind(source: str, destination: str) -> dict[str, Any]:
    return {"hostPath": source, "containerPath": destination, "type": "bind", "options": ["ro", "rbind"]}


def mounted(source: str, destination: str) -> ContainerMount:
    return ContainerMount(destination=destination, source=source, type="bind", options=("ro", "rbind"))


def refusal(*devices: dict[str, Any], **how: Any) -> InjectionRefusal:
    with pytest.raises(InjectionRefusal) as caught:
        adjusted(*devices, **how)
    assert caught.value.cause in REFUSAL_CAUSES
    assert "\n" not in caught.value.reason
    return caught.value


def test_nodes_mounts_variables_and_hooks_come_from_the_spec() -> None:
    hook = {
        "hookName": "createContainer",
        "path": "/usr/libexec/cdigen-hook",
        "args": ["cdigen-hook", "ldcache"],
        "env": ["PATH=/usr/bin"],
        "timeout": 10,
    }
    adjustment, ignored_requests = adjusted(
        node(), env=["NVIDIA_VISIBLE_DEVICES=void"], mounts=[bind("/lib/a.so", "/lib/a.so")], hooks=[hook]
    )
    assert adjustment == Adjustment(
        env={"NVIDIA_VISIBLE_DEVICES": "void"},
        mounts=(mounted("/lib/a.so", "/lib/a.so"),),
        devices=(
            ContainerDevice(path="/dev/nvidia0", type="c", major=195, minor=0, file_mode=0o666, uid=0, gid=0),
        ),
        hooks=(
            ContainerHook(
                stage="createContainer",
                path="/usr/libexec/cdigen-hook",
                args=("cdigen-hook", "ldcache"),
                env=("PATH=/usr/bin",),
                timeout=10,
            ),
        ),
    )
    assert ignored_requests == ()


def test_the_adjustment_fits_into_a_message() -> None:
    document = json.loads(EXAMPLE.read_bytes())
    adjustment, _ = raw_adjustment([(prepared(document), "all")], lambda _: OPEN_NODE)
    assert len(adjustment.mounts) == len(document["containerEdits"]["mounts"])
    assert messages.write_created(adjustment)


def test_the_edits_of_a_document_come_first_and_once() -> None:
    common: dict[str, Any] = {
        "env": ["A=document", "B=document"],
        "hooks": [{"hookName": "prestart", "path": "/bin/h"}],
    }
    adjustment, _ = adjusted({"env": ["A=first"]}, {"env": ["C=second"]}, **common)
    assert dict(adjustment.env) == {"A": "first", "B": "document", "C": "second"}
    assert len(adjustment.hooks) == 1


def test_the_edits_of_a_second_document_come_with_its_first_device() -> None:
    first = spec({"env": ["A=first device"]}, env=["A=first"])
    second = spec({"env": ["X=1"]}, kind="nvidia.com/gds", env=["A=second"])
    adjustment, _ = raw_adjustment([(first, "0"), (second, "0"), (first, "0")], lambda _: OPEN_NODE)
    assert adjustment.env["A"] == "second"


def test_a_later_mount_at_the_same_path_replaces_an_earlier_mount() -> None:
    adjustment, _ = adjusted(
        {"mounts": [bind("/host/a", "/a"), bind("/host/b", "/b")]}, {"mounts": [bind("/host/other", "/a")]}
    )
    assert adjustment.mounts == (mounted("/host/b", "/b"), mounted("/host/other", "/a"))


def test_a_later_node_at_the_same_path_replaces_an_earlier_node() -> None:
    adjustment, _ = adjusted(
        node("/dev/gpu", hostPath="/dev/nvidia0"),
        node("/dev/gpu", hostPath="/dev/nvidia1"),
        host={"/dev/nvidia0": OPEN_NODE, "/dev/nvidia1": ("c", 195, 1, 0o666, 0, 0)},
    )
    assert [device.minor for device in adjustment.devices] == [1]


def test_a_hook_that_all_devices_have_runs_once() -> None:
    hook = {"hooks": [{"hookName": "createContainer", "path": "/bin/h", "timeout": 3}]}
    other = {"hooks": [{"hookName": "createContainer", "path": "/bin/h", "timeout": 4}]}
    adjustment, _ = adjusted(hook, hook, other)
    assert [row.timeout for row in adjustment.hooks] == [3, 4]


def test_a_value_may_contain_an_equals_sign() -> None:
    assert adjusted({"env": ["OPTIONS=a=b"]})[0].env == {"OPTIONS": "a=b"}


# The cases of fillMissingInfo in the CDI library, line by line.
@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, ("c", 195, 0, 0o666, 0, 0)),
        ({"type": "c"}, ("c", 195, 0, 0o666, 0, 0)),
        ({"type": "c", "major": 7, "minor": 5}, ("c", 7, 5, 0o666, 0, 0)),
        ({"type": "b", "major": 7, "minor": 5}, ("b", 7, 5, 0o666, 0, 0)),
        ({"major": 7, "minor": 5}, ("c", 7, 5, 0o666, 0, 0)),
        ({"minor": 5}, ("c", 195, 0, 0o666, 0, 0)),
        ({"major": 0, "minor": 5, "type": ""}, ("c", 195, 0, 0o666, 0, 0)),
        ({"fileMode": 0o600, "uid": 5}, ("c", 195, 0, 0o600, 5, 0)),
        ({"fileMode": 0o600, "uid": 1000, "gid": 100}, ("c", 195, 0, 0o600, 1000, 100)),
    ],
)
def test_missing_fields_of_a_node_come_from_the_host(
    fields: dict[str, Any], found: tuple[str, int, int, int, int, int]
) -> None:
    (device,) = adjusted(node(**fields))[0].devices
    assert found == (device.type, device.major, device.minor, device.file_mode, device.uid, device.gid)


def test_a_fully_specified_node_need_not_exist_on_the_host() -> None:
    (device,) = adjusted(node(type="c", major=195, minor=3), host={})[0].devices
    assert device == ContainerDevice(path="/dev/nvidia0", type="c", major=195, minor=3)


def test_a_missing_node_refuses_the_container() -> None:
    found = refusal(node(), host={})
    assert (found.cause, found.reason) == (
        "raw_node",
        "/dev/nvidia0 on the host: No such file or directory",
    )


@pytest.mark.parametrize(
    ("fields", "host"),
    [
        ({"type": "b"}, OPEN_NODE),
        ({"type": "c"}, ("b", 8, 0, 0o660, 0, 6)),
        ({}, ("p", 0, 0, 0o600, 0, 0)),
    ],
)
def test_a_node_of_another_type_refuses_the_container(fields: dict[str, Any], host: NodeNumbers) -> None:
    found = refusal(node(**fields), host=host)
    assert (found.cause, "/dev/nvidia0 on the host is of type" in found.reason) == ("raw_node", True)


def test_a_node_that_changes_on_the_host_is_injected_with_its_new_numbers() -> None:
    one, now = spec(node()), OPEN_NODE
    assert raw_adjustment([(one, "0")], lambda _: now)[0].devices[0].major == 195
    now = ("c", 511, 0, 0o666, 0, 0)
    assert raw_adjustment([(one, "0")], lambda _: now)[0].devices[0].major == 511


def test_a_node_that_is_not_world_accessible_has_the_hosts_owner_and_is_reported() -> None:
    adjustment, ignored_requests = adjusted(node("/dev/dri/renderD128"), host=RENDER_NODE)
    (device,) = adjustment.devices
    assert (device.file_mode, device.uid, device.gid) == (0o660, 0, 105)
    assert [ignored.cause for ignored in ignored_requests] == ["raw_owner"]


@pytest.mark.parametrize(
    ("edits", "cause"),
    [
        ({"env": ["A=1"], "additionalGids": [0, 44, 105]}, "raw_groups"),
        ({"env": ["A=1"], "intelRdt": {"closID": "gpu"}}, "raw_rdt"),
        (node(permissions="r"), "raw_permissions"),
        (node(permissions="none"), "raw_permissions"),
    ],
)
def test_unsupported_edits_that_the_device_does_not_need_are_reported(
    edits: dict[str, Any], cause: str
) -> None:
    adjustment, ignored_requests = adjusted(edits, edits)
    assert [ignored.cause for ignored in ignored_requests] == [cause]
    assert cause in IGNORED_REQUEST_CAUSES
    assert adjustment.env or adjustment.devices


@pytest.mark.parametrize(
    "edits",
    [
        *(node(permissions=each) for each in ("", "rw", "rwm", "wr")),
        node(fileMode=0o600, uid=1000, gid=100),
        {"env": ["A=1"], "additionalGids": [0]},
    ],
    ids=str,
)
def test_edits_that_the_runtime_applies_are_not_reported(edits: dict[str, Any]) -> None:
    assert adjusted(edits)[1] == ()


@pytest.mark.parametrize(
    "edits",
    [
        {"netDevices": [{"hostInterfaceName": "eth1", "name": "eth1"}]},
        node(type="p"),
        node(type="u", major=4, minor=64),
        node("-/dev/nvidia0"),
        {"mounts": [bind("/a", "-/a")]},
        {"env": ["-A=1"]},
    ],
)
def test_unsupported_edits_that_the_device_needs_refuse_the_container(edits: dict[str, Any]) -> None:
    found = refusal(edits)
    assert (found.cause, "nvidia.com/gpu=0 cannot be injected" in found.reason) == ("raw_spec", True)


def test_an_unsupported_edit_of_the_document_refuses_each_device() -> None:
    assert refusal(node(), netDevices=[{"hostInterfaceName": "a", "name": "b"}]).cause == "raw_spec"


def test_an_unsupported_device_does_not_affect_other_devices_of_the_spec() -> None:
    one = spec({"netDevices": [{"hostInterfaceName": "eth1", "name": "eth1"}]}, node())
    adjustment, _ = raw_adjustment([(one, "1")], lambda _: OPEN_NODE)
    assert [device.path for device in adjustment.devices] == ["/dev/nvidia0"]


def test_a_device_that_the_document_lacks_refuses_the_container() -> None:
    with pytest.raises(InjectionRefusal, match=r"the spec of nvidia\.com/gpu has no device '7'") as caught:
        raw_adjustment([(spec(node()), "7")], lambda _: OPEN_NODE)
    assert caught.value.cause == "unknown_device"


def test_keys_in_other_letter_case_are_read_as_in_the_library() -> None:
    document = {
        "devices": [{"name": "0", "ContainerEdits": {"devicenodes": [{"Path": "/dev/a"}]}}],
        "containeredits": {"ENV": ["A=1"]},
    }
    adjustment, _ = raw_adjustment([(prepared(document), "0")], lambda _: OPEN_NODE)
    assert (adjustment.env, [device.path for device in adjustment.devices]) == ({"A": "1"}, ["/dev/a"])


@pytest.mark.parametrize(
    ("kind", "options", "mapped"),
    [
        ("bind", ["ro", "rbind"], ("ro", "rbind", "ridmap")),
        ("", ["rbind", "ro"], ("rbind", "ro", "ridmap")),
        ("", ["bind"], ("bind", "idmap")),
        ("bind", [], ("idmap",)),
        ("bind", ["bind", "idmap"], ("bind", "idmap")),
        ("none", ["rbind", "ridmap"], ("rbind", "ridmap")),
        ("tmpfs", ["ro"], ("ro",)),
    ],
)
def test_bind_mounts_map_the_ids_of_a_user_namespace(
    kind: str, options: list[str], mapped: tuple[str, ...]
) -> None:
    mount = {"hostPath": "/s", "containerPath": "/d", "type": kind, "options": options}
    one = spec({"mounts": [mount]})
    for maps_ids, expected in ((True, mapped), (False, tuple(options))):
        adjustment, _ = raw_adjustment([(one, "0")], lambda _: OPEN_NODE, maps_ids=maps_ids)
        assert [mount.options for mount in adjustment.mounts] == [expected]


def test_an_example_spec_is_injected_completely() -> None:
    one = prepared(json.loads(EXAMPLE.read_bytes()))
    adjustment, ignored_requests = raw_adjustment([(one, "0")], lambda _: OPEN_NODE)
    assert adjustment.devices
    assert ignored_requests == ()


@pytest.mark.parametrize("document", [{}, {"devices": None}])
def test_a_document_without_devices_has_no_prepared_devices(document: dict[str, Any]) -> None:
    assert not prepared(document).devices


def test_null_lists_are_empty_as_in_the_library() -> None:
    edits = {"env": ["A=1"], "deviceNodes": None, "mounts": None, "hooks": None, "additionalGids": None}
    assert adjusted(edits, host={})[0] == Adjustment(env={"A": "1"})


def test_nodes_of_the_host_have_the_kernels_numbers(tmp_path: Path) -> None:
    kind, major, minor, _, uid, gid = read_node(Root("/"), "/dev/null")
    assert (kind, major, minor, uid, gid) == ("c", 1, 3, 0, 0)
    os.mkfifo(tmp_path / "fifo", 0o600)
    assert read_node(Root(str(tmp_path)), "/fifo")[0] == "p"


def test_a_link_or_a_file_is_not_a_device_node(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/dev/null")
    for name in ("file", "link"):
        with pytest.raises(OSError, match="not a device node"):
            read_node(Root(str(tmp_path)), f"/{name}")


@pytest.mark.parametrize("path", ["/dev/a\0b", "/dev\0/a", "/dev/\ud800"])
def test_an_impossible_path_raises_an_os_error(path: str) -> None:
    with pytest.raises(OSError, match=r"name|NUL"):
        read_node(Root("/"), path)
    with pytest.raises(InjectionRefusal) as caught:
        raw_adjustment([(spec(node(path)), "0")], lambda path: read_node(Root("/"), path))
    assert caught.value.cause == "raw_node"


def test_links_on_the_path_to_a_node_are_resolved_within_the_host(tmp_path: Path) -> None:
    (tmp_path / "dev").symlink_to("/real")
    (tmp_path / "real").mkdir()
    os.mkfifo(tmp_path / "real/fifo")
    assert read_node(Root(str(tmp_path)), "/dev/fifo")[0] == "p"


def test_sixty_four_devices_are_adjusted_quickly() -> None:
    document = json.loads(EXAMPLE.read_bytes())
    document["devices"] = [
        {"name": str(number), "containerEdits": node(f"/dev/nvidia{number}")} for number in range(64)
    ]
    one = prepared(document)
    asked = [(one, str(number)) for number in range(64)]
    took = []
    for _ in range(20):
        begun_s = time.thread_time()
        adjustment, _ = raw_adjustment(asked, lambda _: OPEN_NODE)
        took.append(time.thread_time() - begun_s)
    assert len(adjustment.devices) == 64 + len(document["containerEdits"]["deviceNodes"])
    # The adjustment takes 0.1 ms on two slow cores. Ten times as much would mean a slower algorithm.
    assert min(took) < 0.001
