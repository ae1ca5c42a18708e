"""apply accepts NVIDIA's configuration file unchanged; unsupported keys are findings with line and column."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kubelet.advertised_resources import counts, h100, in_mig, with_gpus
from support.values.unhealthy_gpus import example

from cdigen.config import KubeletConfig, ResourceRow, SharingRow
from cdigen.kubelet.resources.nvidia_file import apply
from cdigen.kubelet.resources.resource_set import advertise
from cdigen.model.profile import DEFAULT

if TYPE_CHECKING:
    from cdigen.model.findings import Finding

# From NVIDIA's README (k8s-device-plugin, "Shared Access to GPUs").
README = """
version: v1
flags:
  migStrategy: "none"
  failOnInitError: true
  nvidiaDriverRoot: "/"
  plugin:
    passDeviceSpecs: false
    deviceListStrategy: "envvar"
    deviceIDStrategy: "uuid"
sharing:
  timeSlicing:
    resources:
    - name: nvidia.com/gpu
      replicas: 10
"""


def read(text: str, settings: KubeletConfig | None = None) -> tuple[KubeletConfig, tuple[Finding, ...]]:
    return apply(settings or KubeletConfig(), text.encode(), file="nvidia.yaml")


def findings(text: str) -> list[tuple[str, str]]:
    """Return the severity and the message of each finding."""
    return [(found.severity, found.message) for found in read(text)[1]]


def test_the_example_in_nvidias_readme_is_read_without_an_error() -> None:
    settings, found = read(README)
    assert settings == KubeletConfig(
        mig_strategy="none", sharing=(SharingRow(resource="nvidia.com/gpu", replicas=10),)
    )
    assert {one.severity for one in found} == {"info"}
    names = advertise(example(), (DEFAULT,), lambda _: True, settings)
    assert counts(names) == {"nvidia.com/gpu": 80}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("migStrategy: single", {"mig_strategy": "single"}),
        ("MIGSTRATEGY: single", {"mig_strategy": "single"}),
        ("gdsEnabled: true, mofedEnabled: true", {"families": ("gds", "mofed")}),
        ("gdrcopyEnabled: false", {"families": ()}),
        ("mpsRoot: /run/mps", {"mps_root": "/run/mps"}),
        ("plugin: {passDeviceSpecs: true}", {"device_nodes": True}),
        ("plugin: {deviceListStrategy: cdi-cri}", {"device_list_strategy": ("cdi_devices",)}),
        (
            "plugin: {deviceListStrategy: 'cdi-annotations,cdi-cri'}",
            {"device_list_strategy": ("annotation", "cdi_devices")},
        ),
        ("plugin: {deviceListStrategy: [cdi-annotations]}", {"device_list_strategy": ("annotation",)}),
        ("plugin: {sharedDevicesAllocationPolicy: packed}", {"shared_allocation": "packed"}),
        ("plugin: {deviceIDStrategy: uuid, cdiAnnotationPrefix: cdi.k8s.io/}", {}),
    ],
)
def test_flags_become_settings(flags: str, expected: dict[str, object]) -> None:
    settings, found = read(f"version: v1\nflags: {{{flags}}}")
    assert settings == KubeletConfig(**expected)  # type: ignore[arg-type]
    assert found == ()


def test_only_channel_0_of_imex_enables_the_family_imex() -> None:
    assert read("version: v1\nimex: {channelIDs: [0]}")[0].families == ("imex",)
    assert read("version: v1\nimex: {channelIDs: []}")[0].families == ()
    assert findings("imex: {channelIDs: [1]}")[0][0] == "error"
    assert findings("imex: {required: true}")[0][0] == "warning"


def test_replicas_are_renamed_and_limited_by_the_file() -> None:
    text = """
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
      - {name: gpu, replicas: 4, devices: [0, "0:1", GPU-3c7f6a52-9b1d-4e08-a2c4-5d6e7f8091a2]}
      - {name: nvidia.com/mig-1g.10gb, replicas: 2, rename: nvidia.com/small}
      - {name: nvidia.com/gpu, replicas: 2, devices: 3}
