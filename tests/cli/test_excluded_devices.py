"""Devices that ``devices: {exclude}`` keeps out: of specs, resources and labels; commands show the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.command.fixtures import GPUS, Run
from support.command.specs import configure, names, put
from support.daemon.cycles import CycleRunner
from support.daemon.host import PRETENDED, Host, daemon
from support.hosts import amd_tree, intel_tree
from support.hosts.mig import write_instance, write_minors
from support.kubelet.advertised_resources import counts, offered
from support.kubelet.labels import labels

from cdigen.nri.decision.request.host_gpus import host_gpus_of

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.daemon.cycle.reconciler import CycleOutcome
    from cdigen.model.findings import Finding

FIRST, SECOND = GPUS
KIND = "nvidia.com/gpu"
CARD = "sys/bus/pci/devices/{address}/drm/{card}/{card}-DP-1/status"
CONFIGURED = "excluded by the configuration (devices: {exclude: ["


def exclude(host: Path, *rows: str, more: str = "") -> None:
    configure(host, f"{more}devices: {{exclude: [{', '.join(rows)}]}}\n")


def devices(cdigen: Run, host: Path, *options: str) -> dict[str, list[str]]:
    """Return the device names of the specs that HOST gets, by kind."""
    done = cdigen("generate", "--root", host, "--json", *options)
    assert done.code == 0, done.err
    return {spec["kind"]: names(spec) for spec in done.json}


def nodes(cdigen: Run, host: Path) -> set[str]:
    """Return the paths of all device nodes in the specs of HOST."""
    documents = cdigen("generate", "--root", host, "--json").json
    owners = [owner for document in documents for owner in (document, *document["devices"])]
    return {
        node["path"] for owner in owners for node in owner.get("containerEdits", {}).get("deviceNodes", ())
    }


def cycle(host: Path) -> CycleOutcome:
    """Run a cycle of the daemon of HOST, and write the inventory as the daemon does."""
    outcome = CycleRunner(Host(host)).run_cycle()
    assert outcome.report.error == ""
    return outcome


def found(outcome: CycleOutcome, rule: str) -> list[Finding]:
    return [finding for finding in outcome.report.findings if finding.rule == rule]


@pytest.mark.parametrize(
    "row",
    [
        "{index: 0}",
        "{vendor: nvidia, index: 0}",
        f"{{uuid: {FIRST.uuid}}}",
        f"{{uuid: {FIRST.uuid.upper()}}}",
        f"{{address: {FIRST.bdf}}}",
        f"{{address: '{FIRST.bdf.upper()}'}}",
        f"{{address: '{FIRST.bdf.removeprefix('0000:')}'}}",
        f"{{address: '0000{FIRST.bdf}'}}",
    ],
)
def test_an_excluded_gpu_is_in_no_device_of_the_spec(cdigen: Run, host: Path, row: str) -> None:
    exclude(host, row)
    assert devices(cdigen, host) == {KIND: ["1", SECOND.uuid, "none", "all"]}
    assert nodes(cdigen, host).isdisjoint({f"/dev/nvidia{FIRST.minor}", f"/dev/dri/card{FIRST.card}"})


@pytest.mark.parametrize("pattern", ["*h100*", "NVIDIA H100*", "*"])
def test_a_model_is_compared_as_a_pattern_without_case(cdigen: Run, host: Path, pattern: str) -> None:
    exclude(host, f"{{model: '{pattern}'}}")
    done = cdigen("generate", "--root", host)
    assert done.failed(3, "no device is left", CONFIGURED, "cdigen inspect")


@pytest.mark.parametrize("pattern", ["H100", "NVIDIA[ ]H100*", "?VIDIA*"])
def test_only_a_star_matches_other_text(cdigen: Run, host: Path, pattern: str) -> None:
    exclude(host, f"{{model: '{pattern}'}}")
    assert len(devices(cdigen, host)[KIND]) == 6


@pytest.mark.parametrize(
    ("states", "numbers"),
    [
        ({FIRST: "connected"}, {"1"}),
        ({FIRST: "disconnected", SECOND: "disconnected"}, {"0", "1"}),
        ({FIRST: "unknown"}, {"0", "1"}),
    ],
)
def test_a_gpu_with_a_connected_display_is_excluded(
    cdigen: Run, host: Path, states: dict[Any, str], numbers: set[str]
) -> None:
    for gpu, state in states.items():
        put(host / CARD.format(address=gpu.bdf, card=f"card{gpu.card}"), f"{state}\n")
    exclude(host, "{display: true}")
    assert {name for name in devices(cdigen, host)[KIND] if name.isdigit()} == numbers


def test_without_connectors_the_gpu_of_the_firmware_has_the_display(cdigen: Run, host: Path) -> None:
    put(host / f"sys/bus/pci/devices/{FIRST.bdf}/boot_vga", "0\n")
    put(host / f"sys/bus/pci/devices/{SECOND.bdf}/boot_vga", "1\n")
    exclude(host, "{display: true}")
    assert "1" not in devices(cdigen, host)[KIND]


def test_all_conditions_of_a_row_must_match(cdigen: Run, host: Path) -> None:
    exclude(host, f"{{index: 1, uuid: {FIRST.uuid}}}", "{vendor: amd, index: 0}")
    assert len(devices(cdigen, host)[KIND]) == 6


def test_a_vendor_is_excluded_with_all_its_kinds(cdigen: Run, host: Path) -> None:
    intel_tree.lay(host, *intel_tree.arc_a770(), intel_tree.npu())
    assert {"intel.com/gpu", "intel.com/npu", KIND} <= devices(cdigen, host).keys()
    exclude(host, "{vendor: intel}")
    assert devices(cdigen, host).keys() == {KIND}
    outcome = cycle(host)
    assert {spec.kind for spec in outcome.report.specs} == {KIND}
    assert not found(outcome, "exclusion-unmatched")


def test_an_excluded_vendor_with_a_broken_driver_is_no_failure(cdigen: Run, host: Path) -> None:
    amd_tree.write(host, amd_tree.mi210(2))
    put(host / "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  999.1\n")
    put(host / "sys/module/nvidia/version", "999.1\n")
    assert cdigen("generate", "--root", host, "--strict").code == 3
    exclude(host, "{vendor: nvidia}")
    done = cdigen("generate", "--root", host, "--json")
    assert (done.code, [spec["kind"] for spec in done.json]) == (0, ["amd.com/gpu"])
    assert done.err == ""


def test_a_mig_instance_is_excluded_alone(cdigen: Run, host: Path) -> None:
    write_minors(host, 2)
    write_instance(host, 0, 7)
    write_instance(host, 0, 9)
    before = devices(cdigen, host)[KIND]
    exclude(host, "{index: 0}")
    assert devices(cdigen, host)[KIND] == [name for name in before if not name.startswith("0:")]


@pytest.mark.usefixtures("real_nodes")
def test_a_partition_of_amd_is_excluded_by_its_address(cdigen: Run, tmp_path: Path) -> None:
    root = tmp_path / "amd"
    amd_tree.write(root, amd_tree.mi300x(8, count=1))
    inventory = cdigen("inspect", "--root", root, "--json").json["vendors"]["amd"]
    part = inventory["accelerators"][0]["partitions"][3]
    exclude(root, f"{{address: '{part['address']}'}}")
    (gpu,) = cdigen("inspect", "--root", root, "--json").json["vendors"]["amd"]["accelerators"]
    assert [each["usable"] for each in gpu["partitions"]] == [number != 3 for number in range(8)]
    assert str(part["ordinal"]) not in devices(cdigen, root)["amd.com/gpu"]


def test_the_nodes_of_an_excluded_gpu_leave_the_kind_of_administrators(cdigen: Run, host: Path) -> None:
    option = "vendor_options: {nvidia: {management: true}}\n"
    exclude(host, "{index: 0}", more=option)
    assert "management.nvidia.com/gpu" in devices(cdigen, host)
    assert f"/dev/nvidia{FIRST.minor}" not in nodes(cdigen, host)
    assert f"/dev/nvidia{SECOND.minor}" in nodes(cdigen, host)


def test_an_error_of_an_excluded_gpu_is_no_error_of_the_host(cdigen: Run, host: Path) -> None:
    (host / f"dev/nvidia{FIRST.minor}").unlink()
    assert cdigen("generate", "--root", host, "--strict").code == 3
    exclude(host, "{index: 0}")
    assert cdigen("generate", "--root", host, "--strict").code == 0


def test_docker_args_keep_the_number_of_the_other_gpu(cdigen: Run, host: Path) -> None:
    exclude(host, "{index: 0}")
    assert cdigen("docker-args", "--root", host).out == f"--device={KIND}=1\n"
    assert cdigen("docker-args", "--root", host, "1").out == f"--device={KIND}=1\n"
    assert cdigen("docker-args", "--root", host, "0").failed(2, "invalid device: 0")


def test_the_nri_plugin_knows_why_it_cannot_inject_an_excluded_gpu(host: Path) -> None:
    write_minors(host, 2)
    write_instance(host, 0, 7)
    exclude(host, "{index: 0}", more=PRETENDED)
    gpus = host_gpus_of(cycle(host).inventories["nvidia"])
    whole, part, other = gpus.gpus
    assert CONFIGURED in whole.problem
    assert CONFIGURED in part.problem
    assert other.problem == ""


def test_the_kubelet_gets_neither_units_nor_labels_of_an_excluded_gpu(host: Path) -> None:
    exclude(host, "{index: 0}", more=PRETENDED)
    inventories = cycle(host).inventories
    resources = offered(inventories)
    assert counts(resources) == {KIND: 1}
    (finding,) = resources.findings
    assert (finding.severity, finding.path) == ("info", f"{KIND}=0")
    assert CONFIGURED in finding.message
    assert labels(inventories)["nvidia.com/gpu.count"] == "1"


def test_the_daemon_reports_an_excluded_gpu_as_information(host: Path) -> None:
    exclude(host, "{index: 0}", more=PRETENDED)
    outcome = cycle(host)
    (vendor,) = outcome.report.vendors
    (spec,) = outcome.report.specs
    (finding,) = found(outcome, "device-excluded")
    assert (vendor.state, spec.left_out, finding.severity) == ("ready", 0, "info")
    assert CONFIGURED + "{index: 0}]})" in finding.message
    assert FIRST.bdf in finding.message


def test_the_daemon_withdraws_a_spec_without_devices(host: Path) -> None:
    configure(host, PRETENDED)
    cycle(host)
    exclude(host, "{vendor: nvidia}", more=PRETENDED)
    (spec,) = cycle(host).report.specs
    assert (spec.kind, spec.result) == (KIND, "withdrawn")
    assert not (host / "run/cdi/nvidia.com-gpu.json").exists()


def test_inspect_and_doctor_show_an_excluded_gpu(cdigen: Run, host: Path) -> None:
    exclude(host, "{index: 0}")
    assert cdigen("generate", "--root", host, "--write").code == 0
    assert CONFIGURED in cdigen("inspect", "--root", host).out
    rows = cdigen("doctor", "--root", host, "--json").json
    assert any(row["ok"] and "GPU 0: " + CONFIGURED in row["detail"] for row in rows)
    rows = cdigen("doctor", "--root", host, "--json", "--device", f"{KIND}=0").json
    (row,) = (row for row in rows if row["check"] == "device-unknown")
    assert row["detail"].startswith(f"{KIND}=0 is {CONFIGURED}{{index: 0}}")


def test_status_and_list_show_an_excluded_gpu(cdigen: Run, host: Path) -> None:
    exclude(host, "{index: 0}", more=PRETENDED)
    with daemon(Host(host)):
        line = f"{KIND}=0: {CONFIGURED}{{index: 0}}]}})\n"
        assert cdigen("list", "--root", host).err == f"cdigen: {line}"
        status = cdigen("status", "--root", host)
        assert line in status.out
        shown = cdigen("status", "--root", host, "--json").json["devices"]
        assert [each["usable"] for each in shown] == [False, True]


@pytest.mark.parametrize("row", ["{index: 7}", "{model: Riva*}", "{uuid: GPU-0}", "{address: '01:00.0'}"])
def test_a_row_that_matches_nothing_is_a_warning_in_each_command(cdigen: Run, host: Path, row: str) -> None:
    exclude(host, row)
    done = cdigen("generate", "--root", host)
    assert done.code == 0
    assert "matches no device of nvidia" in done.err
    assert "[exclusion-unmatched]" in done.err
    (finding,) = found(cycle(host), "exclusion-unmatched")
    assert finding.severity == "warning"
    details = [one["detail"] for one in cdigen("doctor", "--root", host, "--json").json if not one["ok"]]
    assert any("matches no device" in detail for detail in details)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{}", "a row without a condition would exclude all devices"),
        ("{display: false}", "a row without a condition would exclude all devices"),
        ("{index: -1}", "must be a number from 0 to 65535"),
        ("{address: 65.00.0}", "must be an address such as 0000:65:00.0"),
        ("{uuid: 'a b'}", "must be a UUID as in 'cdigen inspect'"),
        ("{vendor: nvida}", "must be one of nvidia, amd, intel"),
        ("{gpu: 0}", "unknown key 'gpu'"),
        ("0", "must be a list of mappings"),
    ],
)
def test_a_wrong_row_is_refused(cdigen: Run, host: Path, row: str, message: str) -> None:
    exclude(host, row)
    assert cdigen("generate", "--root", host).failed(2, "config.yaml:1:", "devices: exclude", message)
