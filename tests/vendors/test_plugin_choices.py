"""What a vendor of another package has a say in: names, and how files and variables reach containers."""

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
def test_its_own_naming_is_a_naming(
    with_acme: Run, mixed: Path, vendors: str, options: tuple[str, ...]
) -> None:
    configure(mixed, vendors or "{}\n")
    done = with_acme("generate", *options)
    assert done.code == 0, done.err
    assert [device["name"] for device in done.json["devices"]] == ["npu0", "npu1", "all"]


def test_a_naming_of_nobody_is_refused(with_acme: Run, cdigen_process: Run, mixed: Path) -> None:
    done = with_acme("generate", "--vendor", "acme", "--naming", "davinci")
    assert done.failed(2, "davinci", "index", "pci")
    # Without the package's vendor, its naming is nobody's either.
    assert cdigen_process("generate", "--root", mixed, "--naming", "npu").failed(2, "npu")
    configure(mixed, "vendors: [acme]\nprofiles: [{name: npus, class: npu, names: [davinci]}]\n")
    said = with_acme("generate")
    assert said.failed(2, "config.yaml:2", "davinci")


def test_a_vendor_that_cannot_be_used_makes_no_configuration_wrong(
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
    """Return a host that has Acme's library, and NVIDIA's hook."""
    for path in (LIBRARY, HOOK):
        (mixed / path).parent.mkdir(parents=True, exist_ok=True)
        (mixed / path).write_bytes(b"\x7fELF")
        (mixed / path).chmod(0o755)
    return mixed


def edits_with(with_acme: Run, root: Path, *options: str) -> dict[str, Any]:
    """Write the spec with OPTIONS; returns what each of its devices brings along."""
    done = with_acme("generate", "--vendor", "acme", *options, "--write")
    assert done.code == 0, done.err
    edits: dict[str, Any] = json.loads((root / SPEC).read_text())["containerEdits"]
    return edits


def test_layout_reaches_it(with_acme: Run, with_files: Path) -> None:
    files = edits_with(with_acme, with_files, "--layout", "files", "--hook", "none")
    assert {mount["hostPath"] for mount in files["mounts"]} == {f"/{LIBRARY}"}
    view = edits_with(with_acme, with_files, "--layout", "view", "--hook", "none")
    assert any("/views/" in mount["hostPath"] for mount in view["mounts"])


def test_hook_reaches_it(with_acme: Run, with_files: Path) -> None:
    assert "hooks" not in edits_with(with_acme, with_files, "--hook", "none")
    hooks = edits_with(with_acme, with_files, "--hook", "nvidia")["hooks"]
    assert {hook["path"] for hook in hooks} == {f"/{HOOK}"}


# A vendor that has no device `all` of its own, and sets a variable in each of its devices.
SETS = """\
def edits(self, inventory, profiles):
    from cdigen.value import replace
    (draft,) = super().edits(inventory, profiles)
    devices = tuple(device for device in draft.devices if device.name != "all")
    return (replace(draft, devices=devices),)
"""


def test_all_sets_no_variable_to_what_one_device_alone_is(with_guests: Run, guests: Path) -> None:
    like_acme(guests, "setter", SETS)
    done = with_guests("generate", "--vendor", "setter")
    by_name = {device["name"]: device["containerEdits"] for device in done.json["devices"]}
    assert by_name["1"]["env"] == ["ACME_VISIBLE_DEVICES=1"]
    assert "env" not in by_name["all"]
    assert len(by_name["all"]["deviceNodes"]) == 2
    assert "set ACME_VISIBLE_DEVICES differently" in done.err


# The same with one device and the device `none`, which says that there is none.
SETS_NONE = """\
def edits(self, inventory, profiles):
    from cdigen.model.cdi import ContainerEdits, Device
    from cdigen.value import replace
    (draft,) = super().edits(inventory, profiles)
    none = Device(name="none", edits=ContainerEdits(env=("ACME_VISIBLE_DEVICES=void",)))
    return (replace(draft, devices=(draft.devices[0], none)),)
"""


def test_none_has_no_say_in_what_all_sets(with_guests: Run, guests: Path) -> None:
    like_acme(guests, "setter", SETS_NONE)
    done = with_guests("generate", "--vendor", "setter")
    by_name = {device["name"]: device["containerEdits"] for device in done.json["devices"]}
    assert list(by_name) == ["0", "none", "all"]
    assert by_name["all"]["env"] == by_name["0"]["env"] == ["ACME_VISIBLE_DEVICES=0"]
    assert "differently" not in done.err
