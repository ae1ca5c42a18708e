"""`cdigen generate --target`: the specs for older and newer runtimes, and the groups of device nodes."""

import os
from pathlib import Path
from typing import Any

import pytest
from support.command.fixtures import GPUS, Done, Run
from support.command.imports import HEAVY, imported
from support.command.resolve import EXAMPLE
from support.command.specs import names

UUIDS = [gpu.uuid for gpu in GPUS]
CARD, RENDER = "/dev/dri/card1", "/dev/dri/renderD129"


@pytest.fixture
def closed_host(host: Path) -> Path:
    """Return a host on which only the groups video (44) and render (109) can open DRM nodes, as with udev."""
    for node in (host / "dev/dri").iterdir():
        if not node.is_symlink():
            os.chown(node, 0, 44 if node.name.startswith("card") else 109)
            node.chmod(0o660)
    return host


def edits(done: Done, name: str) -> dict[str, Any]:
    (found,) = [device["containerEdits"] for device in done.json["devices"] if device["name"] == name]
    assert isinstance(found, dict)
    return found


def rules(done: Done) -> list[str]:
    return [line.rpartition(" [")[2].rstrip("]") for line in done.err.splitlines()]


@pytest.mark.parametrize("target", ["podman-4.3", "podman-5.1", "docker-25.0", "containerd-1.7.24"])
def test_runtimes_with_cdi_0_5_0_or_newer_get_the_same_spec_if_all_users_can_open_the_nodes(
    cdigen: Run, host: Path, target: str
) -> None:
    done = cdigen("generate", "--root", host, "--target", target)
    assert (done.code, done.err) == (0, "")
    assert done.out == cdigen("generate", "--root", host).out


def test_a_node_that_only_its_group_can_open_has_this_group(cdigen: Run, closed_host: Path) -> None:
    done = cdigen("generate", "--root", closed_host)
    assert [node for node in edits(done, "0")["deviceNodes"] if "hostPath" not in node] == [
        {"path": CARD, "fileMode": 0o660, "gid": 44, "permissions": "rw"},
        {"path": RENDER, "fileMode": 0o660, "gid": 109, "permissions": "rw"},
        {"path": "/dev/nvidia0", "fileMode": 0o666, "permissions": "rw"},
    ]


def test_without_a_target_groups_are_omitted_with_a_verbose_message(cdigen: Run, closed_host: Path) -> None:
    assert cdigen("generate", "--root", closed_host).err == ""
    done = cdigen("generate", "--root", closed_host, "--verbose")
    assert (done.code, done.json["cdiVersion"]) == (0, "0.5.0")
    assert "additionalGids" not in done.out
    assert rules(done) == ["hook-missing", "no-forward-compatibility", "target-dropped-gids"]
    assert all(
        word in done.err for word in ("groups 44, 109", "keep-groups", "'target: [podman-5.1]'", "/dev/dri/")
    )


def test_a_runtime_that_supports_groups_gets_them_in_each_device(cdigen: Run, closed_host: Path) -> None:
    done = cdigen("generate", "--root", closed_host, "--target", "podman-5.1")
    assert (done.code, done.err, done.json["cdiVersion"]) == (0, "", "0.7.0")
    gpus = [name for name in names(done.json) if name != "none"]
    assert {tuple(edits(done, name)["additionalGids"]) for name in gpus} == {(44, 109)}
    assert "additionalGids" not in done.json["containerEdits"]


def test_the_group_of_a_node_of_all_devices_is_in_the_document_edits(cdigen: Run, host: Path) -> None:
    os.chown(host / "dev/nvidia-uvm", 0, 44)
    (host / "dev/nvidia-uvm").chmod(0o640)
    done = cdigen("generate", "--root", host, "--target", "podman-5.1")
    assert done.json["containerEdits"]["additionalGids"] == [44]
    assert "additionalGids" not in edits(done, "all")


@pytest.mark.parametrize(
    ("mode", "gid", "shown", "added"),
    [
        (0o660, 44, 44, [44]),
        (0o664, 44, 44, [44]),
        (0o662, 44, 44, [44]),
        (0o600, 44, 44, None),
        (0o666, 44, None, None),
        (0o660, 0, None, None),
    ],
)
def test_only_a_group_other_than_root_that_can_open_a_node_is_added(  # noqa: PLR0917 - a table's row
    cdigen: Run, host: Path, mode: int, gid: int, shown: int | None, added: list[int] | None
) -> None:
    os.chown(host / "dev/nvidia0", 0, gid)
    (host / "dev/nvidia0").chmod(mode)
    found = edits(cdigen("generate", "--root", host, "--target", "podman-5.1"), "0")
    assert found["deviceNodes"][-1].get("gid") == shown
    assert found.get("additionalGids") == added


def test_docker_before_29_5_gets_the_groups_with_a_warning(cdigen: Run, closed_host: Path) -> None:
    done = cdigen("generate", "--root", closed_host, "--target", "docker-28.1")
    assert (done.code, done.json["cdiVersion"]) == (0, "0.7.0")
    assert rules(done) == ["target-forgets-gids"]
    assert cdigen("generate", "--root", closed_host, "--target", "docker-29.5").err == ""


