"""Options for a vendor of another package: device names, and the delivery of files and variables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.command.specs import configure
from support.hosts.added_vendors import like_acme, vendor

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")

SPEC = "run/cdi/acme.example-npu.json"


@pytest.mark.parametrize(
    ("vendors", "options"),
    [
        ("vendors: [acme]\nprofiles: [{name: npus, class: npu, names: [npu]}]\n", ()),
        ("", ("--vendor", "acme", "--naming", "npu")),
    ],
    ids=["profile", "option"],
)
def test_a_naming_that_a_vendor_of_another_package_has_is_accepted(
    with_acme: Run, mixed: Path, vendors: str, options: tuple[str, ...]
) -> None:
    configure(mixed, vendors or "{}\n")
    done = with_acme("generate", *options)
    assert done.code == 0, done.err
    assert [device["name"] for device in done.json["devices"]] == ["npu0", "npu1", "all"]


def test_a_naming_that_no_vendor_has_is_rejected(with_acme: Run, cdigen_process: Run, mixed: Path) -> None:
    done = with_acme("generate", "--vendor", "acme", "--naming", "davinci")
    assert done.failed(2, "davinci", "index", "pci")
    # Without the package, no vendor has the naming npu.
    assert cdigen_process("generate", "--root", mixed, "--naming", "npu").failed(2, "npu")
    configure(mixed, "vendors: [acme]\nprofiles: [{name: npus, class: npu, names: [davinci]}]\n")
    done = with_acme("generate")
    assert done.failed(2, "config.yaml:2", "davinci")


def test_an_unusable_vendor_does_not_make_the_configuration_invalid(
    with_guests: Run, mixed: Path, guests: Path
) -> None:
    vendor(guests, "guest", "import there_is_no_such_module")
    configure(
        mixed, "vendors: [nvidia, guest]\nprofiles: [{name: gpus, class: gpu, names: [index, davinci]}]\n"
    )
    done = with_guests("generate")
    assert (done.code, "there_is_no_such_module" in done.err) == (0, True)


LIBRARY = "opt/acme/lib/libacme_npu.so.1"
HOOK = "usr/bin/nvidia-cdi-hook"


@pytest.fixture
def with_files(mixed: Path) -> Path:
    """Return a host with Acme's library and NVIDIA's hook."""
    for path in (LIBRARY, HOOK):
        (mixed / path).parent.mkdir(parents=True, exist_ok=True)
        (mixed / path).write_bytes(b"\x7fELF")
        (mixed / path).chmod(0o755)
    return mixed


def edits_with(with_acme: Run, root: Path, *options: str) -> dict[str, Any]:
    """Write the spec with OPTIONS; return the common edits of its devices."""
    done = with_acme("generate", "--vendor", "acme", *options, "--write")
    assert done.code == 0, done.err
    edits: dict[str, Any] = json.loads((root / SPEC).read_text())["containerEdits"]
    return edits


def test_the_option_layout_applies_to_a_vendor_of_another_package(with_acme: Run, with_files: Path) -> None:
    files = edits_with(with_acme, with_files, "--layout", "files", "--hook", "none")
    assert {mount["hostPath"] for mount in files["mounts"]} == {f"/{LIBRARY}"}
    view = edits_with(with_acme, with_files, "--layout", "view", "--hook", "none")
    assert any("/views/" in mount["hostPath"] for mount in view["mounts"])


def test_the_option_hook_applies_to_a_vendor_of_another_package(with_acme: Run, with_files: Path) -> None:
    assert "hooks" not in edits_with(with_acme, with_files, "--hook", "none")
    hooks = edits_with(with_acme, with_files, "--hook", "nvidia")["hooks"]
    assert {hook["path"] for hook in hooks} == {f"/{HOOK}"}


# A vendor that adds no device `all`, and sets a variable in each device.
SETS = """\
def edits(self, inventory, profiles):
    from cdigen.value import replace
    (draft,) = super().edits(inventory, profiles)
    devices = tuple(device for device in draft.devices if device.name != "all")
    return (replace(draft, devices=devices),)
"""


def test_the_device_all_has_no_variable_whose_values_differ_between_devices(
    with_guests: Run, guests: Path
) -> None:
    like_acme(guests, "setter", SETS)
    done = with_guests("generate", "--vendor", "setter")
    by_name = {device["name"]: device["containerEdits"] for device in done.json["devices"]}
    assert by_name["1"]["env"] == ["ACME_VISIBLE_DEVICES=1"]
    assert "env" not in by_name["all"]
    assert len(by_name["all"]["deviceNodes"]) == 2
    assert "set different values of ACME_VISIBLE_DEVICES" in done.err


# A vendor with one device, and with a device `none` whose variable has another value.
SETS_NONE = """\
def edits(self, inventory, profiles):
    from cdigen.model.cdi import ContainerEdits, Device
    from cdigen.value import replace
    (draft,) = super().edits(inventory, profiles)
    none = Device(name="none", edits=ContainerEdits(env=("ACME_VISIBLE_DEVICES=void",)))
    return (replace(draft, devices=(draft.devices[0], none)),)
"""


def test_the_device_none_does_not_affect_the_variables_of_the_device_all(
    with_guests: Run, guests: Path
) -> None:
    like_acme(guests, "setter", SETS_NONE)
    done = with_guests("generate", "--vendor", "setter")
    by_name = {device["name"]: device["containerEdits"] for device in done.json["devices"]}
    assert list(by_name) == ["0", "none", "all"]
    assert by_name["all"]["env"] == by_name["0"]["env"] == ["ACME_VISIBLE_DEVICES=0"]
    assert "different values" not in done.err
