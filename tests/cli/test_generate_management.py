"""The kind management.nvidia.com/gpu: its configuration, its content, and the priority of foreign specs."""

import os
from pathlib import Path
from typing import Any

import pytest
from support.command.fixtures import Run
from support.command.specs import configure, put, targets, written
from support.hosts.mig import cap_node, write_minors

KIND = "management.nvidia.com/gpu"
NAME = "management.nvidia.com-gpu.json"
OPTION = "vendor_options: {nvidia: {management: true}}\n"
NAMESPACES = "nri: {management_namespaces: [gpu-operator]}\n"
# The file name that the toolkit of gpu-operator uses.
FOREIGN = "management.nvidia.com-gpu.yaml"


def spec_of(cdigen: Run, host: Path) -> Any:
    return cdigen("generate", "--root", host, "--kind", KIND).json


def put_foreign(host: Path, folder: str = "run/cdi", device: str = "all") -> Path:
    """Write a spec of the management kind as NVIDIA's toolkit does; cdigen has no record of this spec."""
    devices = [{"name": device, "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}]
    return put(host / folder / FOREIGN, {"cdiVersion": "0.5.0", "kind": KIND, "devices": devices})


def test_the_management_kind_is_not_written_by_default(cdigen: Run, host: Path) -> None:
    assert written(cdigen, host) == ["nvidia.com-gpu.json"]
    assert cdigen("generate", "--root", host, "--kind", KIND).failed(2, KIND)


@pytest.mark.parametrize("text", [OPTION, NAMESPACES])
def test_the_management_kind_is_written_if_the_vendor_option_or_a_namespace_enables_it(
    cdigen: Run, host: Path, text: str
) -> None:
    configure(host, text)
    assert written(cdigen, host) == [NAME, "nvidia.com-gpu.json"]
    listed = cdigen("list", "--root", host).out.splitlines()
    assert [line.split()[0] for line in listed if line.startswith("management")] == [f"{KIND}=all"]


def test_the_management_kind_is_not_written_if_no_rule_protects_it(cdigen: Run, host: Path) -> None:
    # A list management_kinds without this kind does not protect the kind from a rule with "*".
    kinds = "[nvidia.com/management, nvidia.com/mig]"
    text = f"nri: {{management_namespaces: [gpu-operator], management_kinds: {kinds}}}\n"
    configure(host, text)
    assert written(cdigen, host) == ["nvidia.com-gpu.json"]
    configure(host, f"{text}{OPTION}")
    assert written(cdigen, host) == [NAME, "nvidia.com-gpu.json"]


def test_the_vendor_option_has_priority_over_management_namespaces(cdigen: Run, host: Path) -> None:
    configure(host, f"{NAMESPACES}vendor_options: {{nvidia: {{management: false}}}}\n")
    assert written(cdigen, host) == ["nvidia.com-gpu.json"]


def test_the_management_kind_has_all_nodes_and_files_and_disables_other_injectors(
    cdigen: Run, host: Path
) -> None:
    write_minors(host, 2)
    for minor in (1, 2):
        node = cap_node(minor)
        path = host / node.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, 0o020444, os.makedev(511, minor))
    configure(host, OPTION)
    spec = spec_of(cdigen, host)
    assert spec["kind"] == KIND
    (device,) = spec["devices"]
    assert device["name"] == "all"
    paths = {node["path"] for node in device["containerEdits"]["deviceNodes"]}
    wanted = {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
    assert wanted <= paths
    assert {cap_node(1).path, cap_node(2).path} <= paths
    assert not any("dri" in path for path in paths)
    assert "NVIDIA_VISIBLE_DEVICES=void" in spec["containerEdits"]["env"]
    gpus = cdigen("generate", "--root", host, "--kind", "nvidia.com/gpu").json
    assert set(targets(gpus)) <= set(targets(spec))


def test_without_the_option_kind_the_spec_of_the_gpus_is_printed(cdigen: Run, host: Path) -> None:
    plain = cdigen("generate", "--root", host).out
    configure(host, OPTION)
    done = cdigen("generate", "--root", host)
    assert (done.code, done.out) == (0, plain)
    assert f"the host also has {KIND}" in done.err


def test_the_mode_management_has_both_management_kinds(cdigen: Run, host: Path) -> None:
    configure(host, f"mode: management\n{OPTION}")
    rows = cdigen("generate", "--root", host, "--json").json
    own, other = rows
    assert (own["kind"], other["kind"]) == ("nvidia.com/management", KIND)
    assert own["devices"] == other["devices"]
    assert cdigen("generate", "--root", host, "--kind", "nvidia.com/management").json == own


def test_inspect_shows_the_management_kind_with_its_full_name(cdigen: Run, host: Path) -> None:
    configure(host, OPTION)
    assert any(line.startswith(f"{KIND} ") for line in cdigen("inspect", "--root", host).out.splitlines())


def test_an_inventory_contains_the_management_kind(cdigen: Run, host: Path) -> None:
    configure(host, OPTION)
    inventory = cdigen("inspect", "--root", host, "--json").out
    there = cdigen("generate", "--inventory", "-", "--kind", KIND, stdin=inventory.encode())
    assert there.json == spec_of(cdigen, host)


@pytest.mark.parametrize("folder", ["run/cdi", "etc/cdi"])
def test_a_foreign_spec_of_the_management_kind_stays_the_only_spec(
    cdigen: Run, host: Path, folder: str
) -> None:
    foreign = put_foreign(host, folder)
    configure(host, NAMESPACES)
    done = cdigen("generate", "--root", host, "--write", "--verbose")
    assert done.code == 0
    assert "[foreign-spec-kept]" in done.err
    assert not (host / "run/cdi" / NAME).exists()
    assert f"{foreign.name}" in cdigen("list", "--root", host, "--kind", KIND).out
    assert cdigen("diff", "--root", host).code == 0


def test_cdigens_spec_is_withdrawn_if_a_foreign_spec_appears(cdigen: Run, host: Path) -> None:
    configure(host, NAMESPACES)
    assert NAME in written(cdigen, host)
    put_foreign(host)
    assert KIND in cdigen("diff", "--root", host).out
    done = cdigen("generate", "--root", host, "--write")
    assert done.code == 0
    assert f"{NAME}: withdrawn, because" in done.err
    assert not (host / "run/cdi" / NAME).exists()
    assert cdigen("list", "--root", host, "--kind", KIND).code == 0


def test_a_foreign_spec_with_other_devices_of_the_kind_is_ignored(cdigen: Run, host: Path) -> None:
    put_foreign(host, device="one")
    configure(host, NAMESPACES)
    assert NAME in written(cdigen, host)


def test_replace_foreign_removes_a_foreign_spec_of_the_management_kind(cdigen: Run, host: Path) -> None:
    foreign = put_foreign(host)
    configure(host, NAMESPACES)
    assert NAME in written(cdigen, host, "--replace-foreign")
    assert not foreign.exists()


@pytest.mark.parametrize("before", ["/etc/cdi", "/run/cdi"])
def test_a_spec_of_cdigen_in_another_directory_is_not_foreign(cdigen: Run, host: Path, before: str) -> None:
    configure(host, OPTION)
    assert cdigen("generate", "--root", host, "--write", "--spec-dir", host / before.lstrip("/")).code == 0
    configure(host, f"{OPTION}spec_dirs: [{before}, /var/run/cdi]\n")
    done = cdigen("generate", "--root", host, "--write", "--verbose")
    assert done.code == 0
    assert "foreign-spec-kept" not in done.err
    assert (host / "run/cdi" / NAME).exists()
    assert cdigen("diff", "--root", host).code == 0


def test_the_management_kind_is_withdrawn_if_the_setting_is_removed(cdigen: Run, host: Path) -> None:
    configure(host, OPTION)
    assert written(cdigen, host)
    configure(host, "")
    assert written(cdigen, host, "--withdraw") == ["nvidia.com-gpu.json"]


def test_the_management_kind_is_withdrawn_if_the_driver_is_not_loaded(cdigen: Run, host: Path) -> None:
    configure(host, OPTION)
    assert written(cdigen, host)
    (host / "proc/driver/nvidia/version").unlink()
    assert cdigen("generate", "--root", host, "--write", "--withdraw").code == 3
    assert os.listdir(host / "run/cdi") == []
