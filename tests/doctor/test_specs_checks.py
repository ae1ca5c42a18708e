"""What the doctor says of what stands in spec files, and of who may change or read them."""

import json
from typing import Any

from support.doctor.broken_host import NAME, BrokenHost


def test_a_driver_upgrade_leaves_a_spec_that_names_files_that_are_gone(host: BrokenHost) -> None:
    def change(document: dict[str, Any]) -> None:
        for mount in document["containerEdits"]["mounts"]:
            mount["hostPath"] = mount["hostPath"].replace("550.163.01", "535.54.03")

    host.put(f"run/cdi/{NAME}", host.changed(change))
    rows = [row for row in host.doctor(wrong=True) if not row["ok"]]
    assert [row["check"] for row in rows] == ["spec-files", "spec-fresh"]
    host.fixed(rows[0])


def test_anothers_spec_that_hides_ours_is_said(host: BrokenHost) -> None:
    host.put("etc/cdigen/config.yaml", "spec_dirs: [/var/run/cdi, /etc/cdi]\n")
    host.put("etc/cdi/nvidia.com-gpu.json", host.document())
    host.put("etc/cdigen/config.yaml", "spec_dirs: [/etc/cdi, /var/run/cdi]\n")
    host.path("etc/cdi/nvidia.com-gpu.json").rename(host.root / "etc/cdi/nvidia.yaml")
    assert host.result("spec-foreign")["ok"]
    assert "(not in use)" in host.result("spec-foreign")["detail"]


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