"""
    settings, found = read(text)
    assert (settings.rename_shared, settings.fail_requests_greater_than_one) == (True, True)
    assert settings.sharing == (
        SharingRow(
            resource="nvidia.com/gpu",
            replicas=4,
            devices=("0", "0:1", "GPU-3c7f6a52-9b1d-4e08-a2c4-5d6e7f8091a2"),
        ),
        SharingRow(resource="nvidia.com/mig-1g.10gb", replicas=2, rename="nvidia.com/small"),
        SharingRow(resource="nvidia.com/gpu", replicas=2, devices=("0", "1", "2")),
    )
    assert {one.severity for one in found} == {"info"}


def test_mps_excludes_time_slicing_and_refuses_more_than_one_replica_by_default() -> None:
    rows = "resources: [{name: nvidia.com/gpu, replicas: 2}]"
    settings, found = read(f"sharing: {{timeSlicing: {{{rows}}}, mps: {{{rows}}}}}")
    assert settings.sharing == (SharingRow(resource="nvidia.com/gpu", replicas=2, mps=True),)
    assert settings.fail_requests_greater_than_one
    assert [one.severity for one in found] == ["warning"]
    assert read(f"sharing: {{timeSlicing: null, mps: {{{rows}}}}}") == (settings, ())
    assert not read(f"sharing: {{mps: {{failRequestsGreaterThanOne: false, {rows}}}}}")[
        0
    ].fail_requests_greater_than_one


def test_resource_names_by_patterns_are_supported_though_nvidias_plugin_ignores_them() -> None:
    text = """
resources:
  gpus: [{pattern: H100, name: h100}, {pattern: "*", name: gpu}]
  mig: [{pattern: 1g.10gb, name: nvidia.com/small}]
"""
    settings, found = read(text)
    host = with_gpus(in_mig(h100(0), "1g.10gb", "3g.40gb"))
    assert counts(advertise(host, (DEFAULT,), lambda _: True, settings)) == {
        "nvidia.com/small": 1,
        "nvidia.com/mig-3g.40gb": 1,
        "nvidia.com/h100": 7,
    }
    assert {one.severity for one in found} == {"info"}


def test_settings_that_are_not_in_the_file_stay_unchanged() -> None:
    before = KubeletConfig(mig_strategy="single", families=("imex",), rename_shared=True)
    assert read("flags: {gdsEnabled: true}\nimex: {channelIDs: []}", before)[0] == KubeletConfig(
        mig_strategy="single", families=("imex", "gds"), rename_shared=True
    )


def test_the_file_has_precedence_over_the_configuration() -> None:
    text = (
        "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}\n"
        "resources: {gpus: [{pattern: H100, name: gpu}]}"
    )
    before = KubeletConfig(
        sharing=(SharingRow(resource="nvidia.com/gpu", replicas=8),),
        resources=(ResourceRow(name="example.com/gpu"),),
    )
    settings, _ = apply(before, text.encode(), file="/f")
    found = advertise(example(), (DEFAULT,), lambda _: True, settings)
    assert counts(found) == {"nvidia.com/gpu": 16}


def test_an_unknown_key_is_ignored_and_reported_with_its_line() -> None:
    settings, found = read("version: v1\nflags:\n  migStrategy: single\n  newFlag: 3\nsharing: {fair: {}}")
    assert settings.mig_strategy == "single"
    assert [(one.severity, one.message, one.place) for one in found] == [
        ("warning", "flags.newFlag is unknown and ignored", (4, 3)),
        ("warning", "sharing.fair is unknown and ignored", (5, 11)),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: v2", "version must be 'v1'"),
        ("[]", "is not a mapping"),
        ("", "is not a mapping"),
        ("flags: {migStrategy: all}", "flags.migStrategy must be one of none, single, mixed"),
        ("flags: {gdsEnabled: 3}", "flags.gdsEnabled must be true or false"),
        ("flags: []", "flags must be a mapping"),
        ("flags: {plugin: {sharedDevicesAllocationPolicy: [packed]}}", "must be one of distributed, packed"),
        ("version: [v1]", "version must be 'v1'"),
        ("flags: {mpsRoot: ../mps}", "flags.mpsRoot must be an absolute path"),
        ("flags: {plugin: {deviceListStrategy: other}}", "'other' is not a strategy"),
        ("sharing: {timeSlicing: {resources: [{name: gpu}]}}", "resources: the key 'replicas' is missing"),
        (
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 40001}]}}",
            "from 1 to 40000, not '40001'",
        ),
        ("sharing: {timeSlicing: {resources: [{replicas: 2}]}}", "resources: the key 'name' is missing"),
        ("sharing: {timeSlicing: {resources: [{name: a/b, replicas: 2}]}}", "name must be a name"),
        ("sharing: {timeSlicing: {resources: {}}}", "resources must be a list"),
        ("sharing: {timeSlicing: {resources: [2]}}", "must be a list of mappings"),
        ("sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: some}]}}", "must be 'all'"),
        (
            "sharing: {timeSlicing: {resources: [{name: mig-1g.5gb, replicas: 2, devices: 2}]}}",
            "a count is only for GPUs",
        ),
        ("flags: {gdsEnabled: true, gdsEnabled: true}", "is set a second time"),
        ("resources: {gpus: [{name: gpu}]}", "resources.gpus: the key 'pattern' is missing"),
        ("a: [", ""),
    ],
)
def test_an_invalid_value_is_an_error_and_changes_no_sharing(text: str, message: str) -> None:
    settings, found = read(text)
    errors = [one for one in found if one.severity == "error"]
    assert message in errors[0].message
    assert settings.sharing == ()


def test_each_unsupported_key_is_a_finding() -> None:
    text = "deviceListStrategy: volume-mounts, deviceIDStrategy: index, cdiAnnotationPrefix: a/"
    assert [one for one, _ in findings(f"flags: {{plugin: {{{text}}}}}")] == ["warning", "warning", "warning"]
    assert [severity for severity, _ in findings("flags: {gfd: {oneshot: true}}")] == ["info"]


_WORDS = st.sampled_from(
    ["version", "v1", "flags", "plugin", "sharing", "timeSlicing", "mps", "resources", "gpus", "mig", "name",
     "replicas", "devices", "all", "nvidia.com/gpu", "pattern", "imex", "channelIDs", "migStrategy",
     "mpsRoot", "deviceListStrategy", "gdsEnabled", "*"]
)  # fmt: skip
_TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 6000)
    | st.floats(allow_nan=False)
    | _WORDS
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=20,
)


@given(tree=_TREES)
def test_no_tree_of_yaml_raises_an_exception(tree: object) -> None:

    settings, _ = read(json.dumps(tree))
    assert isinstance(settings, KubeletConfig)
    advertise(example(), (DEFAULT,), lambda _: True, settings)


@given(data=st.binary(max_size=200))
def test_no_bytes_raise_an_exception(data: bytes) -> None:
    assert isinstance(apply(KubeletConfig(), data, file="n")[0], KubeletConfig)


def test_a_merged_yaml_mapping_sets_only_keys_that_are_not_set_directly() -> None:
    text = """
