"""A vendor of another package works like a vendor in the tree. A defect does not affect other vendors.

The tests install the package in examples/ into a folder, and run the real command with this folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.command.specs import configure
from support.hosts.added_vendors import EXAMPLE, RAISE, like_acme, method, vendor
from support.hosts.driver_files import link, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command.fixtures import Done, Run

pytestmark = pytest.mark.usefixtures("real_nodes")

NPU = "acme.example/npu"
SPEC = "run/cdi/acme.example-npu.json"
NVIDIAS = "run/cdi/nvidia.com-gpu.json"
# The member of a vendor whose code for nodes fails.
BOOT_NODES = """\
from cdigen.vendors.base import BootNodes
BOOT_NODES = BootNodes(drivers=('acme_npu',), modules=(), sources=(), folders=('/dev',),
    device_nodes='/dev/accel/.+', applies=lambda context: 1 / 0, read=lambda context: None)
"""


def names(root: Path, file: str = SPEC) -> list[str]:
    return [device["name"] for device in json.loads((root / file).read_text())["devices"]]


# The example.


def test_the_tests_of_the_example_pass(acme: Path, tmp_path: Path) -> None:
    pytest_ = (sys.executable, "-m", "pytest", "-q")
    done = subprocess.run(
        # In its default folder, pytest removes the folders of earlier runs. This run has another folder.
        [*pytest_, "-p", "no:cacheprovider", f"--basetemp={tmp_path}/own", str(EXAMPLE / "test_acme.py")],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(acme),
            "PYTHONDONTWRITEBYTECODE": "1",
            # The tests need only pytest, and the import of other plugins takes longer than the tests.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
    )
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


def test_inspect_shows_the_devices_of_the_example(with_acme: Run) -> None:
    done = with_acme("inspect", "--vendor", "acme")
    assert done.code == 0
    assert done.out.startswith("acme: driver ")
    assert "0000:42:00.0" in done.out
    assert "/dev/accel/accel1" in done.out


def test_cdigen_adds_the_pci_path_and_the_numa_node_of_the_examples_devices(
    with_acme: Run, mixed: Path
) -> None:
    link(mixed / "sys/bus/pci/devices/0000:42:00.0", "../../../devices/pci0000:40/0000:42:00.0")
    put(mixed / "sys/devices/pci0000:40/0000:42:00.0/numa_node", b"1\n")
    done = with_acme("topology", "--vendor", "acme", "--json")
    found = {row["address"]: (row["pci_path"], row["numa_node"]) for row in done.json["devices"]}
    assert found["0000:42:00.0"] == (["pci0000:40"], 1)


def test_the_examples_inventory_gives_the_same_spec_on_another_host(
    with_acme: Run, cdigen_process: Run, acme: Path, tmp_path: Path
) -> None:
    found = with_acme("inspect", "--vendor", "acme", "--json")
    (tmp_path / "host.json").write_text(found.out)
    here = with_acme("generate", "--vendor", "acme")
    document = ("--inventory", tmp_path / "host.json", "--vendor", "acme")
    there = cdigen_process("generate", *document, PYTHONPATH=str(acme))
    assert (there.code, there.out) == (0, here.out)
    assert json.loads(here.out)["kind"] == NPU


def test_generate_writes_and_list_shows_the_specs_of_the_example_and_of_nvidia(
    with_acme: Run, cdigen_process: Run, mixed: Path
) -> None:
    both = ("--vendor", "acme", "--vendor", "nvidia")
    done = with_acme("generate", *both, "--write")
    assert done.code == 0, done.err
    # 'cdigen list' needs no code of the vendor.
    listed = cdigen_process("list", "--root", mixed, "--json").json
    assert sorted(row["name"] for row in listed if row["kind"] == NPU and row["usable"]) == sorted(
        names(mixed)
    )
    assert "nvidia.com/gpu" in {row["kind"] for row in listed}


def test_the_configuration_selects_the_example_and_a_profile_selects_its_device_names(
    with_acme: Run, mixed: Path
) -> None:
    configure(mixed, "vendors: [acme]\nprofiles: [{name: npus, class: npu, names: [index]}]\n")
    done = with_acme("generate")
    assert [device["name"] for device in done.json["devices"]] == ["0", "1", "all"]


def test_the_examples_variable_requests_devices_if_the_configuration_lists_the_vendor(
    with_acme: Run, mixed: Path
) -> None:
    allow = "nri: {allow: [{namespaces: [ml]}]}\n"
    configure(mixed, f"vendors: [nvidia, acme]\n{allow}")
    assert with_acme("generate", "--write").code == 0

    def devices(*arguments: str) -> list[str]:
        found: list[str] = with_acme("resolve", "--namespace", "ml", "--json", *arguments).json["devices"]
        return found

    both = ("--env", "ACME_VISIBLE_DEVICES=1", "--env", "NVIDIA_VISIBLE_DEVICES=0")
    assert devices(*both) == ["nvidia.com/gpu=0", f"{NPU}=1"]
    assert devices(*both, "--device-node", "/dev/accel/accel0") == ["nvidia.com/gpu=0"]
    configure(mixed, f"vendors: [nvidia]\n{allow}")
    assert devices(*both) == ["nvidia.com/gpu=0"]


def test_doctor_checks_the_nodes_of_the_example(with_acme: Run, mixed: Path) -> None:
    (mixed / "dev/accel/accel0").unlink()
    done = with_acme("doctor", "--vendor", "acme")
    assert "Traceback" not in done.err
    assert "/dev/accel/accel0" in done.out


def test_doctor_reports_a_defect_of_the_code_for_nodes(with_guests: Run, mixed: Path, guests: Path) -> None:
    like_acme(guests, "guest", method("missing_nodes(self, context)", RAISE))
    for number in range(2):
        (mixed / f"dev/accel/accel{number}").unlink()
    done = with_guests("doctor", "--vendor", "guest", "--vendor", "nvidia")
    assert "Traceback" not in done.err
    assert (
        done.out.count("the code for guest (cdigen_guest:VENDOR) failed: RuntimeError: broken in two lines")
        == 1
    )


def test_create_nodes_creates_the_nodes_of_other_vendors_if_a_vendor_is_broken(
    with_guests: Run, mixed: Path, guests: Path
) -> None:
    (mixed / "sys/module/acme_npu").mkdir(parents=True, exist_ok=True)
    like_acme(guests, "guest", BOOT_NODES)
    configure(mixed, "vendors: [guest, nvidia]\n")
    (mixed / "dev/nvidia0").unlink()
    done = with_guests("create-nodes")
    assert "Traceback" not in done.err
    assert "the code for guest (cdigen_guest:VENDOR) failed: ZeroDivisionError" in done.err
    assert (mixed / "dev/nvidia0").exists()


# The vendors whose code runs.


def test_code_of_a_vendor_that_is_not_selected_does_not_run(with_guests: Run, guests: Path) -> None:
    vendor(guests, "nosy", f"open({str(guests / 'was-here')!r}, 'w')")
    for arguments in (("--write",), ("--vendor", "acme", "--write")):
        assert with_guests("generate", *arguments).code == 0
    assert not (guests / "was-here").exists()


def test_a_package_cannot_replace_a_vendor_in_the_tree(with_guests: Run, mixed: Path, guests: Path) -> None:
    vendor(guests, "nvidia", RAISE)
    done = with_guests("generate", "--vendor", "nvidia", "--write")
    assert done.code == 0
    assert "0" in names(mixed, NVIDIAS)


@pytest.mark.parametrize("name", ["umbrella", "", "../acme", "Acme", "acme\n"])
def test_a_vendor_name_that_no_package_has_is_rejected(with_acme: Run, mixed: Path, name: str) -> None:
    configure(mixed, f"vendors: [{json.dumps(name)}]\n")
    assert with_acme("inspect", "--vendor", name).failed(2, "--vendor")
    assert with_acme("inspect").failed(2, "config.yaml:1", "nvidia")


def test_two_vendors_with_the_same_cdi_vendor_are_rejected(
    with_guests: Run, mixed: Path, guests: Path
) -> None:
    vendor(
        guests,
        "twin",
        "from cdigen_acme import Acme\nclass Twin(Acme):\n    NAME = 'twin'\nVENDOR = Twin()\n",
    )
    both = ("--vendor", "acme", "--vendor", "twin")
    done = with_guests("generate", *both, "--write")
    assert done.failed(2, "acme and twin", "acme.example")
    assert not (mixed / "run/cdi").exists()
    assert with_guests("inspect", "--vendor", "twin").code == 0


# Broken vendors: the code of a module, or the body of a subclass of Acme, and the expected message.

NO_VENDORS = {
    "not importable": ("import there_is_no_such_module", "No module named 'there_is_no_such_module'"),
    "raises at import": (RAISE, "RuntimeError: broken in two lines"),
    "ends the program": ("import sys; sys.exit(0)", "sys.exit(0)"),
    "no such name": ("OTHER = 1", "has no attribute 'VENDOR'"),
    "lacks nearly all": ("class V: NAME = 'guest'\nVENDOR = V()", "lacks ['CDI_VENDOR', 'MODULES'"),
    "no text at all": ("\0", "cannot be loaded"),
}
ODD_VENDORS = {
    "another's kinds": ("CDI_VENDOR = 'nvidia.com'", "'nvidia.com'"),
    "another's name": ("NAME = 'nvidia'", "'nvidia'"),
    "a path for a vendor": ("CDI_VENDOR = '../../etc/x'", "'../../etc/x'"),
    "a number for a vendor": ("CDI_VENDOR = 7", "CDI_VENDOR"),
    "a naming that is no word": ("NAMINGS = ('Colour of it',)", "'Colour of it'"),
    "no namings": ("NAMINGS = ()", "has no NAMINGS"),
    "one text for a tuple": ("NAMINGS = 'index'", "NAMINGS"),
    "options that are none": ("OPTIONS = ('fast',)", "OPTIONS[0] is not of the type VendorOption"),
}
BAD_DISCOVERIES = {
    "raises": (RAISE, "RuntimeError: broken in two lines"),
    "ends the program": ("raise SystemExit(0)", "sys.exit(0)"),
    "a text": ("return 'two NPUs'", "discover() is not of the type Inventory"),
    "nothing": ("return None", "discover() is not of the type Inventory"),
    "numbers for devices": (
        "from cdigen.value import replace\nreturn replace(super().discover(context), accelerators=(1, 2))",
        "accelerators[0]",
    ),
    "another's inventory": (
        "from cdigen.value import replace\nreturn replace(super().discover(context), vendor='nvidia')",
        "an inventory of the vendor 'nvidia'",
    ),
}
BAD_EDITS = {
    "raises": (RAISE, "RuntimeError: broken in two lines"),
    "a list": ("return [1]", "edits()[0] is not of the type Draft"),
    "another's kind": (
        """\
