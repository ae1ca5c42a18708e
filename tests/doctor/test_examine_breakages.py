"""A host is broken in ten ways: the doctor names the cause first, and the remedy that it prints fixes it."""

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from support.doctor.broken_host import ALICE, KIND, NAME, BrokenHost

LIBRARY = "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ptxjitcompiler.so.550.163.01"


def test_a_host_that_is_well_has_nothing_wrong(host: BrokenHost) -> None:
    rows = host.doctor(wrong=False)
    assert {"driver-loaded", "node-missing", "spec-fresh", "podman-devices"} < {row["check"] for row in rows}


def test_a_stale_duplicate_in_the_same_directory_is_moved_aside(host: BrokenHost) -> None:
    stale = host.document()
    stale["containerEdits"]["mounts"][0]["hostPath"] = "/usr/lib/libcuda.so.535.54.03"
    host.put("run/cdi/nvidia.json", stale)
    row = host.diagnosis()
    assert row["check"] == "spec-conflict"
    assert "/var/run/cdi/nvidia.json" in row["detail"]
    host.fixed(row)
    assert not host.path("run/cdi/nvidia.json").exists()
    assert host.spec.exists()


def put_two_others(host: BrokenHost) -> None:
    for name in ("a.json", "b.json"):
        host.put(f"etc/cdi/{name}", host.document())


def name_a_new_version(host: BrokenHost) -> None:
    host.put(f"run/cdi/{NAME}", {**host.document(), "cdiVersion": "1.2.0"})


def look_elsewhere(host: BrokenHost) -> None:
    host.put("etc/containers/containers.conf", '[engine]\ncdi_spec_dirs = ["/srv/cdi"]\n')


def take_a_device_out(host: BrokenHost) -> None:
    document = host.document()
    devices = [device for device in document["devices"] if device["name"] != "1"]
    host.put(f"run/cdi/{NAME}", {**document, "devices": devices})


def put_a_stale_spec_of_others(host: BrokenHost) -> None:
    document = host.document()
    document["containerEdits"]["mounts"][0]["hostPath"] = "/usr/lib/gone.so"
    host.put("etc/cdi/nvidia.yaml", document)


def tear_the_spec(host: BrokenHost) -> None:
    host.spec.write_bytes(host.spec.read_bytes()[:-20])


def give_the_directory_away(host: BrokenHost) -> None:
    os.chown(host.root / "run/cdi", 1000, 1000)


# What breaks the host, the doctor's options, and the check, severity and words of the diagnosis.
BREAKAGES: dict[str, tuple[Callable[[BrokenHost], object], str, str, str, str]] = {
    "conflict of two others": (
        put_two_others, f"--for podman --device {KIND}=0", "spec-conflict", "error", ""),
    "version too new": (name_a_new_version, "", "spec-refused", "error", "1.2.0"),
    "runtime looks elsewhere": (
        look_elsewhere, "", "podman-directories", "error", "/etc/containers/containers.conf"),
    "missing node": (
        lambda host: host.path("dev/nvidia0").unlink(), "", "node-missing", "error", "/dev/nvidia0"),
    "bad JSON": (tear_the_spec, "", "spec-syntax", "error", "line"),
    "no spec": (lambda host: host.spec.unlink(), "", "spec-missing", "error", ""),
    "spec lacks a device": (take_a_device_out, f"--device {KIND}=1", "spec-fresh", "error", "+1 device"),
    "only root reads the spec": (lambda host: host.spec.chmod(0o600), "", "spec-readable", "warning", ""),
    "others write the spec": (lambda host: host.spec.chmod(0o666), "", "spec-trust", "warning", ""),
    "directory of another user": (give_the_directory_away, "", "spec-trust", "warning", ""),
    "unused stale spec of others": (put_a_stale_spec_of_others, "", "spec-stale", "warning", ""),
    "broken file of another vendor": (
        lambda host: host.put("etc/cdi/other.json", '{"cdiVersion": "0.5.0", "kind": "other.com/thing"'),
        "", "spec-syntax", "warning", ""),
}  # fmt: skip


@pytest.mark.parametrize(
    ("break_host", "options", "check", "severity", "words"), BREAKAGES.values(), ids=BREAKAGES
)
def test_the_first_diagnosis_is_the_cause_and_its_remedy_fixes_the_host(  # noqa: PLR0917 - a table
    host: BrokenHost,
    break_host: Callable[[BrokenHost], object],
    options: str,
    check: str,
    severity: str,
    words: str,
) -> None:
    break_host(host)
    row = host.diagnosis(options)
    assert (row["check"], row["severity"]) == (check, severity)
    assert words in row["detail"]
    host.fixed(row)


def test_a_docker_whose_cdi_is_off_is_configured(tmp_path_host: BrokenHost) -> None:
    host = tmp_path_host
    host.put("etc/docker/daemon.json", '{"features": {"cdi": false}}')
    row = host.diagnosis("--for", "docker")
    assert (row["check"], row["severity"]) == ("docker-cdi", "error")
    assert "/etc/docker/daemon.json" in row["detail"]
    host.fixed(row, "--for", "docker")


def test_a_file_that_the_user_may_not_read_is_opened(host: BrokenHost) -> None:
    host.put("etc/passwd", ALICE)
    host.put("etc/subuid", "alice:100000:65536\n")
    host.put("etc/subgid", "alice:100000:65536\n")
    for name in ("newuidmap", "newgidmap"):
        host.put(f"usr/bin/{name}", "", mode=0o755)
    host.doctor("--user", "alice", wrong=False)
    host.spec.chmod(0o600)
    row = host.diagnosis("--user", "alice")
    assert row["check"] == "spec-unreadable"
    host.fixed(row, "--user", "alice")


def test_a_directory_that_is_a_link_becomes_one(host: BrokenHost) -> None:
    (host.root / "run/cdi").rename(host.root / "srv-cdi")
    host.link("run/cdi", "/srv-cdi")
    row = host.diagnosis()
    assert row["check"] == "spec-directory-link"
    host.fixed(row)
    assert not (host.root / "run/cdi").is_symlink()


def test_a_missing_library_is_taken_out_of_the_spec(host: BrokenHost) -> None:
    host.path(LIBRARY).unlink()
    row = host.diagnosis()
    assert row["check"] == "spec-files"
    assert "libnvidia-ptxjitcompiler.so.550.163.01" in row["detail"]
    host.shell(row["remedy"])
    rows = [row for row in host.ask() if not row["ok"]]
    assert {row["check"] for row in rows} == {"driver-files"}
    assert {row["severity"] for row in rows} == {"warning"}


def test_another_file_of_the_kind_that_shares_one_device_is_moved_aside(host: BrokenHost) -> None:
    def change(document: dict[str, Any]) -> None:
        document["devices"] = [device for device in document["devices"] if device["name"] == "0"]

    host.put("run/cdi/other-vendor.yaml", json.dumps(host.changed(change)))
    row = host.diagnosis("--device", f"{KIND}=0")
    assert row["check"] == "spec-conflict"
    host.fixed(row)
    assert host.spec.exists()


def test_what_follows_from_a_cause_comes_after_it_and_names_it(host: BrokenHost) -> None:
    host.path("dev/nvidia0").unlink()
    rows = [row for row in host.doctor(wrong=True) if not row["ok"]]
    after = {row["check"]: row["because"] for row in rows[1:]}
    assert {"spec-files", "spec-fresh"} <= after.keys()
    assert all("node-missing" in because for because in after.values())
