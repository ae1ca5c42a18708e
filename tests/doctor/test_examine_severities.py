"""The severities of failures, and remedies that keep files of other tools and users."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from support.daemon.watching import run_apart
from support.doctor.broken_host import DEVICE, KIND, NAME

if TYPE_CHECKING:
    from pathlib import Path

    from support.doctor.broken_host import BrokenHost


def wrong(host: BrokenHost, *options: str) -> list[dict[str, Any]]:
    return [row for row in host.results(*options) if not row["ok"]]


@pytest.mark.parametrize(
    ("part", "entry"),
    [
        ("mounts", {"hostPath": "/usr", "containerPath": "/mnt/usr", "options": ["ro"]}),
        ("mounts", {"hostPath": "usr", "containerPath": "/mnt/usr", "options": ["bind"]}),
        ("deviceNodes", {"path": "/dev/null", "type": "c", "major": -1, "minor": 3}),
        ("hooks", {"hookName": "createContainer", "path": "/bin/sh", "timeout": 0}),
        ("hooks", {"hookName": "createContainer", "path": "bin/sh"}),
    ],
)
def test_a_spec_in_use_that_violates_a_rule_is_an_error(
    host: BrokenHost, part: str, entry: dict[str, Any]
) -> None:
    def change(document: dict[str, Any]) -> None:
        document["containerEdits"].setdefault(part, []).append(entry)

    host.put(f"run/cdi/{NAME}", host.changed(change))
    row = host.diagnosis()
    assert (row["check"], row["severity"]) == ("spec-rules", "error")
    assert f"$.containerEdits.{part}[" in row["detail"]
    host.fixed(row)


def test_cdigens_spec_replaces_an_invalid_spec_of_another_tool(host: BrokenHost) -> None:
    def change(document: dict[str, Any]) -> None:
        document["containerEdits"]["mounts"].append({"hostPath": "/usr", "containerPath": "/mnt/usr"})

    host.put("etc/cdi/theirs.json", host.changed(change))
    host.spec.unlink()
    row = host.diagnosis()
    assert row["check"] == "spec-rules"
    host.fixed(row)
    assert (host.root / "etc/cdi/theirs.json.disabled").exists()


def test_a_comment_in_a_spec_is_no_error(host: BrokenHost) -> None:
    host.spec.write_text(f"# by hand\n{host.spec.read_text()}")
    assert "spec-rules" not in [row["check"] for row in wrong(host)]


@pytest.mark.parametrize("name", ["etc/cdi/pipe.json", "etc/cdi/pipe.yaml", f"run/cdi/{NAME}"])
def test_a_fifo_on_which_runtimes_hang_is_an_error(host: BrokenHost, name: str) -> None:
    host.path(name).parent.mkdir(parents=True, exist_ok=True)
    host.path(name).unlink(missing_ok=True)
    os.mkfifo(host.path(name))
    row = host.diagnosis("--device", DEVICE)
    assert (row["check"], row["severity"]) == ("spec-hangs", "error")
    assert not host.result("podman-devices")["ok"]
    host.fixed(row)


def test_a_rename_to_disabled_overwrites_no_file(host: BrokenHost) -> None:
    host.put("etc/cdi/other.json", "{broken")
    host.put("etc/cdi/other.json.disabled", "another file")
    (host.root / "etc/cdi/other.json-1.disabled").mkdir()
    host.fixed(host.diagnosis())
    assert (host.root / "etc/cdi/other.json.disabled").read_text() == "another file"
    assert (host.root / "etc/cdi/other.json-2.disabled").read_text() == "{broken"


def test_a_change_of_the_ending_overwrites_no_file(host: BrokenHost) -> None:
    other = {"cdiVersion": "0.5.0", "kind": "other.com/thing"}
    edits = {"containerEdits": {"env": ["A=b"]}}
    kept = host.put("run/cdi/n.json", {**other, "devices": [{"name": "a", **edits}]}).read_text()
    host.spec.rename(host.spec.with_name("n.JSON"))
    row = host.diagnosis("--device", DEVICE)
    assert row["check"] == "spec-name"
    host.shell(row["remedy"])
    assert host.path("run/cdi/n.json").read_text() == kept
    assert json.loads(host.path("run/cdi/n-1.json").read_text())["kind"] == KIND


def test_a_copy_of_a_linked_directory_overwrites_no_earlier_copy(host: BrokenHost) -> None:
    host.put("srv/cdi/other.json", host.document())
    host.put("etc/cdi.cdigen/left.json", "left")
    host.link("etc/cdi", "/srv/cdi")
    host.spec.unlink()
    row = host.result("spec-directory-link")
    host.shell(row["remedy"])
    assert sorted(os.listdir(host.root / "etc/cdi")) == ["other.json"]
    assert (host.root / "etc/cdi.cdigen/left.json").read_text() == "left"


def test_a_file_of_an_administrator_is_renamed_and_not_removed(host: BrokenHost) -> None:
    host.enable("nvidia-cdi-refresh.path", "[Path]\n")
    host.put("run/cdi/nvidia.yaml", host.document())
    host.put("etc/cdi/nvidia.yaml", host.document())
    remedy = host.result("nvidia-refresh")["remedy"]
    host.shell(remedy)
    assert not host.path("run/cdi/nvidia.yaml").exists()
    assert (host.root / "etc/cdi/nvidia.yaml.disabled").exists()


def test_a_directory_at_the_path_of_a_node_is_removed_only_if_it_is_empty(host: BrokenHost) -> None:
    node = host.root / "dev/nvidia0"
    node.unlink()
    host.put("dev/nvidia0/precious", "content")
    row = host.diagnosis()
    assert (row["check"], row["remedy"]) == ("node-wrong", "")
    assert "/dev/nvidia0: a directory that is not empty, must be 195:0" in row["detail"]
    (node / "precious").unlink()
    host.shell(host.result("node-wrong")["remedy"])
    assert node.is_char_device()


def test_the_remedy_replaces_a_file_by_a_directory_with_specs(host: BrokenHost) -> None:
    host.spec.unlink()
    host.spec.parent.rmdir()
    host.put("run/cdi", "no folder")
    row = host.result("spec-directory-kind")
    host.fixed(row)
    assert host.spec.exists()


REMOUNT = """
from cdigen.doctor.checks.other_tools import remount
import os, subprocess, sys
folder = f"{sys.argv[1]}/it's full"
os.mkdir(folder)
for options in (["-t", "tmpfs", "none"], ["--bind", "/usr"]):
    subprocess.run(["mount", *options, folder], check=True)
    os.makedirs(f"{folder}/share", exist_ok=True)
    how = "remount,ro" if "-t" in options else "remount,bind,ro"
    subprocess.run(["mount", "-o", how, folder], check=True)
    command = remount(f"{folder}/share")
    assert os.statvfs(folder).f_flag & os.ST_RDONLY
    subprocess.run(command, check=True)
    print(bool(os.statvfs(folder).f_flag & os.ST_RDONLY))
"""


@pytest.mark.usefixtures("own_mounts")
def test_the_remedy_remounts_the_mount_of_the_folder(tmp_path: Path) -> None:
    output = run_apart(REMOUNT, str(tmp_path), start=("unshare", "--mount", "--propagation", "private"))
    assert output == ["False", "False"]