from cdigen.value import replace
return tuple(replace(one, kind='nvidia.com/gpu') for one in super().edits(inventory, profiles))""",
        "nvidia.com/gpu",
    ),
    **{
        f"the prefix {prefix}": (
            f"""\
from cdigen.model.cdi import Payload
from cdigen.value import replace
payload = Payload(vendor='guest', version='1', architecture='x86_64', files=(), prefix={prefix!r})
return tuple(replace(one, payload=payload) for one in super().edits(inventory, profiles))""",
            f"the prefix {prefix!r} is not a folder for one vendor only",
        )
        for prefix in ("/usr/lib", "/", "opt/acme", "/opt/acme/../../usr", "/opt/acme/")
    },
}


def both(with_guests: Run, *options: str) -> Done:
    """Write the specs of NVIDIA and of the vendor `guest`; return the result of the command."""
    return with_guests("generate", "--vendor", "guest", "--vendor", "nvidia", "--write", *options)


@pytest.mark.parametrize(
    "body", ["NAME = 'nvidia'", method("discover(self, context)", RAISE), "raise RuntimeError('broken')"]
)
def test_a_command_fails_if_no_vendor_is_usable_and_with_strict_if_a_vendor_is_unusable(
    with_guests: Run, guests: Path, body: str
) -> None:
    like_acme(guests, "guest", body)
    alone = with_guests("inspect", "--vendor", "guest")
    assert alone.failed(3, "guest"), alone.err
    assert len(alone.err.splitlines()) == 1
    strict = both(with_guests, "--strict")
    assert strict.failed(3, "guest")
    assert strict.err.splitlines()[-1] == alone.err.strip()


# The code of a module or the body of a class, the expected message, and the function that installs the code.
FAILURES = [
    *(pytest.param((*case, vendor), id=f"cannot be loaded, {how}") for how, case in NO_VENDORS.items()),
    *(pytest.param((*case, like_acme), id=f"no vendor, {how}") for how, case in ODD_VENDORS.items()),
    *(
        pytest.param(
            (method("discover(self, context)", body), message, like_acme), id=f"its discovery, {how}"
        )
        for how, (body, message) in BAD_DISCOVERIES.items()
    ),
]


@pytest.mark.parametrize("failure", FAILURES)
def test_an_unusable_vendor_has_no_spec_and_does_not_affect_nvidia(
    with_guests: Run, mixed: Path, guests: Path, failure: tuple[str, str, Callable[[Path, str, str], None]]
) -> None:
    code, message, put_vendor = failure
    put_vendor(guests, "guest", code)
    done = both(with_guests)
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    (line,) = [line for line in done.err.splitlines() if message in line]
    assert line.startswith("cdigen: error: ")
    assert "guest" in line
    assert "0" in names(mixed, NVIDIAS)
    assert not (mixed / "run/cdi/guest.example-npu.json").exists()


@pytest.mark.parametrize("how", BAD_EDITS)
def test_a_vendor_with_invalid_edits_is_rejected_and_its_old_spec_remains(
    with_guests: Run, mixed: Path, guests: Path, how: str
) -> None:
    like_acme(guests, "guest")
    assert both(with_guests).code == 0
    body, message = BAD_EDITS[how]
    like_acme(guests, "guest", method("edits(self, inventory, profiles)", body))
    done = both(with_guests, "--withdraw")
    assert done.failed(4, "guest", message), done.err
    assert names(mixed, "run/cdi/guest.example-npu.json")
    assert "0" in names(mixed, NVIDIAS)


def test_inspect_json_of_a_broken_vendor_is_one_document_with_a_finding(
    with_guests: Run, guests: Path
) -> None:
    vendor(guests, "guest", RAISE)
    done = with_guests("inspect", "--vendor", "guest", "--json")
    assert done.code == 3
    assert "vendor-defect" in json.dumps(done.json)
