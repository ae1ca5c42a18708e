"""A vendor of another package can have each optional member. A defect of a member affects no other vendor."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.hosts.added_vendors import minimal, vendor
from support.hosts.nvidia import places
from support.values.devices import DRIVER, accelerator, inventory

from cdigen.config import KubeletConfig
from cdigen.daemon.stats import StatsReader
from cdigen.health.tracker import HealthTracker, TrackerOptions
from cdigen.kubelet.labels.node_labels import node_labels
from cdigen.kubelet.resources.resource_set import advertise
from cdigen.model.errors import HostError
from cdigen.model.health import LogRecord
from cdigen.model.profile import DEFAULT
from cdigen.pipeline import discovery
from cdigen.pipeline.driver import links
from cdigen.pipeline.driver.cuda import CudaVersions, cuda_of
from cdigen.vendors import plugin_values, registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cdigen.model.inventory import Inventory

FIRST, SECOND, OTHER = "0000:41:00.0", "0000:42:00.0", "0000:65:00.0"
IMPORTS = """
from pathlib import Path
from cdigen.model.health import *
from cdigen.model.inventory import Link
from cdigen.model.saved import GpuLinks
from cdigen.model.stats import DeviceStats
from cdigen.vendors.base import *
from cdigen.vendors.health import VendorHealth
"""
RULE = (
    "CauseRule(cause='added-hot', cleared_by=('gone',), clears_when='it cools', meaning='Hot.',"
    " reference='guide')"
)
SYMPTOM = f"Symptom(cause='added-hot', address='{FIRST}', detail='90 C')"
CHECKED = f"HealthSample(source='files', covered=('{FIRST}',), symptoms=({SYMPTOM},))"
# The code of each field of a VendorHealth.
HEALTH = {
    "causes": f"({RULE},)",
    "modules": "('added',)",
    "check": f"lambda context, inventory: {CHECKED}",
    "parse_log": f"lambda record, inventory: ({SYMPTOM},)",
    "parse_uevents": "lambda event, inventory: ()",
    "probe": "lambda context, inventory: HealthSample(source='probe')",
}
LINK = (
    f"GpuLinks(address='{FIRST}', links=(Link(peer='{SECOND}', technology='addedlink', count=2),), island='')"
)
MEMBERS = {
    "RESOURCES": "(ResourceNames(device_class='npu', name='example.com/added'),)",
    "LABELS": "staticmethod(lambda source: [('example.com/npu.count', str(len(source.devices)))])",
    "STATS": f"staticmethod(lambda context, inventory: (DeviceStats(address='{FIRST}', temperature=40.0),))",
    "LINKS": f"VendorLinks(min_gpus=2, read=lambda context, inventory: (({LINK},), True))",
    "DRIVER_API": "DriverApi(read=lambda context, inventory: '12.4', version=lambda inventory: '12.4',"
    " architecture=lambda model: '', brands=lambda model: ())",
    "BOOT_NODES": "BootNodes(drivers=('added',), modules=(), sources=(), folders=('/dev',),"
    " device_nodes='/dev/added[0-9]*', applies=lambda context: True,"
    " read=lambda context: NodesAtBoot(present=(), missing=(), wrong=()))",
    "REMEDIES": "DriverRemedies(modules=('added',), libraries=(), package_words=())",
}
RAISE = "(lambda *_: 1 / 0)"
# A function that raises, that ends the program, and that returns a value of a wrong type.
DEFECTS = (RAISE, "(lambda *_: exit(3))", "(lambda *_: 7)")


def health(**parts: str) -> str:
    """Return the code of a VendorHealth, in which PARTS replace the correct parts."""
    return f"VendorHealth({', '.join(f'{name}={code}' for name, code in {**HEALTH, **parts}.items())})"


def add(packages: Path, **members: str) -> None:
    """Install the vendor `added` with MEMBERS, whose values are their code."""
    lines = "".join(f"    {name} = {code}\n" for name, code in members.items())
    code = minimal(discover="return None").replace("    PCI_VENDORS", f"{lines}    PCI_VENDORS")
    vendor(packages, "added", IMPORTS + code)


def found() -> dict[str, Inventory]:
    """Return the inventories of the vendor `added` with two NPUs, and of NVIDIA with one GPU."""
    npus = (accelerator(index, address, device_class="npu") for index, address in enumerate((FIRST, SECOND)))
    return {
        "added": inventory("added", *npus),
        "nvidia": inventory("nvidia", accelerator(0, OTHER, model="NVIDIA H200", uuid="GPU-1")),
    }


def advertised() -> Any:
    return advertise(found(), (DEFAULT,), lambda _name: True, KubeletConfig())


def test_a_vendor_of_another_package_has_each_member(packages: Path) -> None:
    add(packages, HEALTH=health(), **MEMBERS)
    for member in (registry.health, registry.stats, registry.labels, registry.links, registry.driver_api):
        assert member("added") is not None
    assert registry.boot_nodes("added") is not None
    assert registry.remedies("added") is not None
    assert [row.name for row in registry.resource_names("added")] == ["example.com/added"]


def test_a_vendor_of_another_package_need_not_have_any_member(packages: Path) -> None:
    add(packages)
    for member in (registry.health, registry.stats, registry.labels, registry.links, registry.boot_nodes):
        assert member("added") is None
    assert registry.resource_names("added") == ()


@pytest.mark.parametrize(
    ("member", "code", "problem"),
    [
        ("RESOURCES", "7", "RESOURCES is not a list"),
        ("RESOURCES", "('example.com/npu',)", "RESOURCES[0] is not of the type ResourceNames"),
        ("RESOURCES", "(ResourceNames(device_class='npu', name=7),)", "RESOURCES[0].name is not text"),
        ("RESOURCES", MEMBERS["RESOURCES"].replace("example.com", "nvidia.com"), "of another vendor"),
        ("RESOURCES", MEMBERS["RESOURCES"].replace("example.com", "npu.intel.com"), "of another vendor"),
        ("HEALTH", "7", "HEALTH is not of the type VendorHealth"),
        ("HEALTH", health(check="7"), "HEALTH.check is not a function"),
        ("HEALTH", health(causes="('hot',)"), "HEALTH.causes[0] is not of the type CauseRule"),
        ("HEALTH", health(causes=f"({RULE.replace('gone', 'never')},)"), "cleared_by[0] is not one of"),
        ("STATS", "7", "STATS is not a function"),
        ("LABELS", "7", "LABELS is not a function"),
        ("LINKS", "7", "LINKS is not of the type VendorLinks"),
        ("DRIVER_API", "7", "DRIVER_API is not of the type DriverApi"),
        ("BOOT_NODES", MEMBERS["BOOT_NODES"].replace("'/dev/added[0-9]*'", "7"), "device_nodes is not text"),
        ("REMEDIES", "7", "REMEDIES is not of the type DriverRemedies"),
        ("STATS", "property(lambda self: 1 / 0)", "ZeroDivisionError"),
    ],
)
def test_an_invalid_member_makes_the_vendor_unusable_with_one_line(
    packages: Path, tmp_path: Path, member: str, code: str, problem: str
) -> None:
    add(packages, **{member: code})
    with pytest.raises(HostError) as caught:
        registry.load("added").discover(places(tmp_path))
    assert problem in caught.value.message
    assert "added" in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.kind == "vendor-defect"
    assert "added" in str(registry.problem_of("added"))


def test_a_vendor_that_is_not_installed_has_a_problem_and_no_members() -> None:
    assert registry.problem_of("unheard-of") == "no installed package supports the vendor"
    assert registry.health("unheard-of") is None
    assert registry.problem_of("nvidia") == ""


# Health.


def tracked(tmp_path: Path, **options: Any) -> tuple[HealthTracker, dict[str, Inventory]]:
    tracker = HealthTracker()
    kept = TrackerOptions(
        state_dir=str(tmp_path / "state"), boot="boot", vendors=("added", "nvidia"), **options
    )
    return tracker, tracker.observe(found(), lambda: places(tmp_path), kept)


def test_the_health_of_another_packages_devices_is_tracked(packages: Path, tmp_path: Path) -> None:
    add(packages, HEALTH=health())
    tracker, shown = tracked(tmp_path)
    first, second = shown["added"].accelerators
    assert [cause.cause for cause in first.causes] == ["added-hot"]
    assert (first.health, second.health) == ("unhealthy", "unknown")
    assert tracker.findings() == ()


@pytest.mark.parametrize("part", ["check", "parse_log", "parse_uevents", "probe"])
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_of_the_health_code_is_one_finding_and_affects_no_other_vendor(
    packages: Path, tmp_path: Path, part: str, defect: str
) -> None:
    add(packages, HEALTH=health(**{part: defect}))
    tracker, shown = tracked(tmp_path)
    tracker.take_in([LogRecord(sequence=1, at_s=0.5, text="text")], ())
    tracker.probed("added", tracker.probe("added"), 1.0)
    assert shown.keys() == {"added", "nvidia"}
    findings = [one for one in tracker.findings() if one.path == "added"]
    expected = 0 if part == "parse_uevents" else 1
    assert [one.rule for one in findings] == ["health-defect"] * expected
    assert [one for one in tracker.findings() if one not in findings] == []
    assert tracker.probe("nvidia").source == "probe"


def test_health_code_of_a_vendor_that_is_only_in_the_state_file_does_not_run(
    packages: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "was-here"
    add(packages, HEALTH=health(causes=f"Path({str(marker)!r}).touch() or ()"))
    tracked(tmp_path)[0].close()
    assert marker.exists()
    marker.unlink()
    registry.load.cache_clear()
    sys.modules.pop("cdigen_added")
    options = TrackerOptions(state_dir=str(tmp_path / "state"), boot="boot", vendors=("nvidia",))
    del (only := found())["added"]
    HealthTracker().observe(only, lambda: places(tmp_path), options)
    assert not marker.exists()


# Statistics.


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_of_the_statistics_is_a_problem_of_this_vendor(
    packages: Path, tmp_path: Path, defect: str
) -> None:
    add(packages, STATS=f"staticmethod({defect})")
    reader = StatsReader(lambda: places(tmp_path))
    reader.update({"added": found()["added"]})
    (result,) = reader.read(60.0)
    assert (result.vendor, result.devices) == ("added", ())
    assert "failed" in result.problem


def test_the_statistics_of_another_packages_devices_are_read(packages: Path, tmp_path: Path) -> None:
    add(packages, **MEMBERS)
    reader = StatsReader(lambda: places(tmp_path))
    reader.update({"added": found()["added"]})
    (result,) = reader.read(60.0)
    assert [(one.address, one.temperature) for one in result.devices] == [(FIRST, 40.0)]


# Resources and labels.


@pytest.mark.parametrize(
    "code",
    [f"left_out={defect}" for defect in DEFECTS]
    + [f"memory_gb={RAISE}", "memory_gb=lambda model: 'big'", f"profile_of={RAISE}"]
    + [f"claim_driver='example.com', claim_names={defect}" for defect in (RAISE, "lambda gpu, part: 7")],
)
def test_a_defect_of_the_resources_is_one_finding_and_affects_no_other_vendor(
    packages: Path, code: str
) -> None:
    row = MEMBERS["RESOURCES"].replace("name='example.com/added'", f"name='example.com/added', {code}")
    add(packages, RESOURCES=row)
    resources = advertised()
    assert [one.name for one in resources.resources] == ["nvidia.com/gpu"]
    assert [(one.rule, one.path) for one in resources.findings] == [("vendor-defect", "added")]


def test_another_packages_resources_have_the_names_of_the_vendor(packages: Path) -> None:
    add(packages, **MEMBERS)
    resources = advertised()
    assert {one.name: len(one.units) for one in resources.resources} == {
        "example.com/added": 2,
        "nvidia.com/gpu": 1,
    }
    labels, findings = node_labels(resources.resources, found(), running={})
    assert findings == ()
    assert dict(labels)["example.com/npu.count"] == "2"
    assert dict(labels)["nvidia.com/gpu.count"] == "1"


@pytest.mark.parametrize(
    "labels",
    [*DEFECTS, "(lambda source: [('nvidia.com/gpu.count', '7')])", "(lambda source: [('no label', '')])"],
)
def test_a_defect_of_the_labels_is_one_finding_and_affects_no_other_vendor(
    packages: Path, labels: str
) -> None:
    add(packages, **{**MEMBERS, "LABELS": f"staticmethod({labels})"})
    kept, findings = node_labels(advertised().resources, found(), running={})
    assert [(one.rule, one.path) for one in findings] == [("vendor-defect", "added")]
    assert dict(kept)["nvidia.com/gpu.count"] == "1"
    assert not any(name.startswith("example.com/") for name, _ in kept)


# Links, and the version of CUDA.


def test_links_of_another_packages_devices_are_added_and_kept(packages: Path, tmp_path: Path) -> None:
    add(packages, **MEMBERS)
    linked, findings = links.refresh_links({"added": found()["added"]}, lambda: places(tmp_path))
    assert findings == ()
    first, _ = linked["added"].accelerators
    assert [(link.peer, link.technology, link.count) for link in first.links] == [(SECOND, "addedlink", 2)]


@pytest.mark.parametrize("read", [*DEFECTS, f"lambda *_: (({LINK.replace('addedlink', 'A B')},), True)"])
def test_a_defect_of_the_links_is_one_finding(packages: Path, tmp_path: Path, read: str) -> None:
    add(packages, LINKS=f"VendorLinks(min_gpus=1, read={read})")
    linked, findings = links.refresh_links(found(), lambda: places(tmp_path))
    assert [(one.rule, one.path) for one in findings] == [("vendor-defect", "added")]
    assert linked == found()


@pytest.mark.parametrize("read", [*DEFECTS, "lambda *_: 'newest'"])
def test_a_defect_of_the_cuda_version_is_one_finding(packages: Path, tmp_path: Path, read: str) -> None:
    broken = MEMBERS["DRIVER_API"].replace("read=lambda context, inventory: '12.4'", f"read={read}")
    add(packages, DRIVER_API=broken.replace("version=lambda inventory: '12.4'", f"version={RAISE}"))
    only = {"added": found()["added"]}
    versions, findings = CudaVersions().refreshed(only, lambda: places(tmp_path))
    assert (versions, [(one.rule, one.path) for one in findings]) == (only, [("vendor-defect", "added")])
    assert cuda_of(only) == ""


def test_the_cuda_version_of_another_packages_driver_is_in_its_inventory(
    packages: Path, tmp_path: Path
) -> None:
    add(packages, **MEMBERS)
    versions, _ = CudaVersions().refreshed({"added": found()["added"]}, lambda: places(tmp_path))
    assert versions["added"].driver.cuda == "12.4"
    assert DRIVER.cuda is None
    assert cuda_of(found()) == "12.4"


# Time and size.


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return code that does not end before the test ends, with a deadline of one second for such code."""
    file = tmp_path / "hangs"
    file.touch()
    monkeypatch.setattr(plugin_values, "DEADLINE_S", 1.0)
    yield f"import os, time\n        while os.path.exists({str(file)!r}): time.sleep(0.01)"
    file.unlink()
    for thread in threading.enumerate():
        if thread.name == "vendor-package":
            thread.join()


