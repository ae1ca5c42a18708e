"""The doctor's results for the devices that the kubelet shows, and for the pods that have them."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest
from support.doctor.kubernetes_host import CHECKPOINT, FOLDER, PLUGINS, POD, checkpoint, registered
from support.doctor.requests import doctor_context
from support.kubelet.resources import GPU

from cdigen.doctor.kubernetes import devices
from cdigen.kubelet.allocation.journal import Allocation
from cdigen.model.findings import Finding

if TYPE_CHECKING:
    from support.doctor.kubernetes_host import KubeNode

    from cdigen.doctor.result import CheckResult


def test_devices_of_the_host_that_are_not_advertised_are_an_error(node: KubeNode) -> None:
    finding = Finding(severity="error", rule="x", path="", message="no spec has a name for it", hint="")
    node.write_status(registered(), problems=(finding,))
    row = node.wrong()["kubelet-devices"]
    assert row["severity"] == "error"
    text = (
        "no device is advertised to the kubelet, although the driver has 2 usable devices: no spec has a name"
    )
    assert text in row["detail"]


def test_devices_of_the_last_known_state_are_a_warning_with_the_reason(node: KubeNode) -> None:
    node.write_status(registered("GPU-a", "GPU-b"), stale=("the daemon has ended",))
    row = node.wrong()["kubelet-devices"]
    assert row["severity"] == "warning"
    assert "the daemon has ended" in row["detail"]


def test_a_resource_that_no_plugin_serves_any_more_is_a_warning(node: KubeNode) -> None:
    node.put(CHECKPOINT, checkpoint(registered={GPU: ["GPU-a"], "nvidia.com/mig-1g.5gb": None}))
    assert "nvidia.com/mig-1g.5gb" in node.wrong()["kubelet-stale-resource"]["detail"]


def test_an_existing_pod_with_a_missing_device_is_a_warning(node: KubeNode) -> None:
    node.put(CHECKPOINT, checkpoint((POD, GPU, ["GPU-gone"]), registered={GPU: ["GPU-a", "GPU-b"]}))
    assert node.wrong() == {}
    (node.root / FOLDER / "pods" / POD).mkdir(parents=True)
    assert f"{POD}, main: GPU-gone of {GPU}" in node.wrong()["kubelet-checkpoint"]["detail"]


def test_a_pod_whose_uid_is_a_path_is_ignored(node: KubeNode) -> None:
    uid = "../" * 11 + "etc"
    node.put(CHECKPOINT, checkpoint((uid, GPU, ["GPU-gone"]), registered={GPU: ["GPU-a"]}))
    assert node.wrong() == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b"5",
        b'{"Data": 5}',
        b"9" * 10_000,
        b"x" * (10 << 20),
    ],
)
def test_an_invalid_checkpoint_is_only_a_warning(node: KubeNode, content: bytes) -> None:
    (node.root / CHECKPOINT).write_bytes(content)
    assert set(node.wrong()) == {"kubelet-checkpoint"}


@pytest.mark.parametrize("target", ["/etc/shadow", "kubelet_internal_checkpoint"])
def test_a_checkpoint_that_is_a_link_is_not_followed_out_of_the_host(node: KubeNode, target: str) -> None:
    (node.root / CHECKPOINT).unlink()
    node.link(CHECKPOINT, target)
    assert "root:" not in str(node.wrong())


@pytest.mark.parametrize("closed", [PLUGINS, CHECKPOINT])
def test_checks_of_files_that_only_root_may_read_are_skipped_for_other_users(
    node: KubeNode, closed: str
) -> None:
    # Root without its privileges cannot read another user's folder.
    os.chown(node.root / closed, 4201, 4201)
    (node.root / closed).chmod(0o600)
    limits = "-dac_override,-dac_read_search"
    node.tools.joinpath("less").write_text(f'#!/bin/sh\nexec setpriv --bounding-set={limits} "$@"\n')
    node.tools.joinpath("less").chmod(0o755)
    rows = json.loads(node.shell(f"less cdigen doctor --for kubelet --json --root {node.root}"))
    record = next(row for row in rows if row["check"] == "kubelet-checkpoint")
    assert record["detail"] == f"skipped: only root may read /{CHECKPOINT}"
    assert next(row for row in rows if row["check"] == "kubelet-socket")["checked"] is False


def test_a_recent_refusal_is_reported_with_its_reason(node: KubeNode) -> None:
    done = Allocation(at_s=time.time(), resource=GPU, ids=("GPU-a",), cause="in_use", reason="pod b has it")
    node.write_status(registered("GPU-a", "GPU-b"), journal=(done,))
    # With --root the age of a refusal is unknown.
    assert node.result("kubelet-refused", "--for kubelet")["ok"]
    found = {result.check: result for result in live(node)}["kubelet-refused"]
    assert found.severity == "warning"
    assert (
        f"1 containers were refused in the last 10 minutes; the last: {GPU}: pod b has it (in_use)"
        in found.detail
    )


def live(node: KubeNode) -> list[CheckResult]:
    """Return the results of the checks of devices for NODE, as if NODE were this machine."""
    status = json.loads((node.root / "run/cdigen-kubelet/status.json").read_text())
    context = doctor_context(for_kubelet=True, kubelet=lambda: (status, ""))
    return [result for check in devices.CHECKS for result in check(context)]


def test_an_unconfirmed_registration_is_a_failure_after_half_a_minute(node: KubeNode) -> None:
    for age_s, is_ok in ((5, True), (60, False)):
        node.write_status(registered("GPU-a", state="unconfirmed", since_s=time.time() - age_s))
        found = {result.check: result for result in live(node)}["kubelet-registered"]
        assert found.ok == is_ok


def test_devices_that_the_configuration_ignores_are_not_missing(node: KubeNode) -> None:
    node.put("etc/cdigen/config.yaml", "kubelet: {ignore: ['0', '1']}\n")
    node.write_status()
    row = node.result("kubelet-devices", "--for kubelet")
    assert row["ok"], row
