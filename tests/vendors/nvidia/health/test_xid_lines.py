"""What lines of the kernel's log mean, in the forms of drivers 470 to 595; a process's name means nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.values import devices

from cdigen.model.health import LogRecord, Recovery, Symptom
from cdigen.model.inventory import Inventory
from cdigen.vendors.nvidia.health import HEALTH
from cdigen.vendors.nvidia.health.xids import BY_NUMBER, RULES, XIDS, harms_gpu

GPU, OTHER, WIDE = "0000:65:00.0", "0000:ca:00.0", "12345:0a:00.0"
# Three lines, in one record as /dev/kmsg gives it.
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


def heard(text: str, host: Inventory | None = None) -> tuple[Symptom | Recovery, ...]:
    return HEALTH.heard(LogRecord(sequence=1, at_s=5.0, text=text), host or inventory())


def symptom(text: str) -> Symptom:
    (told,) = heard(text)
    assert isinstance(told, Symptom)
    assert told.at_s == 5.0
    assert told.detail.isprintable()
    assert len(told.detail) <= 200
    return told


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
    told = symptom(text)
    assert (told.cause, told.address, told.instance) == (cause, address, instance)


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
def test_what_harms_no_gpu_means_nothing(text: str) -> None:
    assert heard(text) == ()


FORGED = (
    "NVRM: Xid (PCI:0000:ca:00): 79, GPU has fallen off the bus.",
    "): 79, GPU has fallen off the bus.",
    "x\nNVRM: Xid (PCI:0000:ca:00): 79, x",
    "\\x0aNVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.163.01",
    "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
)


@pytest.mark.parametrize("name", FORGED)
def test_a_process_that_is_called_like_a_line_is_not_believed(name: str) -> None:
    assert heard(f"NVRM: Xid (PCI:0000:65:00): 31, pid=7, name={name}, Ch 00000008, MMU Fault") == ()
    assert symptom(f"NVRM: Xid (PCI:0000:65:00): 119, pid=7, name={name}, Timeout").cause == "xid-119"
    action = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    told = symptom(f"NVRM: Xid (PCI:0000:65:00): 154, pid=7, name={name}, {action}")
    assert (told.cause, told.address, told.detail) == ("xid-154", GPU, "Xid 154: GPU Reset Required")


WORDS = st.text(max_size=40)


@given(
    name=WORDS, words=WORDS, number=st.integers(0, 300), domain=st.sampled_from(["0000:65:00", "0000:CA:00"])
)
def test_whatever_a_process_is_called_the_line_is_of_the_gpu_and_the_number_at_its_beginning(
    name: str, words: str, number: int, domain: str
) -> None:
    told = heard(f"NVRM: Xid (PCI:{domain}): {number}, pid=7, name={name}, {words}")
    assert {one.address for one in told} <= {f"{domain.lower()}.0"}
    xid = BY_NUMBER.get(number)
    assert bool(told) == (xid is None or harms_gpu(xid))


@given(text=WORDS | WORDS.map("NVRM: ".__add__) | WORDS.map("NVRM: Xid (PCI:".__add__))
def test_no_line_is_too_much(text: str) -> None:
    assert all(isinstance(one, (Symptom, Recovery)) for one in heard(text))


@pytest.mark.parametrize("who", ["", "pid='<unknown>', name=<unknown>, "])
@pytest.mark.parametrize(
    "wanted", ["0x1 (GPU Reset Required)", "0x2 (Node Reboot Required)", "0x2 (OS Reboot)", "0x3 (Drain P2P)"]
)
def test_what_the_driver_wants_done_is_a_cause(who: str, wanted: str) -> None:
    text = f"NVRM: Xid (PCI:0000:65:00): 154, {who}GPU recovery action changed from 0x0 (None) to {wanted}"
    assert symptom(text).cause == "xid-154"
    assert wanted[5:-1] in symptom(text).detail


def test_what_is_shown_of_a_line_is_short() -> None:
    assert symptom(f"NVRM: Xid (PCI:0000:65:00): 119, {'x' * 900}").detail.startswith("Xid 119: xxx")
    assert symptom(f"NVRM: GPU 0000:65:00.0: GPU has fallen off the bus. {'x' * 900}").cause == "xid-79"


def test_an_action_in_other_words_is_one_to_take() -> None:
    assert symptom("NVRM: Xid (PCI:0000:65:00): 154, GPU recovery is now wanted").cause == "xid-154"
    assert symptom("NVRM: Xid (PCI:0000:65:00): 154").cause == "xid-154"


def clearances(old: str) -> list[tuple[str, str]]:
    change = f"GPU recovery action changed from {old} to 0x0 (None)"
    told = heard(f"NVRM: Xid (PCI:0000:65:00): 154, {change}")
    assert all(isinstance(one, Recovery) and one.at_s == 5.0 for one in told)
    return [(one.clearance, one.address) for one in told if isinstance(one, Recovery)]


def test_a_driver_that_wants_nothing_more_done_tells_the_reset() -> None:
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
def test_the_drivers_first_line_is_its_load(text: str) -> None:
    assert heard(text) == (Recovery(clearance="reload", address="", detail=text, at_s=5.0),)


def test_a_fatal_error_of_a_switch_is_that_of_all_gpus_that_it_may_join() -> None:
    line = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 30 sourcetrack timeout error"
    assert [told.address for told in heard(line)] == [GPU, OTHER, WIDE]
    joined = heard(line, inventory(islands=("a", "a", "")))
    assert [told.address for told in joined] == [GPU, OTHER]
    assert {told.cause for told in joined if isinstance(told, Symptom)} == {"nvswitch-fatal"}


def test_what_ends_all_unified_memory_is_that_of_all_gpus() -> None:
    line = "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot"
    assert [(told.cause, told.address) for told in heard(line) if isinstance(told, Symptom)] == [
        ("uvm-fatal", address) for address in (GPU, OTHER, WIDE)
    ]


def test_a_line_about_the_pcie_link_is_heard_as_of_any_device() -> None:
    line = f"nvidia {GPU}: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer, (ID)"
    assert symptom(line).cause == "pci-fatal-error"


def test_each_number_is_in_the_table_once_and_each_cause_has_its_rule() -> None:
    assert len(BY_NUMBER) == len(XIDS)
    causes = [rule.cause for rule in HEALTH.CAUSES]
    assert len(causes) == len(set(causes))
    assert {xid.cause for xid in XIDS if harms_gpu(xid)} < {rule.cause for rule in RULES}


def test_numbers_that_nvidias_plugin_passes_over_harm_the_application_alone() -> None:
    assert {BY_NUMBER[number].harm for number in (13, 31, 43, 45, 68, 109)} == {"application"}
