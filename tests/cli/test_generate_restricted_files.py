"""With `nri: {restrict_driver_files: true}`, cdigen writes capability kinds, but only for NVIDIA GPUs."""

import os
from pathlib import Path
from typing import Any

import pytest
from support.command.fixtures import Run
from support.command.specs import configure, names, targets, written
from support.hosts import intel_tree
from support.hosts.mig import write_instance, write_minors

NARROW = "nri: {restrict_driver_files: true}\n"
WHOLE, PARTS = "nvidia.com/gpu", ["nvidia.com/gpu-compute", "nvidia.com/gpu-graphics"]


def documents(cdigen: Run, host: Path, *options: str) -> dict[str, Any]:
    """Return the specs of HOST, by kind."""
    done = cdigen("generate", "--root", host, "--json", *options)
    assert done.code == 0, done.err
    return {document["kind"]: document for document in done.json}


def files(spec: Any) -> set[str]:
    return {target.rpartition("/")[2] for target in targets(spec)}


def test_capability_kinds_are_written_only_if_they_are_enabled(cdigen: Run, host: Path) -> None:
    before = documents(cdigen, host)
    assert [*before] == [WHOLE]
    configure(host, NARROW)
    after = documents(cdigen, host)
    assert [*after] == [WHOLE, *PARTS]
    assert after[WHOLE] == before[WHOLE]
    assert [names(spec) for spec in after.values()] == [names(before[WHOLE])] * 3


def test_a_capability_kind_has_the_files_and_nodes_of_its_capabilities(cdigen: Run, host: Path) -> None:
    configure(host, NARROW)
    specs = documents(cdigen, host)
    whole, compute, graphics = (files(specs[kind]) for kind in (WHOLE, *PARTS))
    assert compute < graphics < whole
    assert {"libcuda.so.1", "libnvidia-ml.so.1", "nvidia-smi"} <= compute
    assert {"libGLX_nvidia.so.0", "libEGL_nvidia.so.0"} <= graphics - compute
    assert {"libnvcuvid.so.1", "libnvidia-encode.so.1"} <= whole - graphics
    paths = [node["path"] for node in specs[PARTS[0]]["devices"][0]["containerEdits"]["deviceNodes"]]
    assert paths == ["/dev/nvidia0"]


def test_gpus_of_other_vendors_have_no_capability_kinds(cdigen: Run, host: Path) -> None:
    intel_tree.lay(host, *intel_tree.laptop())
    configure(host, NARROW)
    kinds = [*documents(cdigen, host)]
    assert [kind for kind in kinds if kind.startswith("nvidia.com/")] == [WHOLE, *PARTS]
    assert not [kind for kind in kinds if kind.startswith("intel.com/gpu-") and kind != "intel.com/gpu-mei"]


def test_mig_instances_are_devices_of_the_capability_kinds(cdigen: Run, host: Path) -> None:
    write_minors(host, 2)
    write_instance(host, 0, 7)
    configure(host, NARROW)
    specs = documents(cdigen, host)
    instance = "0:gi7-ci0"
    assert all(instance in names(specs[kind]) for kind in (WHOLE, *PARTS))
    for spec in (specs[kind] for kind in (WHOLE, *PARTS)):
        (edits,) = (device["containerEdits"] for device in spec["devices"] if device["name"] == instance)
        assert any("nvidia-caps" in node["path"] for node in edits["deviceNodes"])


def test_the_management_mode_has_no_capability_kinds(cdigen: Run, host: Path) -> None:
    configure(host, NARROW)
    assert [*documents(cdigen, host, "--mode", "management")] == ["nvidia.com/management"]


def test_a_profile_with_the_class_of_a_capability_kind_has_priority(cdigen: Run, host: Path) -> None:
    profile = "{name: mine, class: gpu-compute, capabilities: [utility]}"
    configure(host, f"{NARROW}profiles: [{{name: all, class: gpu}}, {profile}]\n")
    specs = documents(cdigen, host)
    assert sorted(specs) == [WHOLE, *PARTS]
    assert "libcuda.so.1" not in targets(specs[PARTS[0]])


def test_profiles_of_other_classes_have_no_capability_kinds(cdigen: Run, host: Path) -> None:
    configure(host, f"{NARROW}profiles: [{{name: all, class: gpu}}, {{name: more, class: more}}]\n")
    assert sorted(documents(cdigen, host)) == [WHOLE, *PARTS, "nvidia.com/more"]


def test_one_capability_kind_can_be_selected(cdigen: Run, host: Path) -> None:
    configure(host, NARROW)
    done = cdigen("generate", "--root", host, "--kind", PARTS[0])
    assert (done.code, done.json["kind"], done.err) == (0, PARTS[0], "")
    assert cdigen("generate", "--root", host).json["kind"] == WHOLE


@pytest.mark.parametrize("layout", ["files", "view", "hwcaps"])
def test_capability_kinds_are_written_with_each_layout_and_without_a_warning(
    cdigen: Run, host: Path, layout: str
) -> None:
    configure(host, NARROW)
    done = cdigen("generate", "--root", host, "--write", "--layout", layout, "--hook", "none")
    assert done.code == 0, done.err
    assert not [line for line in done.err.splitlines() if "gpu-compute" in line and "warning" in line]


def test_capability_kinds_are_withdrawn_after_the_setting_is_disabled(cdigen: Run, host: Path) -> None:
    configure(host, NARROW)
    specs = ["nvidia.com-gpu-compute.json", "nvidia.com-gpu-graphics.json", "nvidia.com-gpu.json"]
    assert written(cdigen, host) == specs
    # Without a change of the configuration, the specs of the other kinds are not stale.
    assert written(cdigen, host, "--withdraw", "--kind", WHOLE) == specs
    assert cdigen("diff", "--root", host).code == 0
    configure(host, "nri: {restrict_driver_files: false}\n")
    assert cdigen("diff", "--root", host).code == 1
    done = cdigen("generate", "--root", host, "--write", "--withdraw")
    assert done.code == 0
    assert done.err.count("or no profile has this kind") == len(PARTS)
    assert os.listdir(host / "run/cdi") == ["nvidia.com-gpu.json"]


def test_list_shows_capability_kinds_only_as_a_note_by_default(cdigen: Run, host: Path) -> None:
    assert written(cdigen, host)
    before = cdigen("list", "--root", host)
    configure(host, NARROW)
    assert written(cdigen, host)
    after = cdigen("list", "--root", host)
    assert (after.code, after.out) == (0, before.out)
    assert [line.split()[1] for line in after.err.splitlines()] == PARTS
    one = cdigen("list", "--root", host, "--kind", PARTS[0])
    assert f"{PARTS[0]}=0" in one.out
    assert one.err == ""
    every = cdigen("list", "--root", host, "--verbose").out
    # The completions of the shells run this command.
    assert cdigen("list", "--root", host, "--quiet").out == every
    rows = cdigen("list", "--root", host, "--json").json
    assert all(row["device"] in every for row in rows)
    assert {row["kind"] for row in rows} == {WHOLE, *PARTS}


def test_list_shows_capability_kinds_whose_devices_differ_from_those_of_nvidia_com_gpu(
    cdigen: Run, host: Path
) -> None:
    configure(host, NARROW)
    assert written(cdigen, host)
    (host / "run/cdi/nvidia.com-gpu.json").unlink()
    assert f"{PARTS[0]}=0" in cdigen("list", "--root", host).out
    assert written(cdigen, host, "--kind", WHOLE, "--naming", "uuid")
    assert f"{PARTS[0]}=0" in cdigen("list", "--root", host).out
