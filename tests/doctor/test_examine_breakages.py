"""A host is broken in ten ways: the doctor names the cause first, and the remedy that it prints fixes it."""

import json
from typing import Any

from support.doctor.broken_host import KIND, NAME, BrokenHost

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


def test_a_conflict_of_two_others_in_the_lower_directory_is_ended(host: BrokenHost) -> None:
    for name in ("a.json", "b.json"):
        host.put(f"etc/cdi/{name}", host.document())
    row = host.diagnosis("--for", "podman", "--device", f"{KIND}=0")
    assert row["check"] == "spec-conflict"
    host.fixed(row)


def test_a_version_that_is_too_new_is_written_anew(host: BrokenHost) -> None:
    def change(document: dict[str, Any]) -> None:
        document["cdiVersion"] = "1.2.0"

    host.put(f"run/cdi/{NAME}", host.changed(change))
    row = host.diagnosis()
    assert row["check"] == "spec-refused"
    assert "1.2.0" in row["detail"]
    host.fixed(row)


def test_a_docker_whose_cdi_is_off_is_configured(tmp_path_host: BrokenHost) -> None:
    host = tmp_path_host
    host.put("etc/docker/daemon.json", '{"features": {"cdi": false}}')
    row = host.diagnosis("--for", "docker")
    assert (row["check"], row["severity"]) == ("docker-cdi", "error")
    assert "/etc/docker/daemon.json" in row["detail"]
    host.fixed(row, "--for", "docker")


def test_a_file_that_the_user_may_not_read_is_opened(host: BrokenHost) -> None:
    host.put("etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n")
    host.put("etc/subuid", "alice:100000:65536\n")
    host.put("etc/subgid", "alice:100000:65536\n")
    for name in ("newuidmap", "newgidmap"):
        host.put(f"usr/bin/{name}", "", mode=0o755)
    host.doctor("--user", "alice", wrong=False)
    host.spec.chmod(0o600)
    row = host.diagnosis("--user", "alice")
    assert row["check"] == "spec-unreadable"
    host.fixed(row, "--user", "alice")


def test_a_runtime_that_looks_elsewhere_is_configured(host: BrokenHost) -> None:
    host.put("etc/containers/containers.conf", '[engine]\ncdi_spec_dirs = ["/srv/cdi"]\n')
    row = host.diagnosis()
    assert row["check"] == "podman-directories"
    assert "/etc/containers/containers.conf" in row["detail"]
    host.fixed(row)


def test_a_directory_that_is_a_link_becomes_one(host: BrokenHost) -> None:
    (host.root / "run/cdi").rename(host.root / "srv-cdi")
    host.link("run/cdi", "/srv-cdi")
    row = host.diagnosis()
    assert row["check"] == "spec-directory-link"
    host.fixed(row)
    assert not (host.root / "run/cdi").is_symlink()


def test_a_missing_node_is_made(host: BrokenHost) -> None:
    host.path("dev/nvidia0").unlink()
    row = host.diagnosis()
    assert row["check"] == "node-missing"
    assert "/dev/nvidia0" in row["detail"]
    host.fixed(row)


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


def test_bad_json_is_written_anew(host: BrokenHost) -> None:
    host.spec.write_bytes(host.spec.read_bytes()[:-20])
    row = host.diagnosis()
    assert row["check"] == "spec-syntax"
    assert "line" in row["detail"]
    host.fixed(row)


def test_what_follows_from_a_cause_comes_after_it_and_names_it(host: BrokenHost) -> None:
    host.path("dev/nvidia0").unlink()
    rows = [row for row in host.doctor(wrong=True) if not row["ok"]]
    after = {row["check"]: row["because"] for row in rows[1:]}
    assert {"spec-files", "spec-fresh"} <= after.keys()
    assert all("node-missing" in because for because in after.values())
