"""The doctor's checks of NVIDIA's services, of legacy runtimes and of cdigen's daemon."""

import os
from typing import Any

import pytest
from support.doctor.broken_host import NAME, BrokenHost

from cdigen.daemon.cycle.report import CycleReport, DaemonStatus
from cdigen.daemon.status import document
from cdigen.service.rundir import save_status
from cdigen.service.status import this_process
from cdigen.value import replace

OLD_CRI = "io.containerd.grpc.v1.cri"


def test_nvidias_refresh_service_is_the_cause_of_a_conflict_with_cdigens_spec(host: BrokenHost) -> None:
    host.enable("nvidia-cdi-refresh.path")
    host.put("run/cdi/nvidia.yaml", host.document())
    rows = [row for row in host.doctor(wrong=True) if not row["ok"]]
    assert [row["check"] for row in rows][:2] == ["nvidia-refresh", "spec-conflict"]
    assert "on that host: systemctl disable --now nvidia-cdi-refresh.path" in rows[0]["detail"]
    assert rows[0]["remedy"].startswith("rm -f")


def test_a_masked_refresh_service_passes(host: BrokenHost) -> None:
    host.enable("nvidia-cdi-refresh.path")
    host.root.joinpath("dev").mkdir(exist_ok=True)
    host.put("dev/null", "")
    (host.root / "etc/systemd/system/nvidia-cdi-refresh.path").symlink_to("/dev/null")
    assert host.result("nvidia-refresh")["ok"]


def test_void_in_the_specs_disables_the_legacy_runtime(tmp_path_host: BrokenHost) -> None:
    host = tmp_path_host
    runtimes = {"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}}
    host.put("etc/docker/daemon.json", {"default-runtime": "nvidia", "runtimes": runtimes})
    assert "void" in host.result("double-injection")["detail"]

    def change(document: dict[str, Any]) -> None:
        document["containerEdits"]["env"] = ["OTHER=1"]
        for device in document["devices"]:
            device["containerEdits"]["env"] = ["OTHER=1"]

    host.put(f"run/cdi/{NAME}", host.changed(change))
    row = host.result("double-injection")
    assert (row["ok"], row["severity"]) == (False, "warning")
    host.shell(row["remedy"])
    assert host.result("double-injection")["ok"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (
            "etc/containerd/config.toml",
            f'version = 2\n[plugins."{OLD_CRI}".containerd]\ndefault_runtime_name = "nvidia"\n',
        ),
        ("etc/crio/crio.conf", '[crio.runtime]\ndefault_runtime = "nvidia"\n'),
    ],
)
def test_nvidias_runtime_is_found_if_it_is_the_default(
    tmp_path_host: BrokenHost, file: str, text: str
) -> None:
    tmp_path_host.put(file, text)
    assert f"/{file} (default runtime nvidia)" in tmp_path_host.result("double-injection")["detail"]


def test_podmans_legacy_hook_is_found(host: BrokenHost) -> None:
    host.put("usr/share/containers/oci/hooks.d/oci-nvidia-hook.json", "{}")
    assert "oci-nvidia-hook.json" in host.result("double-injection")["detail"]


def test_the_daemon_check_is_skipped_for_a_host_in_a_folder(
    host: BrokenHost,
) -> None:
    host.enable("cdigen.service")
    assert not host.result("daemon-running")["checked"]


def test_a_failed_cycle_of_the_daemon_is_reported(host: BrokenHost) -> None:
    run_dir = str(host.root / "run/cdigen")
    unchanged = CycleReport(number=1, reasons=(), started_s=1.0, duration_s=0.1, result="unchanged")
    failed = replace(unchanged, result="failed", error="the disk is full")
    status = DaemonStatus(version="1", started_s=1.0, since_s=1.0, state="ready", cycle=unchanged)
    save_status(run_dir, document(status, this_process()))
    assert host.result("daemon-cycle")["ok"]
    save_status(
        run_dir, document(replace(status, cycle=failed, sources=(("uevents", "no netlink"),)), this_process())
    )
    row = host.result("daemon-cycle")
    assert not row["ok"]
    assert "the disk is full" in row["detail"]
    assert "uevents is not watched: no netlink" in row["detail"]


def test_the_cause_of_a_failed_cycle_precedes_the_failed_cycle(host: BrokenHost) -> None:
    os.chown(host.root / "var/lib/cdigen", 4202, 4202)
    failed = CycleReport(number=1, reasons=(), started_s=1.0, duration_s=0.1, result="failed", error="no")
    status = DaemonStatus(version="1", started_s=1.0, since_s=1.0, state="degraded", cycle=failed)
    save_status(str(host.root / "run/cdigen"), document(status, this_process()))
    rows = [row for row in host.doctor(wrong=True) if not row["ok"]]
    assert [row["check"] for row in rows] == ["state-dir", "daemon-cycle"]
    assert "state-dir" in rows[1]["because"]


def test_a_damaged_state_file_is_fixed(host: BrokenHost) -> None:
    host.put("var/lib/cdigen/state.json", "rubbish")
    row = host.result("state-dir")
    assert not row["ok"]
    host.fixed(row)


def test_the_remedy_protects_a_state_directory_that_other_users_may_write(host: BrokenHost) -> None:
    (host.root / "var/lib/cdigen").chmod(0o777)
    row = host.result("state-dir")
    assert not row["ok"]
    host.fixed(row)


def test_a_parent_folder_that_belongs_to_a_user_keeps_its_owner(host: BrokenHost) -> None:
    os.chown(host.root / "var/lib", 4202, 4202)
    row = host.result("state-dir")
    assert not row["ok"]
    assert "/var/lib belongs to uid 4202" in row["detail"]
    assert "set another state_dir" in row["detail"]
    assert "chown" not in row["remedy"]


@pytest.mark.needs_root
def test_a_status_of_another_user_is_ignored(tmp_path_host: BrokenHost) -> None:
    host = tmp_path_host
    run_dir = host.root / "run/cdigen"
    run_dir.mkdir()
    save_status(
        str(run_dir), document(DaemonStatus(version="0.1.0", started_s=1.0, since_s=1.0), this_process())
    )
    assert "is running" in host.result("daemon-running")["detail"]
    for path in (run_dir / "status.json", run_dir):
        os.chown(path, 4201, 4201)
        assert "is not running" in host.result("daemon-running")["detail"]
        os.chown(path, 0, 0)
