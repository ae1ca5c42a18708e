"""The content of the page for several hosts, and the content that the page must never have."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from support.daemon.page import read
from support.values.page_samples import (
    FELL,
    KUBELET,
    NOW_S,
    NRI,
    SAMPLES,
    SOURCES,
    cpx,
    degraded,
    healthy,
    large,
    mixed,
    no_gpu,
    one_cause,
)

from cdigen.model.findings import Finding
from cdigen.model.stats import DeviceStats
from cdigen.page.page import POLICY, page
from cdigen.page.style import STYLE, digest
from cdigen.page.view import DeviceUser, PageView, RefusedContainer
from cdigen.topology.svg import STYLE as PICTURE_STYLE
from cdigen.value import fields, replace

VOID = {"meta"}
every_sample = pytest.mark.parametrize("name", SAMPLES)
# A long text with code, the end of an attribute, an escape sequence and a direction mark.
HOSTILE = "</td><script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b[31m\u202e\x00" + "A" * 10_000


class Tables(HTMLParser):
    """Collects the rows of all tables by the name of the table. A row is a list of the texts of its cells."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: dict[str, list[list[str]]] = {}
        self.open: list[str] = []
        self.cell: list[str] | None = None
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.rows = self.tables[dict(attrs)["aria-label"] or ""] = []
        elif tag == "tr":
            self.rows.append([])
        elif tag in {"td", "th"}:
            self.cell = []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag in {"td", "th"} and self.cell is not None:
            self.rows[-1].append(" ".join(" ".join(self.cell).split()))
            self.cell = None

    def handle_data(self, data: str) -> None:
        if self.cell is not None:
            self.cell.append(data)


def tables(view: PageView) -> dict[str, list[list[str]]]:
    reader = Tables()
    reader.feed(page(view).partition("\n")[2])
    assert not reader.open
    return reader.tables


def text(view: PageView) -> str:
    """Return the visible text of the page, with a single space between the texts of two elements."""
    made = re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", page(view))
    return " ".join(read(re.sub(r"</(strong|title|h\d|p|div|li|td|th)>", r" </\1>", made)).text.split())


def rows(view: PageView) -> dict[str, list[str]]:
    """Return the rows of the devices by their first word."""
    return {row[0].split()[0]: row for row in tables(view)["Devices"][1:]}


@every_sample
def test_every_table_has_a_header_for_each_cell(name: str) -> None:
    for header, *others in tables(SAMPLES[name]()).values():
        assert {len(row) for row in others} <= {len(header)}


@every_sample
def test_the_page_loads_no_other_file_and_runs_no_script(name: str) -> None:
    made = page(SAMPLES[name]())
    found = read(made)
    assert {tag for tag, _ in found.tags} & {
        "script",
        "img",
        "link",
        "iframe",
        "form",
        "input",
        "object",
    } == set()
    attributes = {(name, value) for _, each in found.tags for name, value in each.items()}
    assert not [name for name, _ in attributes if name.startswith("on") or name in {"style", "src"}]
    assert {value for name, value in attributes if name == "href"} == {
        "/", "/?reload=off", "/status.json", "/inventory.json", "/page.json", "/metrics"
    } - {"/"}  # fmt: skip
    assert "url(" not in made
    assert "@import" not in made


