"""The doctor's checks of the content and the permissions of spec files."""

import json
from typing import Any

from support.doctor.broken_host import NAME, BrokenHost


def test_a_spec_with_files_of_an_older_driver_is_reported(host: BrokenHost) -> None:
    def change(document: dict[str, Any]) -> None:
        for mount in document["containerEdits"]["mounts"]:
            mount["hostPath"] = mount["hostPath"].replace("550.163.01", "535.54.03")

    host.put(f"run/cdi/{NAME}", host.changed(change))
    rows = [row for row in host.doctor(wrong=True) if not row["ok"]]
    assert [row["check"] for row in rows] == ["spec-files", "spec-fresh"]
    host.fixed(rows[0])


def test_a_foreign_spec_beside_a_spec_of_cdigen_is_reported_as_not_in_use(host: BrokenHost) -> None:
    host.put("etc/cdigen/config.yaml", "spec_dirs: [/var/run/cdi, /etc/cdi]\n")
    host.put("etc/cdi/nvidia.com-gpu.json", host.document())
    host.put("etc/cdigen/config.yaml", "spec_dirs: [/etc/cdi, /var/run/cdi]\n")
    host.path("etc/cdi/nvidia.com-gpu.json").rename(host.root / "etc/cdi/nvidia.yaml")
    assert host.result("spec-foreign")["ok"]
    assert "(not in use)" in host.result("spec-foreign")["detail"]


def test_cdigens_spec_replaces_a_stale_foreign_spec_in_use(host: BrokenHost) -> None:
    document = host.document()
    document["containerEdits"]["mounts"][0]["hostPath"] = "/usr/lib/gone.so"
    host.shell(f"rm -r {host.spec} {host.root}/var/lib/cdigen")
    host.put("etc/cdi/nvidia.yaml", json.dumps(document))
    row = host.diagnosis()
    assert row["check"] == "spec-files"
    host.fixed(row)
    assert host.spec.exists()


def test_a_valid_foreign_spec_passes(host: BrokenHost) -> None:
    document = host.document()
    host.shell(f"rm -r {host.spec} {host.root}/var/lib/cdigen")
    host.put("etc/cdi/nvidia.yaml", json.dumps(document))
    rows = host.doctor(wrong=False)
    assert any("/etc/cdi/nvidia.yaml" in row["detail"] for row in rows if row["check"] == "spec-foreign")