def test_a_call_that_hangs_fails_only_this_vendor_and_its_later_calls_fail_at_once(
    packages: Path, tmp_path: Path, hanging: str
) -> None:
    vendor(packages, "added", minimal(discover=hanging))
    for problem in ("no result within 1 s", "an earlier call still runs"):
        _, failures = discovery.discover(("added", "amd"), places(tmp_path))
        text = f"the code for added (cdigen_added:VENDOR) failed: TimeoutError: {problem}"
        assert (failures["added"].message, failures["amd"].kind) == (text, "driver-not-loaded")
    (finding,) = discovery.diagnostics("added", places(tmp_path), None)
    assert "an earlier call still runs" in finding.message


def test_a_vendor_that_hangs_while_it_is_loaded_is_unusable(
    packages: Path, monkeypatch: pytest.MonkeyPatch, hanging: str
) -> None:
    monkeypatch.setattr(plugin_values, "LOAD_DEADLINE_S", 1.0)
    vendor(packages, "added", f"if True:\n        {hanging}")
    assert "cannot be loaded: TimeoutError: no result within 1 s" in registry.problem_of("added")


@pytest.mark.parametrize(
    "discover", ["return ' ' * (5 << 20)", "return [0] * (2 << 20)", "return __import__('itertools').count()"]
)
def test_a_result_that_is_too_large_fails_only_this_vendor(
    packages: Path, tmp_path: Path, discover: str
) -> None:
    vendor(packages, "added", minimal(discover=discover))
    _, failures = discovery.discover(("added", "amd"), places(tmp_path))
    assert "(cdigen_added:VENDOR) failed: InvalidValue: discover() is not" in failures["added"].message
    assert failures["amd"].kind == "driver-not-loaded"