@every_sample
def test_the_policy_allows_the_style_sheets_of_the_page_and_nothing_else(name: str) -> None:
    sheets = re.findall(r"<style>(.*?)</style>", page(SAMPLES[name]()), re.DOTALL)
    assert set(sheets) <= {STYLE, PICTURE_STYLE}
    assert sheets[0] == STYLE
    assert (
        f"default-src 'none'; style-src {digest(STYLE)} {digest(PICTURE_STYLE)}; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ) == POLICY


@every_sample
def test_headings_name_the_sections(name: str) -> None:
    found = read(page(SAMPLES[name]()))
    named = [each["aria-labelledby"] for tag, each in found.tags if tag == "section"]
    assert named == [each["id"] for tag, each in found.tags if tag == "h2"]
    assert [tag for tag, _ in found.tags if tag in {"header", "main", "footer", "h1"}] == [
        "header", "h1", "main", "footer"
    ]  # fmt: skip


def test_the_page_shows_the_verdict_and_the_age_of_the_state() -> None:
    found = healthy()
    status = replace(found.status, state="degraded", verdict="8 of 8 devices unhealthy")
    shown = text(replace(found, status=status))
    assert "Degraded: 8 of 8 devices unhealthy" in shown
    assert "Since 3 days" in shown


def test_the_row_of_a_device_shows_names_model_health_stats_and_users() -> None:
    assert rows(healthy())["GPU0"] == [
        "GPU0 nvidia.com/gpu=0 0000:1b:00.0 GPU-3c7f6a52-9b1d-4e08-a2c4-5d6e7f8091a2",
        "NVIDIA H100 80GB HBM3 NUMA node 0",
        "healthy",
        "54.9 of 80 GiB",
        "97 % 63 °C 556 W",
        "pod ml/train-0, container trainer (kubelet, NRI)",
    ]
    assert rows(healthy())["GPU7"][-1] == "none known"


def test_an_unhealthy_device_shows_the_age_of_its_cause_and_the_next_step() -> None:
    assert rows(degraded())["GPU3"][2] == "unhealthy xid-79 for 3 hours"
    shown = text(degraded())
    assert f"nvidia.com/gpu=3 is unhealthy: xid-79 for 3 hours {FELL.detail}" in shown
    assert "Reset the device, or reboot the host" in shown


def test_a_left_out_device_shows_the_reason() -> None:
    assert rows(degraded())["GPU6"][2] == "left out /dev/nvidia6 is missing"


def test_action_items_have_next_steps_and_the_most_severe_item_is_first() -> None:
    shown = text(degraded())
    problems = [
        "nvidia.com/gpu=3 is unhealthy",
        "NRI plugin: not running",
        "nvidia is degraded",
        "The event source kernel-log does not work",
        "/dev/nvidia6 is missing: GPU 6 is left out",
    ]
    places = [shown.index(each) for each in problems]
    assert places == sorted(places)
    assert "systemctl start cdigen-nodes.service" in shown
    assert "systemctl start cdigen-kernel-log.socket" in shown
    assert "No action is needed" in text(healthy())


def test_a_common_cause_of_sixteen_devices_is_a_single_action_item() -> None:
    text = page(one_cause())
    todo = text[text.index('id="todo"') :].partition("</section>")[0]
    assert todo.count("<li") == 1
    assert "16 devices are unhealthy: " in todo


def test_a_host_without_a_device_shows_the_reason_of_each_vendor() -> None:
    shown = text(no_gpu())
    assert "This host has no device for containers." in shown
    assert "amd is absent for 40 seconds the module amdgpu is not loaded run 'modprobe amdgpu'" in shown
    assert "No container runtime that reads specs was found" in shown


def test_values_without_a_source_are_unknown_or_have_no_column() -> None:
    found = healthy()
    assert tables(degraded())["Devices"][0] == ["Device", "Model", "Health"]
    assert "No source reports the users of devices." in text(degraded())
    assert "Memory and load are unknown: NVML has not answered yet" in text(degraded())
    last = replace(found.devices[0], stats=None)
    assert rows(replace(found, devices=(last, *found.devices[1:])))["GPU0"][3:5] == ["unknown", "unknown"]
    unanswered = replace(
        found, sources=(replace(SOURCES[0], state="no-response", detail="no response in 2 s"),)
    )
    assert rows(unanswered)["GPU7"][-1] == "unknown"
    assert "kubelet: no response (no response in 2 s)" in text(unanswered)


def test_equal_partitions_without_users_share_a_row() -> None:
    assert [row[:2] for row in tables(cpx())["Devices"][1:]] == [
        [
            "GPU0 amd.com/gpu=0x84CAFEAE17E7696 0000:05:00.0",
            "AMD Instinct MI300X OAM NUMA node 0 split into 8",
        ],
        ["amd.com/gpu=0 to 7", "8x cpx_nps1"],
        [
            "GPU8 amd.com/gpu=0xA3CF578FD2FAA689 0000:26:00.0",
            "AMD Instinct MI300X OAM NUMA node 0 split into 8",
        ],
        ["amd.com/gpu=8 to 15", "8x cpx_nps1"],
    ]


def test_a_used_or_unhealthy_partition_has_a_separate_row() -> None:
    found = [row[0] for row in tables(large())["Devices"][1:]]
    start = found.index("nvidia.com/gpu=1:0")
    assert found[start + 1] == "nvidia.com/gpu=1:1 to 1:3"
    assert [each for each in found if "gpu=2:" in each] == [
        "nvidia.com/gpu=2:0", "nvidia.com/gpu=2:1", "nvidia.com/gpu=2:2 to 2:3"
    ]  # fmt: skip
    # The page has 16 GPUs with 64 partitions.
    assert len(found) < 64


def facts(view: PageView) -> list[str]:
    """Return the first three facts at the top of the page: devices, healthy devices, used devices."""
    return re.findall(r"<dt>[^<]*</dt><dd>([^<]*)</dd>", page(view))[:3]


def test_devices_for_containers_are_counted() -> None:
    assert facts(large()) == ["64", "63 of 64", "8 of 64"]
    assert facts(mixed()) == ["6", "6 of 6", "0 of 6"]
    assert facts(degraded())[2] == "unknown"


def test_vendors_specs_and_runtimes_are_shown_in_tables() -> None:
    found = tables(degraded())
    assert found["Specs"][1] == [
        "nvidia.com/gpu",
        "unchanged",
        "7 names of 7 devices, 1 device left out",
        "/var/run/cdi/nvidia.com-gpu.json",
        "3 days ago",
    ]
    assert found["Vendors"][1:] == [
        ["nvidia", "degraded", "550.163.01", "3 hours", "7 of 8 GPUs can be used"]
    ]
    assert "No devices of these vendors: amd, intel." in text(degraded())
    assert found["Devices that runtimes find"][1:] == [
        ["containerd 2.1.4", "8 of 8 devices", "none"],
        [
            "podman 4.3.1",
            "0 of 8 devices",
            "/etc/cdi/nvidia.yaml : cdiVersion 1.1.0 is unknown to podman 4.3.1",
        ],
    ]


def test_a_spec_with_several_names_for_each_device_shows_the_number_of_devices() -> None:
    found = healthy()
    [spec, *_] = found.status.specs
    made = replace(found, status=replace(found.status, specs=(replace(spec, served=18),)))
    assert tables(made)["Specs"][1][2] == "18 names of 8 devices"


def test_every_searched_vendor_is_named() -> None:
    found = no_gpu()
    first = replace(found.status, vendors=found.status.vendors[:1])
    found = replace(found, status=first, searched=("nvidia", "amd", "intel"))
    assert "No devices of these vendors: nvidia, amd, intel." in text(found)


def test_the_reason_for_missing_stats_is_shown_once() -> None:
    found = degraded()
    why = "NVML is not queried (nvml: off, or the driver is not this machine's own)"
    devices = tuple(
        replace(one, stats=DeviceStats(address=one.device.accelerator.address, problem=why))
        for one in found.devices
    )
    assert text(replace(found, devices=devices, stats_problem="")).count(why) == 1
    [first, *others] = devices
    suspended = replace(
        first, stats=DeviceStats(address=first.device.accelerator.address, problem="it is suspended")
    )
    known = replace(others[0], stats=DeviceStats(address="", utilization=3.0))
    assert (
        "it is suspended"
        in rows(replace(found, devices=(suspended, known)))[first.label or first.device.name][4]
    )


def test_changes_and_refusals_are_in_one_table_and_the_newest_row_is_first() -> None:
    assert [row[:3] for row in tables(healthy())["Last changes"][1:]] == [
        ["2 hours ago", "refused", "pod ml/sweep-41, container main"],
        ["3 days ago", "written", "nvidia.com/gpu 8 devices added"],
    ]


def test_the_table_of_services_shows_the_state_of_each_service() -> None:
    found = tables(healthy())["Services"][1:]
    assert found[1] == [
        "NRI plugin",
        "registered",
        "3 days",
        "with containerd 2.1.4 214 containers with injected devices, 1 refused",
    ]
    assert "Services" not in tables(mixed())


def test_the_page_shows_whether_it_reloads_automatically() -> None:
    assert "As of 2026-11-23 15:00:00 UTC, reloaded every 15 seconds. Stop reloading" in text(healthy())
    assert "not reloaded. Reload automatically" in text(replace(healthy(), reload_s=0))


def hostile(value: Any) -> Any:
    """Return a copy of VALUE in which HOSTILE replaces every text that a host or a container can choose."""
    kept = {"state", "health", "result", "severity", "cause", "since", "kind", "vendor", "device_class"}
    if isinstance(value, tuple):
        return tuple(hostile(each) for each in value)
    if isinstance(value, str):
        return HOSTILE
    if not fields(value):
        return value
    chosen = {name: getattr(value, name) for name in fields(value) if name not in kept}
    return replace(value, **{name: hostile(each) for name, each in chosen.items()})


def many_texts() -> PageView:
    found = healthy()
    cycle = found.status.cycle
    assert cycle is not None
    finding = Finding(severity="error", rule="r", path="p", message="m", hint="h")
    refusal = RefusedContainer(at_s=NOW_S, container="w", reason="r")
    unhealthy = replace(found.devices[0].device.accelerator, health="unhealthy", causes=(FELL,))
    device = replace(found.devices[0], device=replace(found.devices[0].device, accelerator=unhealthy))
    return replace(
        found,
        status=replace(found.status, cycle=replace(cycle, findings=(finding,)), sources=(("files", "x"),)),
        devices=(device, replace(found.devices[1], users=(DeviceUser(name="n", source="s"),) * 20)),
        services=(replace(KUBELET, state="bad"), replace(NRI, refusals=(refusal,))),
        stats_problem="p",
        topology=found.topology[:2],
    )


def test_hostile_names_are_shown_and_have_no_effect() -> None:
    made = page(hostile(many_texts()))
    found = read(made)
    assert {tag for tag, _ in found.tags} & {"script", "img"} == set()
    assert [tag for tag, _ in found.tags].count("section") == 6
    assert not [name for _, each in found.tags for name in each if name.startswith("on")]
    assert r"<script>alert(1)</script>" in found.text
    assert r"\x1b[31m\u202e\x00" in found.text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", made)
    # The page has the text 41 times. Most copies are cut. The descriptions in the picture are not cut.
    assert len(made) < 205_000


def test_a_page_of_a_thousand_findings_is_short() -> None:
    found = healthy()
    cycle = found.status.cycle
    assert cycle is not None
    findings = tuple(
        Finding(severity="warning", rule=f"r{n}", path=f"/dev/{n}", message=f"{n} is missing")
        for n in range(1000)
    )
    shown = text(replace(found, status=replace(found.status, cycle=replace(cycle, findings=findings))))
    assert "/dev/19: 19 is missing" in shown
    assert "/dev/20:" not in shown
    assert "And 980 more: see cdigen status." in shown
    alike = tuple(replace(finding, rule="r") for finding in findings)
    shown = text(replace(found, status=replace(found.status, cycle=replace(cycle, findings=alike))))
    assert "/dev/0: 0 is missing (and 999 more: /dev/1, /dev/2, /dev/3, /dev/4 and 995 more)" in shown
