"""What the doctor says of spec files and directories beside the ten breakages."""

import json
import os
from typing import Any

from doctor.brokenhost import DEVICE, KIND, NAME, BrokenHost


def test_a_host_without_a_spec_gets_one(host: BrokenHost) -> None:
    host.spec.unlink()
    row = host.diagnosis()
    assert row["check"] == "spec-missing"
    host.fixed(row)


def test_a_device_that_the_host_does_not_have_is_said(host: BrokenHost) -> None:
    row = host.diagnosis("--device", f"{KIND}=7")
    assert row["check"] == "device-unknown"
    assert f"{KIND}=0" in row["detail"]


def test_what_is_no_name_is_said(host: BrokenHost) -> None:
    assert host.diagnosis("--device", "gpu0")["check"] == "device-unknown"


def test_a_device_that_the_spec_does_not_have_yet_is_written(host: BrokenHost) -> None:
    def change(document: dict[str, Any]) -> None:
        document["devices"] = [device for device in document["devices"] if device["name"] != "1"]

    host.put(f"run/cdi/{NAME}", host.changed(change))
    row = host.diagnosis("--device", f"{KIND}=1")
    assert row["check"] == "spec-fresh"
    assert "+1 device" in row["detail"]
    host.fixed(row)


def test_a_driver_upgrade_leaves_a_spec_that_names_files_that_are_gone(host: BrokenHost) -> None:
    def change(document: dict[str, Any]) -> None:
        for mount in document["containerEdits"]["mounts"]:
            mount["hostPath"] = mount["hostPath"].replace("550.163.01", "535.54.03")

    host.put(f"run/cdi/{NAME}", host.changed(change))
    rows = [row for row in host.doctor(wrong=True) if not row["ok"]]
    assert [row["check"] for row in rows] == ["spec-files", "spec-fresh"]
    host.fixed(rows[0])


def test_a_file_with_another_ending_is_named_where_it_alone_has_the_device(host: BrokenHost) -> None:
    host.spec.rename(host.spec.with_name("nvidia.yml"))
    row = host.diagnosis("--device", DEVICE)
    assert row["check"] == "spec-name"
    host.shell(row["remedy"])
    assert host.path("run/cdi/nvidia.yaml").exists()
    assert [row["check"] for row in host.ask("--device", DEVICE) if not row["ok"]] == []


def test_a_copy_with_another_ending_is_nobodys_business(host: BrokenHost) -> None:
    host.put("run/cdi/nvidia.yml", host.document())
    host.doctor(wrong=False)


def test_a_broken_file_of_another_vendor_is_a_warning(host: BrokenHost) -> None:
    host.put("etc/cdi/other.json", '{"cdiVersion": "0.5.0", "kind": "other.com/thing"')
    row = host.diagnosis()
    assert (row["check"], row["severity"]) == ("spec-syntax", "warning")
    host.fixed(row)


def test_a_broken_file_of_another_vendor_is_nothing_to_who_asks_for_a_device(host: BrokenHost) -> None:
    host.put("etc/cdi/other.json", '{"cdiVersion": "0.5.0", "kind": "other.com/thing"')
    host.doctor("--device", DEVICE, wrong=False)


def test_a_file_that_makes_runtimes_crash_is_moved_aside(host: BrokenHost) -> None:
    edits = {"containerEdits": {"mounts": [None]}}
    crashing = {"cdiVersion": "0.5.0", "kind": "other.com/thing", "devices": [{"name": "a", **edits}]}
    host.put("etc/cdi/other.json", crashing)
    row = host.diagnosis("--device", DEVICE)
    assert row["check"] in {"spec-crash", "spec-refused"}
    assert "/etc/cdi/other.json" in row["detail"]
    host.fixed(row)


def test_a_directory_that_is_a_file_is_replaced(host: BrokenHost) -> None:
    host.put("etc/cdi", "no folder")
    row = host.result("spec-directory-kind")
    assert not row["ok"]
    host.fixed(row)
    assert (host.root / "etc/cdi").is_dir()


def test_a_directory_that_users_may_not_enter_is_opened(host: BrokenHost) -> None:
    host.put("etc/passwd", "alice:x:1000:1000::/home/alice:/bin/sh\n")
    (host.root / "run/cdi").chmod(0o700)
    row = host.diagnosis("--user", "alice", "--device", DEVICE)
    assert row["check"] == "spec-directory-unreadable"
    host.shell(row["remedy"])
    assert host.result("spec-directory-unreadable", "--user", "alice")["ok"]


def test_a_spec_that_only_root_may_read_is_a_warning_where_nobody_else_asks(host: BrokenHost) -> None:
    host.spec.chmod(0o600)
    row = host.diagnosis()
    assert (row["check"], row["severity"]) == ("spec-readable", "warning")
    host.fixed(row)


def test_a_spec_that_others_may_write_is_taken_from_them(host: BrokenHost) -> None:
    host.spec.chmod(0o666)
    row = host.diagnosis()
    assert row["check"] == "spec-trust"
    host.fixed(row)


def test_a_directory_that_belongs_to_another_is_given_to_root(host: BrokenHost) -> None:
    os.chown(host.root / "run/cdi", 1000, 1000)
    row = host.diagnosis()
    assert row["check"] == "spec-trust"
    host.fixed(row)


def test_anothers_spec_that_hides_ours_is_said(host: BrokenHost) -> None:
    host.put("etc/cdigen/config.yaml", "spec_dirs: [/var/run/cdi, /etc/cdi]\n")
    host.put("etc/cdi/nvidia.com-gpu.json", host.document())
    host.put("etc/cdigen/config.yaml", "spec_dirs: [/etc/cdi, /var/run/cdi]\n")
    host.path("etc/cdi/nvidia.com-gpu.json").rename(host.root / "etc/cdi/nvidia.yaml")
    assert host.result("spec-foreign")["ok"]
    assert "(not in use)" in host.result("spec-foreign")["detail"]


def test_a_stale_spec_of_others_that_nobody_uses_is_a_warning(host: BrokenHost) -> None:
    def change(document: dict[str, Any]) -> None:
        document["containerEdits"]["mounts"][0]["hostPath"] = "/usr/lib/gone.so"

    host.put("etc/cdi/nvidia.yaml", json.dumps(host.changed(change)))
    row = host.diagnosis()
    assert (row["check"], row["severity"]) == ("spec-stale", "warning")
    host.fixed(row)


def test_a_stale_spec_of_others_that_is_used_gives_way_to_ours(host: BrokenHost) -> None:
    document = host.document()
    document["containerEdits"]["mounts"][0]["hostPath"] = "/usr/lib/gone.so"
    host.shell(f"rm -r {host.spec} {host.root}/var/lib/cdigen")
    host.put("etc/cdi/nvidia.yaml", json.dumps(document))
    row = host.diagnosis()
    assert row["check"] == "spec-files"
    host.fixed(row)
    assert host.spec.exists()


def test_a_good_spec_of_others_is_enough(host: BrokenHost) -> None:
    document = host.document()
    host.shell(f"rm -r {host.spec} {host.root}/var/lib/cdigen")
    host.put("etc/cdi/nvidia.yaml", json.dumps(document))
    rows = host.doctor(wrong=False)
    assert any("/etc/cdi/nvidia.yaml" in row["detail"] for row in rows if row["check"] == "spec-foreign")
