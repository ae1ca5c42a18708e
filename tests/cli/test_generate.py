"""`cdigen generate`: the output, its destinations, and invalid combinations of options."""

import json
import os
from pathlib import Path

import pytest
import yaml
from support.command.fixtures import GPUS, Run
from support.command.specs import configure
from support.paths import REPOSITORY

DEVICES = ["0", "1", *(gpu.uuid for gpu in GPUS), "none", "all"]


def test_generate_prints_only_the_spec(cdigen: Run, host: Path) -> None:
    done = cdigen("generate", "--root", host)
    assert (done.code, done.err) == (0, "")
    assert done.json["cdiVersion"] == "0.5.0"
    assert [device["name"] for device in done.json["devices"]] == DEVICES


def test_options_may_precede_the_command(cdigen: Run, host: Path) -> None:
    assert cdigen("--root", host, "generate").out == cdigen("generate", "--root", host).out


def test_the_output_is_the_same_at_every_run(cdigen_process: Run, host: Path) -> None:
    assert (
        cdigen_process("generate", "--root", host).out
        == cdigen_process("generate", "--root", host, PYTHONHASHSEED="7").out
    )


def test_json_prints_a_list_of_documents(cdigen: Run, host: Path) -> None:
    assert cdigen("generate", "--root", host, "--json").json == [cdigen("generate", "--root", host).json]


def test_yaml_contains_the_same_document(cdigen: Run, host: Path) -> None:
    done = cdigen("generate", "--root", host, "--format", "yaml")
    assert yaml.safe_load(done.out) == cdigen("generate", "--root", host).json


def test_output_writes_only_the_file(cdigen: Run, host: Path, tmp_path: Path) -> None:
    file = tmp_path / "there" / "spec.json"
    file.parent.mkdir()
    done = cdigen("generate", "--root", host, "--output", file)
    assert (done.code, done.out) == (0, "")
    assert file.read_text() == cdigen("generate", "--root", host).out
    assert os.listdir(file.parent) == ["spec.json"]


def test_output_can_be_a_device(cdigen: Run, host: Path) -> None:
    before = os.lstat("/dev/null")
    assert cdigen("generate", "--root", host, "--output", "/dev/null").code == 0
    assert os.lstat("/dev/null").st_rdev == before.st_rdev


@pytest.mark.parametrize("option", ["--output", "--output-dir"])
def test_output_does_not_follow_a_link_of_another_user(
    option: str, cdigen: Run, host: Path, tmp_path: Path
) -> None:
    drop, victim = tmp_path / "drop", tmp_path / "victim"
    drop.mkdir()
    drop.chmod(0o1777)
    victim.write_text("root's own")
    planted = drop / ("spec.json" if option == "--output" else "nvidia.com-gpu.json")
    planted.symlink_to(victim)
    os.chown(planted, 4202, 4202, follow_symlinks=False)
    where = planted if option == "--output" else drop
    done = cdigen("generate", "--root", host, option, where)
    assert done.failed(5, str(planted), "symlink of uid 4202", "not followed")
    assert victim.read_text() == "root's own"


def test_output_dir_gets_one_file_per_kind(cdigen: Run, host: Path, tmp_path: Path) -> None:
    assert cdigen("generate", "--root", host, "--output-dir", tmp_path / "out").code == 0
    assert cdigen("generate", "--root", host, "--output-dir", tmp_path / "out", "--format", "yaml").code == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["nvidia.com-gpu.json", "nvidia.com-gpu.yaml"]


def test_an_inventory_results_in_the_same_spec_as_its_host(cdigen: Run, host: Path, tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.json"
    inventory.write_text(cdigen("inspect", "--root", host, "--json").out)
    assert cdigen("generate", "--inventory", inventory).out == cdigen("generate", "--root", host).out


def test_an_inventory_may_come_from_standard_input(cdigen: Run, host: Path) -> None:
    inventory = cdigen("inspect", "--root", host, "--json").out
    done = cdigen("generate", "--inventory", "-", stdin=inventory.encode())
    assert done.out == cdigen("generate", "--root", host).out


def test_the_spec_of_an_inventory_cannot_be_written_into_a_spec_directory(
    cdigen: Run, host: Path, tmp_path: Path
) -> None:
    inventory = tmp_path / "inventory.json"
    inventory.write_text(cdigen("inspect", "--root", host, "--json").out)
    link = tmp_path / "link.json"
    link.symlink_to("/etc/cdi/x.json")
    given = tmp_path / "given"
    assert cdigen("generate", "--inventory", inventory, "--write").failed(2, "exclude each other")
    for arguments in (
        ("--output", "/etc/cdi/x.json"),
        ("--output", link),
        ("--output-dir", "/var/run/cdi"),
        ("--output-dir", given, "--spec-dir", given),
    ):
        done = cdigen("generate", "--inventory", inventory, *arguments)
        assert done.failed(2, "is a spec directory"), arguments


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"schema": 2, "vendors": {}}', b"\xff\x00", b"[" * 90000]
)
def test_a_wrong_inventory_is_a_usage_error(cdigen: Run, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "inventory.json"
    file.write_bytes(content)
    assert cdigen("generate", "--inventory", file).failed(2, "inspect --json")


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("--write --output x", 2, ("not allowed with",)),
        ("--replace-foreign", 2, ("--replace-foreign", "--write")),
        ("--withdraw", 2, ("--withdraw", "--write")),
        ("--write --format yaml", 2, ("JSON only",)),
        ("--kind gpu", 2, ("'gpu'", "nvidia.com/gpu")),
        ("--driver-root run/driver", 2, ("not absolute",)),
        ("--driver-root /run/driver", 2, ("/run/driver",)),
        # A kind of a vendor whose driver is not loaded is valid.
        ("--kind amd.com/gpu", 3, ("amd.com/gpu",)),
        ("--inventory /nowhere.json", 5, ("/nowhere.json", "No such file")),
        ("--config /nowhere.yaml", 5, ("/nowhere.yaml",)),
    ],
)
def test_impossible_options_are_refused_with_the_reason(
    cdigen: Run, host: Path, options: str, code: int, words: tuple[str, ...]
) -> None:
    root = () if "--inventory" in options else ("--root", host)
    assert cdigen("generate", *root, *options.split()).failed(code, *words)


