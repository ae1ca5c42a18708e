"""The doctor's checks of spec files that runtimes ignore, and of names that no file defines."""

from support.doctor.breakages import tear_the_spec
from support.doctor.broken_host import ALICE, DEVICE, KIND, BrokenHost


def test_a_device_that_the_host_does_not_have_is_reported(host: BrokenHost) -> None:
    row = host.diagnosis("--device", f"{KIND}=7")
    assert row["check"] == "device-unknown"
    assert f"{KIND}=0" in row["detail"]


def test_an_invalid_name_is_reported(host: BrokenHost) -> None:
    assert host.diagnosis("--device", "gpu0")["check"] == "device-unknown"


def test_a_file_with_another_ending_is_renamed_if_no_other_file_has_the_device(host: BrokenHost) -> None:
    host.spec.rename(host.spec.with_name("nvidia.yml"))
    row = host.diagnosis("--device", DEVICE)
    assert row["check"] == "spec-name"
    host.shell(row["remedy"])
    assert host.path("run/cdi/nvidia.yaml").exists()
    assert [row["check"] for row in host.results("--device", DEVICE) if not row["ok"]] == []


def test_a_copy_with_another_ending_is_ignored(host: BrokenHost) -> None:
    host.put("run/cdi/nvidia.yml", host.document())
    host.doctor(wrong=False)


def test_a_broken_file_of_another_vendor_is_ignored_for_a_requested_device(host: BrokenHost) -> None:
    host.put("etc/cdi/other.json", '{"cdiVersion": "0.5.0", "kind": "other.com/thing"')
    host.doctor("--device", DEVICE, wrong=False)


def test_the_remedy_renames_a_file_that_crashes_runtimes(host: BrokenHost) -> None:
    edits = {"containerEdits": {"mounts": [None]}}
    crashing = {"cdiVersion": "0.5.0", "kind": "other.com/thing", "devices": [{"name": "a", **edits}]}
    host.put("etc/cdi/other.json", crashing)
    row = host.diagnosis("--device", DEVICE)
    assert row["check"] in {"spec-crash", "spec-refused"}
    assert "/etc/cdi/other.json" in row["detail"]
    host.fixed(row)


def test_the_remedy_replaces_a_file_at_the_path_of_a_spec_directory(host: BrokenHost) -> None:
    host.put("etc/cdi", "no folder")
    row = host.result("spec-directory-kind")
    assert not row["ok"]
    host.fixed(row)
    assert (host.root / "etc/cdi").is_dir()


def test_the_remedy_permits_users_to_enter_a_spec_directory(host: BrokenHost) -> None:
    host.put("etc/passwd", ALICE)
    (host.root / "run/cdi").chmod(0o700)
    row = host.diagnosis("--user", "alice", "--device", DEVICE)
    assert row["check"] == "spec-directory-unreadable"
    host.shell(row["remedy"])
    assert host.result("spec-directory-unreadable", "--user", "alice")["ok"]


def test_a_link_to_another_spec_directory_becomes_an_empty_directory(host: BrokenHost) -> None:
    host.link("etc/cdi", "../run/cdi")
    row = host.diagnosis()
    assert row["check"] == "spec-directory-link"
    host.fixed(row)
    assert list((host.root / "etc/cdi").iterdir()) == []


def test_a_spec_of_cdigen_that_cannot_be_generated_is_not_renamed(host: BrokenHost) -> None:
    tear_the_spec(host)
    host.path("dev/nvidia-uvm").unlink()
    row = host.result("spec-syntax")
    assert (row["ok"], row["remedy"]) == (False, "")
    assert "node-missing" in row["because"]
    rows = [row["check"] for row in host.results() if not row["ok"]]
    assert rows.index("node-missing") < rows.index("spec-syntax")


def test_a_rejected_file_at_the_path_of_the_spec_precedes_the_missing_spec(host: BrokenHost) -> None:
    host.spec.write_text("{}")
    rows = [row for row in host.doctor(wrong=True) if not row["ok"]]
    assert [row["check"] for row in rows[:2]] == ["spec-refused", "spec-missing"]
    host.fixed(rows[0])
