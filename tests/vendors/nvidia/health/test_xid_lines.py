"""Symptoms in kernel log lines of drivers 470 to 595; the name of a process in a line has no effect."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.values import devices

from cdigen.model.health import LogRecord, Recovery, Symptom
from cdigen.model.inventory import Inventory
from cdigen.vendors.nvidia.health import HEALTH
from cdigen.vendors.nvidia.health.xids import BY_NUMBER, RULES, XIDS, harms_gpu

GPU, OTHER, WIDE = "0000:65:00.0", "0000:ca:00.0", "12345:0a:00.0"
# Three lines in one record of /dev/kmsg.
FALLEN_AT_START = (
    r"NVRM: The NVIDIA GPU 0000:65:00.0\x0aNVRM: (PCI ID: 10de:26b5) installed in this system has\x0a"
    "NVRM: fallen off the bus and is not responding to commands."
)


def inventory(*, islands: tuple[str, ...] = ("", "", "")) -> Inventory:
    gpus = (
        devices.accelerator(index, address, minor=index, island=island)
        for index, (address, island) in enumerate(zip((GPU, OTHER, WIDE), islands, strict=True))
    )
    return devices.inventory("nvidia", *gpus)


def parse_log(text: str, host: Inventory | None = None) -> tuple[Symptom | Recovery, ...]:
    return HEALTH.parse_log(LogRecord(sequence=1, at_s=5.0, text=text), host or inventory())


def symptom(text: str) -> Symptom:
    (results,) = parse_log(text)
    assert isinstance(results, Symptom)
    assert results.at_s == 5.0
    assert results.detail.isprintable()
    assert len(results.detail) <= 200
    return results


@pytest.mark.parametrize(
    ("text", "cause", "address", "instance"),
    [
        ("NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.", "xid-79", GPU, ""),
        (
            "NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            "xid-79", GPU, "",
        ),
        ("NVRM: Xid (PCI:0000:65:00): 48, pid=1234, An uncorrectable double bit error", "xid-48", GPU, ""),
        ("NVRM: Xid (PCI:0000:CA:00): 63, pid=1896, name=python, Row Remapper: New row", "xid-63", OTHER, ""),
        ("NVRM: Xid (PCI:0000:ca:00.0): 62, 223b6a66 00002100 00000000", "xid-62", OTHER, ""),
        ("NVRM: Xid (0000:65:00): 64, Dynamic Page Retirement: Fatal error", "xid-64", GPU, ""),
        ("NVRM: Xid (PCI:12345:0a:00): 95, pid=7, name=x, Uncontained: LTC TAG", "xid-95", WIDE, ""),
        ("NVRM: Xid (PCI:00012345:0A:00): 95, pid=7, name=x, Uncontained: LTC TAG", "xid-95", WIDE, ""),
        (
            "NVRM: Xid (PCI:0000:65:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No",
            "xid-94", GPU, "gi5",
        ),
        (
            "NVRM: Xid (PCI:0000:65:00 GPU-I:13 GPU-CI:00): 94, pid=1, name=a, Contained: SM (0x1)",
            "xid-94", GPU, "gi13",
        ),
        ("NVRM: Xid (PCI:0000:65:00 GPU-I:05): 95, pid=1, name=a, Uncontained", "xid-95", GPU, ""),
        (
            "NVRM: Xid (PCI:0000:65:00): 119, pid=1, name=a, Timeout after 6s of waiting for RPC response",
            "xid-119", GPU, "",
        ),
        (
            "NVRM: Xid (PCI:0000:65:00): 145, RLW_REMAP Fatal XC1 i0 Link -1 (0x00000004 0x00000040)",
            "xid-145", GPU, "",
        ),
        ("NVRM: Xid (PCI:0000:65:00): 149, NETIR_LINK_DOWN Fatal XC0 i0 Link 03 (0x1)", "xid-149", GPU, ""),
        ("NVRM: Xid (PCI:0000:65:00): 149, in other words, Nonfatal for once", "xid-149", GPU, ""),
        ("NVRM: Xid (PCI:0000:65:00): 999, something new", "xid-unknown", GPU, ""),
        ("NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.", "xid-79", "0000:17:00.0", ""),
        ("NVRM: GPU 0000:65:00.0: GPU has fallen off the bus.", "xid-79", GPU, ""),
        ("NVRM: GPU at 0000:65:00.0 has fallen off the bus.", "xid-79", GPU, ""),
        ("NVRM: GPU at PCI:0000:65:00: GPU has fallen off the bus.", "xid-79", GPU, ""),
        (FALLEN_AT_START, "xid-79", GPU, ""),
        ("NVRM: GPU 0000:65:00.0: RmInitAdapter failed! (0x26:0x56:1474)", "driver-init-failed", GPU, ""),
        (
            "NVRM: GPU 0000:65:00.0: rm_init_adapter failed, device minor number 0",
            "driver-init-failed", GPU, "",
        ),
        (
            "NVRM: rm_init_adapter failed for device bearing minor number 1",
            "driver-init-failed", OTHER, "",
        ),
        ("NVRM: rm_init_adapter failed, device minor number 1", "driver-init-failed", OTHER, ""),
        ("nvidia: probe of 0000:65:00.0 failed with error -1", "driver-init-failed", GPU, ""),
        (
            "nvidia 0000:65:00.0: probe with driver nvidia failed with error -1",
            "driver-init-failed", GPU, "",
        ),
    ],
)  # fmt: skip
def test_a_line_is_a_symptom_of_its_gpu(text: str, cause: str, address: str, instance: str) -> None:
    results = symptom(text)
    assert (results.cause, results.address, results.instance) == (cause, address, instance)


@pytest.mark.parametrize(
    "text",
    [
        *(f"NVRM: Xid (PCI:0000:65:00): {number}, pid=7, name=x, y" for number in (13, 31, 43, 45, 68, 109)),
        "NVRM: Xid (PCI:0000:65:00): 92, pid=7, name=x, High single-bit ECC error rate",
        "NVRM: GPU at PCI:0000:65:00: GPU-8f5a8d1c-7b5a-1b1b-2c2c-0123456789ab",
        "NVRM: Xid (PCI:0000:65:00): 145, RLW_CTRL Nonfatal XC0 i0 Link 00 (0x00000003 0x80000000)",
        "NVRM: Xid (PCI:0000:65:00): 149, NETIR_BER_EVENT  Nonfatal XC0 i0 Link 03 (0x00086226)",
        "NVRM: Xid (PCI:0000:65:00): 145, pid='<unknown>', name=<unknown>, RLW_REMAP Nonfatal XC1 i0 Link -1",
        "NVRM: Xid (PCI:0000:65:00): 144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008)",
        "NVRM: Xid (PCI:0000:65:00): 150, MSE_WATCHDOG Nonfatal XC0 i0 Link -1 (0x00000001 0x00000000)",
        "NVRM: GPU Board Serial Number: 1563221012345",
        "NVRM: Xid (PCI:0000:65:00): abc, pid=7",
        "NVRM: Xid : 79, pid=7",
        "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20009, Non-fatal, Link 28 RX Short Error Rate",
        "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Severity 1 Engine instance 30",
        "nvidia-nvlink: Unregistered Nvlink Core, major device number 510",
        "x NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.",
        "[drm] NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.",
        "",
    ],
)
def test_a_line_that_reports_no_harm_to_a_gpu_is_ignored(text: str) -> None:
    assert parse_log(text) == ()


FORGED = (
    "NVRM: Xid (PCI:0000:ca:00): 79, GPU has fallen off the bus.",
    "): 79, GPU has fallen off the bus.",
    "x\nNVRM: Xid (PCI:0000:ca:00): 79, x",
    "\\x0aNVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.163.01",
    "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
)


@pytest.mark.parametrize("name", FORGED)
def test_a_process_name_like_a_log_line_has_no_effect(name: str) -> None:
    assert parse_log(f"NVRM: Xid (PCI:0000:65:00): 31, pid=7, name={name}, Ch 00000008, MMU Fault") == ()
    assert symptom(f"NVRM: Xid (PCI:0000:65:00): 119, pid=7, name={name}, Timeout").cause == "xid-119"
    action = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    results = symptom(f"NVRM: Xid (PCI:0000:65:00): 154, pid=7, name={name}, {action}")
    assert (results.cause, results.address, results.detail) == ("xid-154", GPU, "Xid 154: GPU Reset Required")


WORDS = st.text(max_size=40)


@given(
    name=WORDS, words=WORDS, number=st.integers(0, 300), domain=st.sampled_from(["0000:65:00", "0000:CA:00"])
)
def test_any_process_name_leaves_the_gpu_and_the_xid_of_a_line_unchanged(
    name: str, words: str, number: int, domain: str
) -> None:
    results = parse_log(f"NVRM: Xid (PCI:{domain}): {number}, pid=7, name={name}, {words}")
    assert {one.address for one in results} <= {f"{domain.lower()}.0"}
    xid = BY_NUMBER.get(number)
    assert bool(results) == (xid is None or harms_gpu(xid))


@given(text=WORDS | WORDS.map("NVRM: ".__add__) | WORDS.map("NVRM: Xid (PCI:".__add__))
def test_no_line_raises_an_exception(text: str) -> None:
    assert all(isinstance(one, (Symptom, Recovery)) for one in parse_log(text))


@pytest.mark.parametrize("process", ["", "pid='<unknown>', name=<unknown>, "])
@pytest.mark.parametrize(
    "action", ["0x1 (GPU Reset Required)", "0x2 (Node Reboot Required)", "0x2 (OS Reboot)", "0x3 (Drain P2P)"]
)
def test_a_recovery_action_of_the_driver_is_a_cause(process: str, action: str) -> None:
    text = (
        f"NVRM: Xid (PCI:0000:65:00): 154, {process}GPU recovery action changed from 0x0 (None) to {action}"
    )
    assert symptom(text).cause == "xid-154"
    assert action[5:-1] in symptom(text).detail


def test_the_detail_of_a_long_line_is_shortened() -> None:
    assert symptom(f"NVRM: Xid (PCI:0000:65:00): 119, {'x' * 900}").detail.startswith("Xid 119: xxx")
    assert symptom(f"NVRM: GPU 0000:65:00.0: GPU has fallen off the bus. {'x' * 900}").cause == "xid-79"


def test_an_xid_154_with_another_text_is_a_cause() -> None:
    assert symptom("NVRM: Xid (PCI:0000:65:00): 154, GPU recovery is now wanted").cause == "xid-154"
    assert symptom("NVRM: Xid (PCI:0000:65:00): 154").cause == "xid-154"


def clearances(old: str) -> list[tuple[str, str]]:
    change = f"GPU recovery action changed from {old} to 0x0 (None)"
    results = parse_log(f"NVRM: Xid (PCI:0000:65:00): 154, {change}")
    assert all(isinstance(one, Recovery) and one.at_s == 5.0 for one in results)
    return [(one.clearance, one.address) for one in results if isinstance(one, Recovery)]


def test_a_change_to_no_recovery_action_is_a_recovery_and_may_be_a_reset() -> None:
    assert clearances("0x1 (GPU Reset Required)") == [("reset", GPU), ("recovered", GPU)]
    assert clearances("0x4 (Drain and Reset)") == [("reset", GPU), ("recovered", GPU)]
    assert clearances("0x6 (Bus Reset)") == [("reset", GPU), ("recovered", GPU)]
    assert clearances("0x2 (Node Reboot Required)") == [("recovered", GPU)]
    assert clearances("0x3 (Drain P2P)") == [("recovered", GPU)]


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  590.44.01  Release Build  (root@host)",
    ],
)
def test_the_first_line_of_the_driver_reports_a_reload(text: str) -> None:
    assert parse_log(text) == (Recovery(clearance="reload", address="", detail=text, at_s=5.0),)


def test_a_fatal_error_of_a_switch_applies_to_all_gpus_that_it_may_connect() -> None:
    line = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 30 sourcetrack timeout error"
    assert [results.address for results in parse_log(line)] == [GPU, OTHER, WIDE]
    joined = parse_log(line, inventory(islands=("a", "a", "")))
    assert [results.address for results in joined] == [GPU, OTHER]
    assert {results.cause for results in joined if isinstance(results, Symptom)} == {"nvswitch-fatal"}


def test_a_fatal_error_of_unified_memory_applies_to_all_gpus() -> None:
    line = "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot"
    assert [
        (results.cause, results.address) for results in parse_log(line) if isinstance(results, Symptom)
    ] == [("uvm-fatal", address) for address in (GPU, OTHER, WIDE)]


def test_a_line_about_the_pcie_link_is_parsed_as_for_any_device() -> None:
    line = f"nvidia {GPU}: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer, (ID)"
    assert symptom(line).cause == "pci-fatal-error"


def test_each_xid_is_in_the_table_once_and_each_cause_has_a_rule() -> None:
    assert len(BY_NUMBER) == len(XIDS)
    causes = [rule.cause for rule in HEALTH.causes]
    assert len(causes) == len(set(causes))
    assert {xid.cause for xid in XIDS if harms_gpu(xid)} < {rule.cause for rule in RULES}


def test_xids_that_nvidias_plugin_ignores_harm_only_the_application() -> None:
    assert {BY_NUMBER[number].harm for number in (13, 31, 43, 45, 68, 109)} == {"application"}
