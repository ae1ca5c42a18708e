"""On a host with Intel GPUs and no Intel driver, cdigen reports the GPUs, their drivers and the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.hosts.driver_files import put
from support.hosts.intel_tree import FLEX_170, RELEASE, Device, lay

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")

ADDRESSES = ("0000:4d:00.0", "0000:5d:00.0")


@pytest.mark.parametrize("options", [(), ("--vendor", "intel")])
def test_gpus_bound_to_vfio_are_reported_with_a_hint_about_the_option_vfio(
    cdigen: Run, tmp_path: Path, options: tuple[str, ...]
) -> None:
    lay(
        tmp_path,
        *(Device(address=each, device_id=FLEX_170, driver="vfio-pci", group=7) for each in ADDRESSES),
    )
    done = cdigen("generate", "--root", tmp_path, *options)
    assert done.failed(3, *ADDRESSES, "bound to vfio-pci", "vendor_options: {intel: {vfio: true}}"), done.err
    assert "force_probe" not in done.err


def test_a_gpu_without_a_driver_is_reported_with_a_hint_about_the_parameter_force_probe(
    cdigen: Run, tmp_path: Path
) -> None:
    lay(tmp_path, *(Device(address=each, device_id=FLEX_170) for each in ADDRESSES))
    done = cdigen("generate", "--root", tmp_path)
    assert done.failed(3, ADDRESSES[0], "bound to no driver", "(and 1 more)", "xe.force_probe=56c0"), done.err


def test_doctor_does_not_print_modprobe_for_a_gpu_that_is_bound_to_vfio(cdigen: Run, tmp_path: Path) -> None:
    lay(tmp_path, Device(address=ADDRESSES[0], device_id=FLEX_170, driver="vfio-pci", group=7))
    done = cdigen("doctor", "--root", tmp_path)
    assert "modprobe" not in done.out
    assert done.out.count("bound to vfio-pci") == 1
    assert "vendor_options: {intel: {vfio: true}}" in done.out


@pytest.mark.parametrize("is_loaded", [False, True])
def test_doctor_prints_modprobe_only_for_a_driver_that_is_not_loaded(
    cdigen: Run, tmp_path: Path, *, is_loaded: bool
) -> None:
    modalias = "pci:v00008086d000056C0sv00sd00bc03sc80i00"
    lay(tmp_path, Device(address=ADDRESSES[0], device_id=FLEX_170, entries={"modalias": modalias}))
    put(
        tmp_path / f"lib/modules/{RELEASE}/modules.alias",
        b"alias pci:v00008086d000056C0sv*sd*bc03sc*i* i915\n",
    )
    if is_loaded:
        (tmp_path / "sys/module/i915").mkdir(parents=True)
    done = cdigen("doctor", "--root", tmp_path)
    assert ("modprobe i915" in done.out) is not is_loaded
    assert ADDRESSES[0] in done.out


@pytest.mark.parametrize(("driver", "code"), [("xe", 3), ("intel_vpu", 0)])
def test_an_unbound_gpu_on_a_host_with_nvidia_is_an_error_only_if_its_driver_is_loaded(
    cdigen: Run, host: Path, driver: str, code: int
) -> None:
    lay(host, Device(address=ADDRESSES[0], device_id=FLEX_170))
    (host / "sys/bus/pci/drivers" / driver).mkdir(parents=True)
    done = cdigen("generate", "--root", host, "--strict")
    assert (done.code, ADDRESSES[0] in done.err) == (code, code == 3), done.err


def test_gpus_bound_to_vfio_are_not_reported_if_another_vendor_has_gpus(cdigen: Run, host: Path) -> None:
    lay(host, Device(address=ADDRESSES[0], device_id=FLEX_170, driver="vfio-pci", group=7))
    done = cdigen("generate", "--root", host)
    assert (done.code, "vfio" in done.err) == (0, False), done.err