def test_before_cdi_0_5_0_no_device_has_a_number_as_its_name(cdigen: Run, host: Path) -> None:
    done = cdigen("generate", "--root", host, "--target", "podman-4.2")
    assert (done.code, done.json["cdiVersion"]) == (0, "0.4.0")
    assert names(done.json) == [*UUIDS, "none", "all"]
    assert rules(done) == ["target-dropped-name"] * 2
    assert f"nvidia.com/gpu={UUIDS[1]}" in done.err


def test_before_cdi_0_4_0_mounts_have_no_type_and_one_warning_reports_it(cdigen: Run, host: Path) -> None:
    done = cdigen("generate", "--root", host, "--target", "crio-1.24")
    assert (done.code, done.json["cdiVersion"]) == (0, "0.3.0")
    assert rules(done) == [*["target-dropped-name"] * 2, "target-dropped-mount-type"]
    assert not any("type" in mount for mount in done.json["containerEdits"]["mounts"])


@pytest.mark.parametrize("target", ["podman-4.2", "crio-1.24", "podman-4.3", "podman-5.1", "docker-29.7"])
def test_the_spec_for_a_target_is_valid(cdigen: Run, closed_host: Path, target: str) -> None:
    spec = cdigen("generate", "--root", closed_host, "--target", target).out
    done = cdigen("validate", "-", "--json", stdin=spec.encode())
    assert (done.code, done.json[0]["valid"]) == (0, True)


def test_a_gpu_without_uuid_is_refused_if_names_must_not_be_numbers(cdigen: Run, host: Path) -> None:
    file = host / f"proc/driver/nvidia/gpus/{GPUS[0].bdf}/information"
    file.write_text(file.read_text().replace(GPUS[0].uuid, "GPU-????????-????-????-????-????????????"))
    done = cdigen("generate", "--root", host, "--target", "podman-4.2")
    assert done.failed(4, "podman-4.2.0", "begins with a digit", "0 has no other name", "podman-4.3")
    assert done.out == ""
    assert cdigen("generate", "--root", host, "--target", "podman-4.3").code == 0


def test_a_node_behind_a_link_is_refused_for_a_runtime_without_host_paths(cdigen: Run, host: Path) -> None:
    (host / "dev/nvidia0").rename(host / "dev/real")
    (host / "dev/nvidia0").symlink_to("real")
    done = cdigen("generate", "--root", host, "--target", "podman-4.2", "--json")
    assert done.failed(4, "hostPath", "/dev/nvidia0 is /dev/real")
    assert done.json["error"]["kind"] == "target"


def test_of_several_targets_the_strictest_applies_in_any_order(cdigen: Run, closed_host: Path) -> None:
    one, two = ("--target", "podman-5.1"), ("--target", "containerd-1.7")
    both = cdigen("generate", "--root", closed_host, *one, *two)
    assert both.json["cdiVersion"] == "0.5.0"
    assert "containerd-1.7.0" in both.err
    assert (both.out, both.err) == (
        (again := cdigen("generate", "--root", closed_host, *two, *one)).out,
        again.err,
    )


def test_a_target_may_precede_the_command(cdigen: Run, host: Path) -> None:
    done = cdigen("--target", "podman-4.2", "generate", "--root", host)
    assert done.json["cdiVersion"] == "0.4.0"


def test_the_json_output_of_a_write_lists_dropped_features(
    cdigen: Run, closed_host: Path, tmp_path: Path
) -> None:
    arguments = ("--write", "--json", "--spec-dir", tmp_path / "cdi", "--target", "podman-4.9")
    (row,) = cdigen("generate", "--root", closed_host, *arguments).json
    (finding,) = [finding for finding in row["findings"] if finding["rule"] == "target-dropped-gids"]
    assert (finding["severity"], finding["path"]) == ("warning", "nvidia.com/gpu")
    assert "keep-groups" in finding["hint"]


@pytest.mark.parametrize("target", ["podman", "podman-4.0", "docker-24", "lxc-6.0", "podman-5.1-rc1", ""])
def test_an_impossible_target_is_wrong_usage_before_discovery(
    cdigen: Run, tmp_path: Path, target: str
) -> None:
    done = cdigen("generate", "--root", tmp_path, "--target", target)
    assert done.failed(2, "target", target)


def test_the_help_has_an_example(cdigen: Run) -> None:
    assert "--target podman-4.3" in cdigen("generate", "--help").out


def test_the_table_of_runtimes_is_imported_only_with_a_target() -> None:
    arguments = ("generate", "--inventory", str(EXAMPLE))
    assert "cdigen.runtimes.targets" not in imported(*arguments)
    with_target = imported(*arguments, "--target", "podman-5.1")
    assert "cdigen.runtimes.targets" in with_target
    assert not with_target & HEAVY
