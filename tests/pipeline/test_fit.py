"""The features that a draft loses for a runtime, and the drafts that are rejected instead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.values.spec_documents import verdicts

from cdigen.cdi.build import build
from cdigen.cdi.library import release_of
from cdigen.cdi.render import render
from cdigen.cdi.rules.document_rules import check
from cdigen.cdi.version import is_newer
from cdigen.model.cdi import ContainerEdits, Device, DeviceNode, Draft, Mount
from cdigen.model.errors import SpecError
from cdigen.model.findings import errors
from cdigen.pipeline.fit import fit, refuse_newer
from cdigen.runtimes.releases import LIBRARIES, first_releases_with
from cdigen.runtimes.targets import parse
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.findings import Finding
    from cdigen.runtimes.targets import Target

KIND = "nvidia.com/gpu"
NOTHING = ContainerEdits()
MOUNT = Mount(host_path="/a", container_path="/b", options=("ro", "rbind"))
PLAIN = DeviceNode(path="/dev/x")
CLOSED = DeviceNode(path="/dev/dri/renderD128", file_mode=0o660, gid=109)
EVERY_TARGET = [
    parse(f"{runtime}-{'.'.join(map(str, first))}")
    for runtime, rows in LIBRARIES.items()
    for first, _ in rows
]


def edits(*nodes: DeviceNode, gids: tuple[int, ...] = (), mounts: tuple[Mount, ...] = ()) -> ContainerEdits:
    return ContainerEdits(device_nodes=nodes or (PLAIN,), mounts=mounts, additional_gids=gids)


def draft(*names: str, own: ContainerEdits | None = None, shared: ContainerEdits = NOTHING) -> Draft:
    """Return a draft with the devices NAMES, which all have the edits OWN."""
    own = edits() if own is None else own
    return Draft(kind=KIND, devices=tuple(Device(name=name, edits=own) for name in names), edits=shared)


def dropped(original: Draft, target: str) -> list[str]:
    return [finding.rule for finding in fit(original, parse(target))[1]]


def refused(original: Draft, target: str, *words: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        fit(original, parse(target))
    error = caught.value
    assert error.exit_code == 4
    assert all(word in error.message for word in (original.kind, target, *words)), error.message
    assert error.hint
    assert (error.message + error.hint).isprintable()
    return error


def names(original: Draft) -> list[str]:
    return [device.name for device in original.devices]


GROUPS = draft("gpu", own=edits(CLOSED, gids=(109,)), shared=edits(gids=(44, 109)))


def test_without_a_target_only_additional_groups_are_dropped() -> None:
    given = replace(GROUPS, devices=(*GROUPS.devices, Device(name="0", edits=edits(mounts=(MOUNT,)))))
    fitted, (finding,) = fit(given, None)
    assert fitted.devices[0].edits == edits(CLOSED)
    assert (fitted.devices[1:], fitted.edits) == (given.devices[1:], edits())
    assert (finding.severity, finding.rule) == ("info", "target-dropped-gids")
    assert build(fitted)["cdiVersion"] == "0.5.0"


def test_a_draft_without_groups_is_unchanged_without_a_target() -> None:
    given = replace(draft("0", shared=edits(mounts=(MOUNT,))), kind="nvidia.com/gpu.large")
    assert fit(given, None) == (given, ())


def groups_message(target: Target | None) -> str:
    (finding,) = fit(GROUPS, target)[1]
    assert finding.path == KIND
    return finding.line()


@pytest.mark.parametrize("target", [None, parse("podman-4.9")])
def test_the_hint_for_dropped_groups_names_all_users(target: Target | None) -> None:
    text = groups_message(target)
    assert "/dev/dri/renderD128" in text
    assert "groups 44, 109" in text
    assert "podman run --group-add keep-groups" in text
    assert "--group-add 44 --group-add 109" in text
    assert "podman-5.1" in text


def test_the_hint_without_a_target_names_the_target_that_keeps_the_groups() -> None:
    assert "'target: [podman-5.1]'" in groups_message(None)


def test_the_message_with_a_target_names_the_target_and_its_limit() -> None:
    assert "podman-4.9.0 (CDI library 0.6.2) supports only versions up to 0.6.0" in groups_message(
        parse("podman-4.9")
    )


@pytest.mark.parametrize("target", ["podman-5.1", "containerd-1.7.16", "cri-o-1.30", "docker-29.5"])
def test_a_runtime_that_supports_additional_groups_gets_them(target: str) -> None:
    assert fit(GROUPS, parse(target)) == (GROUPS, ())
    document = build(GROUPS)
    assert document["cdiVersion"] == "0.7.0"
    assert document["containerEdits"]["additionalGids"] == [44, 109]


def test_a_docker_release_that_ignores_groups_gets_groups_with_a_warning() -> None:
    fitted, (finding,) = fit(GROUPS, parse("docker-28.0"))
    assert fitted == GROUPS
    assert (finding.severity, finding.rule) == ("warning", "target-forgets-gids")
    assert "--group-add 44 --group-add 109" in finding.hint
    assert dropped(draft("0"), "docker-28.0") == []


def test_a_finding_about_groups_without_nodes_names_the_group() -> None:
    (finding,) = fit(draft("0", own=edits(gids=(7,))), None)[1]
    assert "group 7 " in finding.message


def test_the_device_all_has_the_sorted_groups_of_all_devices() -> None:
    one, two = (Device(name=name, edits=edits(gids=gids)) for name, gids in (("0", (7, 3)), ("1", (5, 7))))
    document = build(Draft(kind=KIND, devices=(one, two), edits=NOTHING))
    assert [device["containerEdits"]["additionalGids"] for device in document["devices"]] == [
        [3, 7],
        [5, 7],
        [3, 5, 7],
    ]


def test_a_numeric_name_is_dropped_if_the_device_has_another_name() -> None:
    fitted, (finding,) = fit(draft("0", "GPU-a"), parse("podman-4.2"))
    assert names(fitted) == ["GPU-a"]
    assert (finding.severity, finding.rule, finding.path) == ("warning", "target-dropped-name", f"{KIND}=0")
    assert f"{KIND}=GPU-a" in finding.hint


def test_each_dropped_name_has_a_separate_finding() -> None:
    other = Device(name="GPU-b", edits=edits(DeviceNode(path="/dev/y")))
    both = (*draft("0", "0:1", "GPU-a").devices, replace(other, name="1"), other)
    fitted, findings = fit(Draft(kind=KIND, devices=both, edits=NOTHING), parse("podman-4.2"))
    assert names(fitted) == ["GPU-a", "GPU-b"]
    assert [(finding.path, finding.hint.split()[1].strip(",")) for finding in findings] == [
        (f"{KIND}=0", f"{KIND}=GPU-a"),
        (f"{KIND}=0:1", f"{KIND}=GPU-a"),
        (f"{KIND}=1", f"{KIND}=GPU-b"),
    ]


def test_a_numeric_name_is_refused_if_the_device_has_no_other_name() -> None:
    other = Device(name="GPU-b", edits=edits(DeviceNode(path="/dev/y")))
    given = replace(draft("0", "1"), devices=(*draft("0", "1").devices, other))
    error = refused(given, "podman-4.2", "begins with a digit", "0 has no other name", "1 more", "0.4.0")
    assert "letter" in error.hint
    assert "podman-4.3" in error.hint


def test_names_that_begin_with_a_digit_are_kept_from_0_5_0_on() -> None:
    assert fit(draft("0"), parse("podman-4.3")) == (draft("0"), ())


def test_a_node_with_another_host_path_is_refused_below_0_5_0() -> None:
    moved = edits(DeviceNode(path="/dev/a", host_path="/srv/a"))
    for made in (draft("gpu", own=moved), draft("gpu", shared=moved)):
        error = refused(made, "cri-o-1.24", "hostPath", "/dev/a is /srv/a", "0.3.0")
        assert "--dev-root" in error.hint
        assert dropped(made, "cri-o-1.25") == []


def test_a_dot_in_the_class_is_refused_below_0_6_0() -> None:
    given = replace(draft("0"), kind="nvidia.com/gpu.large")
    error = refused(given, "containerd-1.7", "the dot in the class gpu.large", "0.5.0")
    assert "without dots" in error.hint
    assert "containerd-1.7.12" in error.hint
    assert dropped(given, "containerd-1.7.12") == []


def test_a_library_that_rejects_dots_gets_no_dots_at_any_version() -> None:
    target = replace(parse("podman-5.1"), dots_in_class=False)
    with pytest.raises(SpecError, match="dot in the class"):
        fit(replace(draft("0"), kind="nvidia.com/gpu.large"), target)


def test_the_error_names_all_unsupported_features() -> None:
    given = replace(draft("0", own=edits(DeviceNode(path="/dev/a", host_path="/b"))), kind="nvidia.com/g.pu")
    error = refused(given, "podman-4.2", "dot in the class", "hostPath", "begins with a digit")
    assert "podman-4.7" in error.hint


def test_mounts_lose_their_type_below_0_4_0_and_stay_bind_mounts() -> None:
    bare = replace(MOUNT, container_path="/c", options=("ro",))
    fitted, (finding,) = fit(draft("gpu", shared=edits(mounts=(MOUNT, bare))), parse("cri-o-1.24"))
    assert [(mount.type, mount.options) for mount in fitted.edits.mounts] == [
        ("", ("ro", "rbind")),
        ("", ("ro", "bind")),
    ]
    assert (finding.severity, finding.rule, finding.path) == ("warning", "target-dropped-mount-type", KIND)
    assert "2 mounts" in finding.message
    assert dropped(draft("gpu", own=edits(mounts=(MOUNT,))), "podman-4.1") == []


def test_a_mount_of_a_type_other_than_bind_is_refused_below_0_4_0() -> None:
    given = draft("gpu", shared=edits(mounts=(replace(MOUNT, type="tmpfs"),)))
    refused(given, "cri-o-1.24", "tmpfs")
    assert dropped(given, "podman-4.1") == []


def test_a_document_that_is_newer_than_its_target_is_refused() -> None:
    document = build(GROUPS)
    refuse_newer(document, parse("podman-5.1"))
    with pytest.raises(SpecError, match=r"0\.7\.0.*podman-5\.0\.0"):
        refuse_newer(document, parse("podman-5.0"))


@pytest.mark.parametrize(
    ("version", "texts"),
    [
        ("0.4.0", ("podman-4.1", "cri-o-1.25", "containerd-1.7", "docker-25.0")),
        ("0.5.0", ("podman-4.3", "cri-o-1.25", "containerd-1.7", "docker-25.0")),
        ("0.6.0", ("podman-4.7", "cri-o-1.28", "containerd-1.7.12", "docker-25.0")),
        ("0.7.0", ("podman-5.1", "cri-o-1.30", "containerd-1.7.16", "docker-29.5")),
    ],
)
def test_the_releases_in_hints_support_the_version(version: str, texts: tuple[str, ...]) -> None:
    assert first_releases_with(version) == texts
    for text in texts:
        assert not is_newer(version, parse(text).newest), text
        assert parse(text).forgets_gids == "" or version != "0.7.0"


# Drafts as a vendor returns them: each device has a node, and a list contains each path only once.

gids = st.lists(st.integers(1, 9), max_size=3, unique=True).map(tuple)
nodes = st.lists(
    st.builds(
        DeviceNode,
        path=st.sampled_from(["/dev/a", "/dev/b", "/dev/c"]),
        host_path=st.sampled_from([None, None, None, None, "/srv/a"]),
        file_mode=st.sampled_from([None, 0o660, 0o666]),
        gid=st.none() | st.integers(1, 9),
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda node: node.path,
).map(tuple)
mounts = st.lists(
    st.builds(
        Mount,
        host_path=st.sampled_from(["/a", "/b"]),
        container_path=st.sampled_from(["/a", "/b", "/c"]),
        options=st.sampled_from([("ro", "rbind"), ("bind",), ("ro",), ()]),
        type=st.sampled_from(["bind", "bind", "bind", "tmpfs"]),
    ),
    max_size=2,
    unique_by=lambda mount: mount.container_path,
).map(tuple)
own_edits = st.builds(ContainerEdits, device_nodes=nodes, mounts=mounts, additional_gids=gids)
shared_edits = st.just(NOTHING) | own_edits


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """Draw a draft whose devices have one or two names each."""
    free = draw(st.permutations(["0", "1", "0:1", "GPU-a", "GPU-b", "MIG-c"]))
    devices: list[Device] = []
    for own in draw(st.lists(own_edits, min_size=1, max_size=3, unique=True)):
        devices += [Device(name=free.pop(), edits=own) for _ in range(draw(st.integers(1, 2)))]
    kind = draw(st.sampled_from([KIND, KIND, KIND, "nvidia.com/gpu.large"]))
    return Draft(kind=kind, devices=tuple(devices), edits=draw(shared_edits))


every_target = st.sampled_from(EVERY_TARGET)


def fitted_or_none(original: Draft, target: Target) -> tuple[Draft, tuple[Finding, ...]] | None:
    """Return the result of fit, or None if it rejects the draft."""
    try:
        return fit(original, target)
    except SpecError:
        return None


@given(drafts(), every_target)
def test_a_fitted_document_is_valid_and_loaded_by_the_targets_library(
    original: Draft, target: Target
) -> None:
    result = fitted_or_none(original, target)
    if result is None:
        return
    document = build(result[0])
    assert not is_newer(document["cdiVersion"], target.newest)
    refuse_newer(document, target)
    assert errors(check(document)) == ()
    # Libraries before 0.5.2 were not tested.
    expected = "accept" if release_of(target.library) else "unknown"
    assert verdicts(render(document), yaml=False, versions=(target.library,)) == {target.library: expected}


@given(drafts(), every_target)
def test_no_device_is_lost_by_dropped_features(original: Draft, target: Target) -> None:
    result = fitted_or_none(original, target)
    if result is None:
        return

    def devices(of_draft: Draft) -> set[tuple[DeviceNode, ...]]:
        return {device.edits.device_nodes for device in of_draft.devices}

    assert devices(result[0]) == devices(original)
    assert result[0].edits.device_nodes == original.edits.device_nodes
    assert set(names(result[0])) <= set(names(original))


@given(drafts(), every_target)
def test_a_draft_that_fits_is_not_changed(original: Draft, target: Target) -> None:
    if not is_newer(build(original)["cdiVersion"], target.newest):
        fitted, findings = fit(original, target)
        assert fitted == original
        assert {finding.rule for finding in findings} <= {"target-forgets-gids"}


@given(drafts(), every_target)
def test_fitting_twice_equals_fitting_once(original: Draft, target: Target) -> None:
    result = fitted_or_none(original, target)
    if result is not None:
        assert fit(result[0], target)[0] == result[0]


@given(drafts(), every_target)
def test_every_dropped_feature_has_a_finding(original: Draft, target: Target) -> None:
    result = fitted_or_none(original, target)
    if result is not None and result[0] != original:
        assert result[1]
        assert all(finding.severity == "warning" and finding.hint for finding in result[1])


@given(drafts(), every_target, every_target)
def test_a_newer_target_keeps_features_of_an_older_target(original: Draft, one: Target, two: Target) -> None:
    older, newer = (two, one) if is_newer(one.newest, two.newest) else (one, two)
    with_older, with_newer = fitted_or_none(original, older), fitted_or_none(original, newer)
    if with_older is not None:
        assert with_newer is not None
        assert set(names(with_older[0])) <= set(names(with_newer[0]))
        assert len(with_older[0].edits.additional_gids) <= len(with_newer[0].edits.additional_gids)


@given(drafts())
def test_without_a_target_a_draft_keeps_all_features_except_groups(original: Draft) -> None:
    fitted, _ = fit(original, None)
    assert replace(fitted, devices=(), edits=NOTHING) == replace(original, devices=(), edits=NOTHING)
    assert fitted.edits == replace(original.edits, additional_gids=())
    assert [device.edits for device in fitted.devices] == [
        replace(device.edits, additional_gids=()) for device in original.devices
    ]
    assert names(fitted) == names(original)