base: &base {migStrategy: single, gdsEnabled: true}
row: &row {name: nvidia.com/gpu, replicas: 4}
flags: {<<: *base, migStrategy: mixed}
sharing: {timeSlicing: {resources: [{<<: [*row, *base], replicas: 2}]}}
"""
    settings, found = read(text)
    assert (settings.mig_strategy, settings.families) == ("mixed", ("gds",))
    assert settings.sharing == (SharingRow(resource="nvidia.com/gpu", replicas=2),)
    assert {one.severity for one in found} == {"warning"}


@pytest.mark.parametrize(
    "line",
    [
        "version: *i",
        "flags: *i",
        "flags: {mpsRoot: *i}",
        "flags: {migStrategy: *i, gdsEnabled: *i}",
        "flags: {plugin: {deviceListStrategy: *i}}",
        "flags: {plugin: {sharedDevicesAllocationPolicy: *i, deviceIDStrategy: *i}}",
        "imex: {channelIDs: *i}",
        "sharing: {timeSlicing: {resources: *i}}",
        "sharing: {timeSlicing: {resources: [{name: *i, replicas: *i, devices: *i, rename: *i}]}}",
        "resources: {gpus: [{name: *i, pattern: *i}]}",
        "{? *i : 1}",
    ],
)
def test_a_file_with_deeply_nested_aliases_is_read_at_once(line: str) -> None:
    layers = [f"{name}: &{name} [{', '.join(['*' + below] * 9)}]" for below, name in pairwise("abcdefghi")]
    settings, found = read("\n".join(["a: &a [x]", *layers, line]))
    assert settings == KubeletConfig()
    assert found


def test_a_mapping_that_merges_itself_is_read_without_a_loop() -> None:
    assert read("flags: &a {<<: *a, migStrategy: single}")[0].mig_strategy == "single"
    rows = "\n".join(f"k{n}: &k{n} {{<<: *k{n - 1}}}" for n in range(1, 3000))
    assert read(f"k0: &k0 {{}}\n{rows}\nflags: {{<<: *k2999}}")[0] == KubeletConfig()


def test_a_config_map_of_kubernetes_is_an_error() -> None:
    text = """
apiVersion: v1
kind: ConfigMap
metadata: {name: time-slicing-config, namespace: gpu-operator}
data:
  any: |-
    version: v1
    flags:
      migStrategy: none
"""
    settings, found = read(text)
    assert settings == KubeletConfig()
    assert [(one.severity, one.place) for one in found] == [("error", (3, 7))]
    assert "is a ConfigMap" in found[0].message


def test_the_key_health_is_a_finding_and_changes_no_setting() -> None:
    settings, found = read("version: v1\nhealth: {disabled: false, ignoredXIDs: [13, 31], criticalXIDs: all}")
    assert settings == KubeletConfig()
    assert [one.severity for one in found] == ["info"]
