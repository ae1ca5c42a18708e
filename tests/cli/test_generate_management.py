"""The kind management.nvidia.com/gpu: who gets it, what it gives, and that it stands back for others."""

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
# As gpu-operator's toolkit names its own.
FOREIGN = "management.nvidia.com-gpu.yaml"


def spec_of(cdigen: Run, host: Path) -> Any:
    return cdigen("generate", "--root", host, "--kind", KIND).json


def put_foreign(host: Path, folder: str = "run/cdi", device: str = "all") -> Path:
    """Write the spec of NVIDIA's toolkit, with another hand than ours."""
    devices = [{"name": device, "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}]
    return put(host / folder / FOREIGN, {"cdiVersion": "0.5.0", "kind": KIND, "devices": devices})


def test_nobody_gets_it_written_unasked(cdigen: Run, host: Path) -> None:
    assert written(cdigen, host) == ["nvidia.com-gpu.json"]
    assert cdigen("generate", "--root", host, "--kind", KIND).failed(2, KIND)


@pytest.mark.parametrize("text", [OPTION, NAMESPACES])
def test_it_is_written_where_it_is_configured_or_some_may_have_it(cdigen: Run, host: Path, text: str) -> None:
    configure(host, text)
    assert written(cdigen, host) == [NAME, "nvidia.com-gpu.json"]
    listed = cdigen("list", "--root", host).out.splitlines()
    assert [line.split()[0] for line in listed if line.startswith("management")] == [f"{KIND}=all"]


def test_it_is_not_written_where_anybody_might_have_it(cdigen: Run, host: Path) -> None:
    # A list from before this kind was written keeps it from nobody whom a row gives "*".
    kinds = "[nvidia.com/management, nvidia.com/mig]"
    text = f"nri: {{management_namespaces: [gpu-operator], management_kinds: {kinds}}}\n"
    configure(host, text)
    assert written(cdigen, host) == ["nvidia.com-gpu.json"]
    configure(host, f"{text}{OPTION}")
    assert written(cdigen, host) == [NAME, "nvidia.com-gpu.json"]


def test_the_option_outweighs_who_may_have_it(cdigen: Run, host: Path) -> None:
    configure(host, f"{NAMESPACES}vendor_options: {{nvidia: {{management: false}}}}\n")
    assert written(cdigen, host) == ["nvidia.com-gpu.json"]


def test_it_gives_every_node_and_file_and_keeps_other_injectors_away(cdigen: Run, host: Path) -> None:
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


def test_without_a_kind_the_gpus_are_printed(cdigen: Run, host: Path) -> None:
    plain = cdigen("generate", "--root", host).out
    configure(host, OPTION)
    done = cdigen("generate", "--root", host)
    assert (done.code, done.out) == (0, plain)
    assert f"the host has {KIND} as well" in done.err


def test_the_mode_of_administrators_has_both_names(cdigen: Run, host: Path) -> None:
    configure(host, f"mode: management\n{OPTION}")
    rows = cdigen("generate", "--root", host, "--json").json
    own, other = rows
    assert (own["kind"], other["kind"]) == ("nvidia.com/management", KIND)
    assert own["devices"] == other["devices"]
    assert cdigen("generate", "--root", host, "--kind", "nvidia.com/management").json == own


def test_inspect_shows_it_under_its_whole_name(cdigen: Run, host: Path) -> None:
    configure(host, OPTION)
    assert any(line.startswith(f"{KIND} ") for line in cdigen("inspect", "--root", host).out.splitlines())


def test_an_inventory_gives_it_elsewhere(cdigen: Run, host: Path) -> None:
    configure(host, OPTION)
    inventory = cdigen("inspect", "--root", host, "--json").out
    there = cdigen("generate", "--inventory", "-", "--kind", KIND, stdin=inventory.encode())
    assert there.json == spec_of(cdigen, host)


@pytest.mark.parametrize("folder", ["run/cdi", "etc/cdi"])
def test_anothers_spec_of_the_kind_stays_the_only_one(cdigen: Run, host: Path, folder: str) -> None:
    foreign = put_foreign(host, folder)
    configure(host, NAMESPACES)
    done = cdigen("generate", "--root", host, "--write", "--verbose")
    assert done.code == 0
    assert "[left-to-foreign]" in done.err
    assert not (host / "run/cdi" / NAME).exists()
    assert f"{foreign.name}" in cdigen("list", "--root", host, "--kind", KIND).out
    assert cdigen("diff", "--root", host).code == 0


def test_ours_is_withdrawn_when_anothers_has_come(cdigen: Run, host: Path) -> None:
    configure(host, NAMESPACES)
    assert NAME in written(cdigen, host)
    put_foreign(host)
    assert KIND in cdigen("diff", "--root", host).out
    done = cdigen("generate", "--root", host, "--write")
    assert done.code == 0
    assert f"{NAME}: withdrawn, because" in done.err
    assert not (host / "run/cdi" / NAME).exists()
    assert cdigen("list", "--root", host, "--kind", KIND).code == 0


def test_anothers_spec_with_other_devices_of_the_kind_is_no_reason(cdigen: Run, host: Path) -> None:
    put_foreign(host, device="one")
    configure(host, NAMESPACES)
    assert NAME in written(cdigen, host)


def test_anothers_spec_is_moved_aside_on_demand(cdigen: Run, host: Path) -> None:
    foreign = put_foreign(host)
    configure(host, NAMESPACES)
    assert NAME in written(cdigen, host, "--replace-foreign")
    assert not foreign.exists()


@pytest.mark.parametrize("before", ["/etc/cdi", "/run/cdi"])
def test_a_spec_that_cdigen_wrote_elsewhere_is_no_others(cdigen: Run, host: Path, before: str) -> None:
    configure(host, OPTION)
    assert cdigen("generate", "--root", host, "--write", "--spec-dir", host / before.lstrip("/")).code == 0
    configure(host, f"{OPTION}spec_dirs: [{before}, /var/run/cdi]\n")
    done = cdigen("generate", "--root", host, "--write", "--verbose")
    assert done.code == 0
    assert "left-to-foreign" not in done.err
    assert (host / "run/cdi" / NAME).exists()
    assert cdigen("diff", "--root", host).code == 0


def test_it_goes_with_the_setting(cdigen: Run, host: Path) -> None:
    configure(host, OPTION)
    assert written(cdigen, host)
    configure(host, "")
    assert written(cdigen, host, "--withdraw") == ["nvidia.com-gpu.json"]


def test_it_goes_with_the_driver(cdigen: Run, host: Path) -> None:
    configure(host, OPTION)
    assert written(cdigen, host)
    (host / "proc/driver/nvidia/version").unlink()
    assert cdigen("generate", "--root", host, "--write", "--withdraw").code == 3
    assert os.listdir(host / "run/cdi") == []
