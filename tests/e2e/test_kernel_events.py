"""The real daemon handles events of the real kernel, and changes without an event."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.abilities import cannot_run
from support.containers.upgrade_host import GPUS, Upgraded, daemon, upgrade_host, wait_until
from support.hosts.mig import write_instance, write_minors
from support.hosts.nvidia_kernel import write

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def watched(upgrade_tree: Path, images: Path) -> Iterator[Upgraded]:
    """Return a running host whose daemon runs a cycle without an event only once per hour."""
    config = "daemon: {resync_s: 3600}\n"
    with upgrade_host(upgrade_tree, images=images, config=config) as upgraded, daemon(upgraded):
        upgraded.becomes("ready")
        yield upgraded


def reasons(upgraded: Upgraded) -> list[str]:
    return [f"{row['source']}: {row['reason']}" for row in upgraded.status()["last_cycle"]["reasons"]]


def device_names(upgraded: Upgraded) -> set[str]:
    spec = upgraded.spec()
    return {device["name"] for device in spec["devices"]} if spec is not None else set()


@pytest.mark.parametrize(
    ("pattern", "subsystem"), [("bus/pci/devices/*", "pci"), ("devices/virtual/misc/*", "misc")]
)
def test_a_kernel_event_causes_a_cycle_and_the_status_has_the_event_as_a_reason(
    watched: Upgraded, pattern: str, subsystem: str
) -> None:
    files = sorted(Path("/sys").glob(f"{pattern}/uevent"))
    if not files:
        cannot_run(f"this machine has no device of the subsystem {subsystem}")
    try:
        files[0].write_text("change")
    except OSError as error:
        cannot_run(f"no uevent can be sent ({error.strerror}): run as root, with a writable /sys")
    expected = f"uevents: {subsystem} change {files[0].parent.name}"
    what = f"a cycle because of {expected!r}"
    wait_until(lambda: expected in reasons(watched), what)


def test_an_added_mig_instance_is_in_the_spec_until_it_is_removed(watched: Upgraded) -> None:
    before = device_names(watched)
    write_minors(watched.root, len(GPUS))
    write_instance(watched.root, 0, 7)
    write_instance(watched.root, 0, 8)
    wait_until(lambda: {"0:gi7-ci0", "0:gi8-ci0"} <= device_names(watched), "MIG devices in the spec")
    for path in ("capabilities/gpu0/mig/gi8/ci0/access", "capabilities/gpu0/mig/gi8/access"):
        (watched.root / "proc/driver/nvidia" / path).unlink()
    for path in ("capabilities/gpu0/mig/gi8/ci0", "capabilities/gpu0/mig/gi8"):
        (watched.root / "proc/driver/nvidia" / path).rmdir()
    wait_until(lambda: "0:gi8-ci0" not in device_names(watched), "the spec without the removed MIG device")
    assert "0:gi7-ci0" in device_names(watched)
    assert before - device_names(watched) <= {"0", GPUS[0].uuid}


def test_an_unload_and_a_load_of_the_module_are_detected_without_an_event(watched: Upgraded) -> None:
    older = watched.versions[0]
    watched.unload_module()
    wait_until(lambda: watched.spec() is None, "the spec is withdrawn")
    write(watched.root / "proc/driver/nvidia/version", "")
    watched.load_module(older)
    wait_until(lambda: watched.served() == {older}, "the spec has the driver's version")