@pytest.mark.parametrize("command", [("generate",), ("generate", "--write"), ("diff",), ("inspect",)])
@pytest.mark.parametrize("kind", ["nvidia.com/nic", "acme.example/npu"])
def test_an_unknown_kind_is_refused_with_the_available_kinds(
    cdigen: Run, host: Path, command: tuple[str, ...], kind: str
) -> None:
    done = cdigen(*command, "--root", host, "--kind", "nvidia.com/gpu", "--kind", kind)
    assert done.failed(2, kind, "available kinds: nvidia.com/gpu")
    assert not (host / "run/cdi").exists() or not any((host / "run/cdi").iterdir())


def test_host_paths_have_the_driver_root_and_container_paths_do_not(cdigen: Run, host: Path) -> None:
    inner = host / "run/nvidia/driver"
    inner.mkdir(parents=True)
    for name in ("usr", "etc", "lib", "bin", "sbin"):
        if (host / name).exists():
            os.rename(host / name, inner / name)
    spec = cdigen("generate", "--root", host, "--driver-root", "/run/nvidia/driver").json
    mounts = spec["containerEdits"]["mounts"]
    assert all(mount["hostPath"].startswith("/run/nvidia/driver/") for mount in mounts)
    assert not any(mount["containerPath"].startswith("/run/nvidia/driver") for mount in mounts)
    assert spec["devices"][0]["containerEdits"]["deviceNodes"][-1]["path"] == "/dev/nvidia0"


def test_the_dev_root_is_the_folder_of_the_device_nodes(cdigen: Run, host: Path) -> None:
    inner = host / "run/nvidia/driver"
    inner.mkdir(parents=True)
    os.rename(host / "dev", inner / "dev")
    spec = cdigen("generate", "--root", host, "--dev-root", "/run/nvidia/driver").json
    node = spec["devices"][0]["containerEdits"]["deviceNodes"][-1]
    assert (node["path"], node["hostPath"]) == ("/dev/nvidia0", "/run/nvidia/driver/dev/nvidia0")


def test_search_paths_replace_the_known_folders(cdigen: Run, host: Path) -> None:
    folder = "/usr/lib/x86_64-linux-gnu/nvidia/current"
    (host / "opt").mkdir()
    spec = cdigen(
        *("generate", "--root", host, "--library-search-path", folder),
        *("--binary-search-path", "/opt", "--config-search-path", "/opt"),
    ).json
    mounts = {mount["containerPath"]: mount["hostPath"] for mount in spec["containerEdits"]["mounts"]}
    libraries = {source for target, source in mounts.items() if target.startswith("/usr/lib64/lib")}
    assert libraries
    assert all(source.startswith(folder) for source in libraries)
    assert not any(source.endswith(".json") for source in mounts.values())
    assert not any("/bin/" in target for target in mounts)


def test_strict_refuses_a_host_that_lacks_a_node(cdigen: Run, host: Path) -> None:
    (host / "dev/nvidia1").unlink()
    assert cdigen("generate", "--root", host).code == 0
    done = cdigen("generate", "--root", host, "--strict")
    assert done.failed(3, "/dev/nvidia1 does not exist")
    assert done.out == ""


def test_the_configuration_of_the_host_is_used(cdigen: Run, host: Path) -> None:
    configure(host, "library_search_paths: [/empty]\n")
    assert cdigen("generate", "--root", host).failed(3, "no library of the driver")


def test_a_wrong_configuration_is_reported_with_its_lines(cdigen: Run, host: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("vendors: nvidia\n\nspecdirs: []\n")
    done = cdigen("generate", "--root", host, "--config", config)
    assert done.failed(2, f"{config}:1", "must be a list", f"{config}:3", "did you mean 'spec_dirs'")


@pytest.mark.parametrize("name", ["debian13-8xh100", "ubuntu-2xmi300x-cpx", "ubuntu-flex170-sriov"])
def test_the_spec_of_an_example_host_equals_the_example_spec(cdigen: Run, name: str) -> None:
    done = cdigen("generate", "--inventory", REPOSITORY / f"examples/hosts/{name}.json")
    assert done.json == json.loads((REPOSITORY / f"examples/specs/{name}.json").read_text())
