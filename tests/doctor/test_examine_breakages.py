"""For each breakage of a table, the first result is the cause, and its remedy fixes the host."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.doctor.breakages import BREAKAGES
from support.doctor.broken_host import ALICE, KIND, BrokenHost

LIBRARY = "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ptxjitcompiler.so.550.163.01"


def test_a_host_without_failures_passes_all_checks(host: BrokenHost) -> None:
    rows = host.doctor(wrong=False)
    assert {"driver-loaded", "node-missing", "spec-fresh", "podman-devices"} < {row["check"] for row in rows}


def test_the_remedy_renames_a_stale_duplicate_in_the_same_directory(host: BrokenHost) -> None:
    stale = host.document()
    stale["containerEdits"]["mounts"][0]["hostPath"] = "/usr/lib/libcuda.so.535.54.03"
    host.put("run/cdi/nvidia.json", stale)
    row = host.diagnosis()
    assert row["check"] == "spec-conflict"
    assert "/var/run/cdi/nvidia.json" in row["detail"]
    host.fixed(row)
    assert not host.path("run/cdi/nvidia.json").exists()
    assert host.spec.exists()


@pytest.mark.parametrize(
    ("break_host", "options", "check", "severity", "detail"), BREAKAGES.values(), ids=BREAKAGES
)
def test_the_first_result_is_the_cause_and_its_remedy_fixes_the_host(  # noqa: PLR0917 - a table
    host: BrokenHost,
    break_host: Callable[[BrokenHost], object],
    options: str,
    check: str,
    severity: str,
    detail: str,
) -> None:
    break_host(host)
    row = host.diagnosis(options)
    assert (row["check"], row["severity"]) == (check, severity)
    assert detail in row["detail"]
    host.fixed(row)


def test_the_remedy_configures_docker_with_disabled_cdi(tmp_path_host: BrokenHost) -> None:
    host = tmp_path_host
    host.put("etc/docker/daemon.json", '{"features": {"cdi": false}}')
    row = host.diagnosis("--for", "docker")
    assert (row["check"], row["severity"]) == ("docker-cdi", "error")
    assert "/etc/docker/daemon.json" in row["detail"]
    host.fixed(row, "--for", "docker")


def test_the_remedy_permits_the_user_to_read_a_spec(host: BrokenHost) -> None:
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


def test_the_remedy_replaces_a_link_to_a_spec_directory_by_a_directory(host: BrokenHost) -> None:
    (host.root / "run/cdi").rename(host.root / "srv-cdi")
    host.link("run/cdi", "/srv-cdi")
    row = host.diagnosis()
    assert row["check"] == "spec-directory-link"
    host.fixed(row)
    assert not (host.root / "run/cdi").is_symlink()


def test_the_remedy_removes_a_missing_library_from_the_spec(host: BrokenHost) -> None:
    host.path(LIBRARY).unlink()
    row = host.diagnosis()
    assert row["check"] == "spec-files"
    assert "libnvidia-ptxjitcompiler.so.550.163.01" in row["detail"]
    host.shell(row["remedy"])
    rows = [row for row in host.results() if not row["ok"]]
    assert {row["check"] for row in rows} == {"driver-files"}
    assert {row["severity"] for row in rows} == {"warning"}


def test_the_remedy_renames_another_file_with_the_same_device(host: BrokenHost) -> None:
    def change(document: dict[str, Any]) -> None:
        document["devices"] = [device for device in document["devices"] if device["name"] == "0"]

    host.put("run/cdi/other-vendor.yaml", json.dumps(host.changed(change)))
    row = host.diagnosis("--device", f"{KIND}=0")
    assert row["check"] == "spec-conflict"
    host.fixed(row)
    assert host.spec.exists()


def test_consequences_follow_their_cause_and_name_it(host: BrokenHost) -> None:
    host.path("dev/nvidia0").unlink()
    rows = [row for row in host.doctor(wrong=True) if not row["ok"]]
    consequences = {row["check"]: row["because"] for row in rows[1:]}
    assert {"spec-files", "spec-fresh"} <= consequences.keys()
    assert all("node-missing" in because for because in consequences.values())
