"""A host whose GPUs of Intel's no driver of Intel's has: which, who has them, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.hosts.intel_tree import FLEX_170, Device, lay

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")

ADDRESSES = ("0000:4d:00.0", "0000:5d:00.0")


@pytest.mark.parametrize("options", [(), ("--vendor", "intel")])
def test_those_of_vfio_are_named_with_the_option_that_offers_them(
    cdigen: Run, tmp_path: Path, options: tuple[str, ...]
) -> None:
    lay(
        tmp_path,
        *(Device(address=each, device_id=FLEX_170, driver="vfio-pci", group=7) for each in ADDRESSES),
    )
    done = cdigen("generate", "--root", tmp_path, *options)
    assert done.failed(3, *ADDRESSES, "bound to vfio-pci", "vendor_options: {intel: {vfio: true}}"), done.err
    assert "force_probe" not in done.err


def test_one_without_a_driver_is_named_with_how_its_driver_takes_it(cdigen: Run, tmp_path: Path) -> None:
    lay(tmp_path, *(Device(address=each, device_id=FLEX_170) for each in ADDRESSES))
    done = cdigen("generate", "--root", tmp_path)
    assert done.failed(3, ADDRESSES[0], "bound to no driver", "(and 1 more)", "xe.force_probe=56c0"), done.err


def test_doctor_does_not_load_a_driver_for_what_another_was_given(cdigen: Run, tmp_path: Path) -> None:
    lay(tmp_path, Device(address=ADDRESSES[0], device_id=FLEX_170, driver="vfio-pci", group=7))
    done = cdigen("doctor", "--root", tmp_path)
    assert "modprobe" not in done.out
    assert done.out.count("bound to vfio-pci") == 1
    assert "vendor_options: {intel: {vfio: true}}" in done.out


@pytest.mark.parametrize("is_loaded", [False, True])
def test_doctor_loads_a_driver_that_is_not_loaded(cdigen: Run, tmp_path: Path, *, is_loaded: bool) -> None:
    lay(tmp_path, Device(address=ADDRESSES[0], device_id=FLEX_170))
    if is_loaded:
        (tmp_path / "sys/module/xe").mkdir(parents=True)
    done = cdigen("doctor", "--root", tmp_path)
    assert ("modprobe i915" in done.out) is not is_loaded
    assert ADDRESSES[0] in done.out


def test_a_host_that_has_others_gpus_does_not_hear_of_them(cdigen: Run, host: Path) -> None:
    lay(host, Device(address=ADDRESSES[0], device_id=FLEX_170, driver="vfio-pci", group=7))
    done = cdigen("generate", "--root", host)
    assert (done.code, "vfio" in done.err) == (0, False), done.err
