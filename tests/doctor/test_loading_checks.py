"""What the doctor says of spec files that runtimes ignore, and of names that no file defines."""

from support.doctor.broken_host import ALICE, DEVICE, KIND, BrokenHost


def test_a_device_that_the_host_does_not_have_is_said(host: BrokenHost) -> None:
    row = host.diagnosis("--device", f"{KIND}=7")
    assert row["check"] == "device-unknown"
    assert f"{KIND}=0" in row["detail"]


def test_what_is_no_name_is_said(host: BrokenHost) -> None:
    assert host.diagnosis("--device", "gpu0")["check"] == "device-unknown"


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
    host.put("etc/passwd", ALICE)
    (host.root / "run/cdi").chmod(0o700)
    row = host.diagnosis("--user", "alice", "--device", DEVICE)
    assert row["check"] == "spec-directory-unreadable"
    host.shell(row["remedy"])
    assert host.result("spec-directory-unreadable", "--user", "alice")["ok"]
