"""A vendor of another package is one like any other; whatever is wrong with its code costs no other vendor.

The package in examples/ is installed for real, into a folder of its own, and the real command uses it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.daemon.host import Host, daemon
from support.hosts.added_vendors import EXAMPLE, lay_npus, like_acme, vendor
from support.hosts.driver_files import link, put

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Done, Run

pytestmark = pytest.mark.usefixtures("real_nodes")

NPU = "acme.example/npu"
SPEC = "run/cdi/acme.example-npu.json"
NVIDIAS = "run/cdi/nvidia.com-gpu.json"
RAISE = "raise RuntimeError('broken\\n  in two lines')"


def names(root: Path, file: str = SPEC) -> list[str]:
    return [device["name"] for device in json.loads((root / file).read_text())["devices"]]


# The example.


def test_the_examples_own_test_passes(acme: Path, tmp_path: Path) -> None:
    pytest_ = (sys.executable, "-m", "pytest", "-q")
    done = subprocess.run(
        # With a folder of its own: in the usual one pytest first clears what earlier runs left.
        [*pytest_, "-p", "no:cacheprovider", f"--basetemp={tmp_path}/own", str(EXAMPLE / "test_acme.py")],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(acme),
            "PYTHONDONTWRITEBYTECODE": "1",
            # It needs pytest alone, and loading what else is here takes longer than the tests.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
    )
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


def test_inspect_shows_its_devices(cdigen_process: Run, mixed: Path, acme: Path) -> None:
    done = cdigen_process("inspect", "--root", mixed, "--vendor", "acme", PYTHONPATH=str(acme))
    assert done.code == 0
    assert done.out.startswith("acme: driver ")
    assert "0000:42:00.0" in done.out
    assert "/dev/accel/accel1" in done.out


def test_its_devices_have_places_which_it_need_not_read(cdigen_process: Run, mixed: Path, acme: Path) -> None:
    link(mixed / "sys/bus/pci/devices/0000:42:00.0", "../../../devices/pci0000:40/0000:42:00.0")
    put(mixed / "sys/devices/pci0000:40/0000:42:00.0/numa_node", b"1\n")
    done = cdigen_process("topology", "--root", mixed, "--vendor", "acme", "--json", PYTHONPATH=str(acme))
    found = {row["address"]: (row["pci_path"], row["numa_node"]) for row in done.json["devices"]}
    assert found["0000:42:00.0"] == (["pci0000:40"], 1)


def test_its_inventory_gives_the_same_spec_elsewhere(
    cdigen_process: Run, mixed: Path, acme: Path, tmp_path: Path
) -> None:
    found = cdigen_process("inspect", "--root", mixed, "--vendor", "acme", "--json", PYTHONPATH=str(acme))
    (tmp_path / "host.json").write_text(found.out)
    here = cdigen_process("generate", "--root", mixed, "--vendor", "acme", PYTHONPATH=str(acme))
    document = ("--inventory", tmp_path / "host.json", "--vendor", "acme")
    there = cdigen_process("generate", *document, PYTHONPATH=str(acme))
    assert (there.code, there.out) == (0, here.out)
    assert json.loads(here.out)["kind"] == NPU


def test_generate_writes_its_spec_beside_others_and_list_shows_its_devices(
    cdigen_process: Run, mixed: Path, acme: Path
) -> None:
    both = ("--vendor", "acme", "--vendor", "nvidia")
    done = cdigen_process("generate", "--root", mixed, *both, "--write", PYTHONPATH=str(acme))
    assert done.code == 0, done.err
    # The runtimes' names need no vendor's code.
    listed = cdigen_process("list", "--root", mixed, "--json").json
    assert sorted(row["name"] for row in listed if row["kind"] == NPU and row["usable"]) == sorted(
        names(mixed)
    )
    assert "nvidia.com/gpu" in {row["kind"] for row in listed}


def test_the_configuration_names_it_and_a_profile_its_devices(
    cdigen_process: Run, mixed: Path, acme: Path
) -> None:
    config = mixed / "etc/cdigen/config.yaml"
    config.parent.mkdir()
    config.write_text("vendors: [acme]\nprofiles: [{name: npus, class: npu, names: [index]}]\n")
    done = cdigen_process("generate", "--root", mixed, PYTHONPATH=str(acme))
    assert [device["name"] for device in done.json["devices"]] == ["0", "1", "all"]


def test_its_variable_asks_for_its_devices_where_the_configuration_names_it(
    cdigen_process: Run, mixed: Path, acme: Path
) -> None:
    config = mixed / "etc/cdigen/config.yaml"
    config.parent.mkdir()
    allow = "nri: {allow: [{namespaces: [ml]}]}\n"
    config.write_text(f"vendors: [nvidia, acme]\n{allow}")
    here = ("--root", mixed)
    assert cdigen_process("generate", *here, "--write", PYTHONPATH=str(acme)).code == 0

    def devices(*arguments: str) -> list[str]:
        asked = ("resolve", *here, "--namespace", "ml", "--json", *arguments)
        found: list[str] = cdigen_process(*asked, PYTHONPATH=str(acme)).json["devices"]
        return found

    both = ("--env", "ACME_VISIBLE_DEVICES=1", "--env", "NVIDIA_VISIBLE_DEVICES=0")
    assert devices(*both) == ["nvidia.com/gpu=0", f"{NPU}=1"]
    assert devices(*both, "--device-node", "/dev/accel/accel0") == ["nvidia.com/gpu=0"]
    config.write_text(f"vendors: [nvidia]\n{allow}")
    assert devices(*both) == ["nvidia.com/gpu=0"]


def test_doctor_looks_at_it_as_well(cdigen_process: Run, mixed: Path, acme: Path) -> None:
    (mixed / "dev/accel/accel0").unlink()
    done = cdigen_process("doctor", "--root", mixed, "--vendor", "acme", PYTHONPATH=str(acme))
    assert "Traceback" not in done.err
    assert "/dev/accel/accel0" in done.out


def test_the_daemon_keeps_its_specs_true(tmp_path: Path, acme: Path) -> None:
    host = Host(tmp_path / "host").make()
    lay_npus(host.root)
    host.configure("vendors: [nvidia, acme]\n")
    with daemon(host, PYTHONPATH=str(acme)) as running:
        running.sees(lambda: len(host.devices("acme.example-npu.json")) == 7)
        (host.root / "dev/accel/accel1").unlink()
        running.sees(lambda: host.devices("acme.example-npu.json") == {"0", "0000:41:00.0", "npu0", "all"})
        assert host.devices() == {"0", "1", "all"}


# Who is asked, and who is not.


def test_code_that_nobody_named_is_not_run(cdigen_process: Run, mixed: Path, guests: Path) -> None:
    vendor(guests, "nosy", f"open({str(guests / 'was-here')!r}, 'w')")
    for arguments in (("--write",), ("--vendor", "acme", "--write")):
        assert cdigen_process("generate", "--root", mixed, *arguments, PYTHONPATH=str(guests)).code == 0
    assert not (guests / "was-here").exists()


def test_a_package_cannot_take_the_name_of_a_vendor_in_the_tree(
    cdigen_process: Run, mixed: Path, guests: Path
) -> None:
    vendor(guests, "nvidia", RAISE)
    done = cdigen_process(
        "generate", "--root", mixed, "--vendor", "nvidia", "--write", PYTHONPATH=str(guests)
    )
    assert done.code == 0
    assert "0" in names(mixed, NVIDIAS)


@pytest.mark.parametrize("name", ["umbrella", "", "../acme", "Acme", "acme\n"])
def test_a_name_that_no_package_has_is_refused(
    cdigen_process: Run, mixed: Path, acme: Path, name: str
) -> None:
    config = mixed / "etc/cdigen/config.yaml"
    config.parent.mkdir()
    config.write_text(f"vendors: [{json.dumps(name)}]\n")
    assert cdigen_process("inspect", "--root", mixed, "--vendor", name, PYTHONPATH=str(acme)).failed(
        2, "--vendor"
    )
    assert cdigen_process("inspect", "--root", mixed, PYTHONPATH=str(acme)).failed(
        2, "config.yaml:1", "nvidia"
    )


def test_two_vendors_of_the_same_kinds_are_refused_together(
    cdigen_process: Run, mixed: Path, guests: Path
) -> None:
    vendor(
        guests,
        "twin",
        "from cdigen_acme import Acme\nclass Twin(Acme):\n    NAME = 'twin'\nVENDOR = Twin()\n",
    )
    both = ("--vendor", "acme", "--vendor", "twin")
    done = cdigen_process("generate", "--root", mixed, *both, "--write", PYTHONPATH=str(guests))
    assert done.failed(2, "acme and twin", "acme.example")
    assert not (mixed / "run/cdi").exists()
    assert cdigen_process("inspect", "--root", mixed, "--vendor", "twin", PYTHONPATH=str(guests)).code == 0


# Broken ones: the code of a module, or the body of a class that is Acme's otherwise, and what is said of it.

NO_VENDORS = {
    "not importable": ("import there_is_no_such_module", "No module named 'there_is_no_such_module'"),
    "raises at import": (RAISE, "RuntimeError: broken in two lines"),
    "ends the program": ("import sys; sys.exit(0)", "sys.exit(0)"),
    "no such name": ("OTHER = 1", "has no attribute 'VENDOR'"),
    "lacks nearly all": ("class V: NAME = 'guest'\nVENDOR = V()", "lacks CDI_VENDOR, NAMINGS,"),
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
    "options that are none": ("OPTIONS = ('fast',)", "OPTIONS"),
}
BAD_LOOKS = {
    "raises": (RAISE, "RuntimeError: broken in two lines"),
    "ends the program": ("raise SystemExit(0)", "sys.exit(0)"),
    "a text": ("return 'two NPUs'", "str, not Inventory"),
    "nothing": ("return None", "NoneType, not Inventory"),
    "numbers for devices": (
        "from cdigen.value import replace\nreturn replace(super().discover(context), accelerators=(1, 2))",
        "accelerators[0]",
    ),
    "another's inventory": (
        "from cdigen.value import replace\nreturn replace(super().discover(context), vendor='nvidia')",
        "vendor",
    ),
}
BAD_EDITS = {
    "raises": (RAISE, "RuntimeError: broken in two lines"),
    "a list": ("return [1]", "list, not a tuple"),
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
            f"the prefix {prefix!r} is not a folder of the vendor's own",
        )
        for prefix in ("/usr/lib", "/", "opt/acme", "/opt/acme/../../usr", "/opt/acme/")
    },
}


def method(signature: str, body: str) -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"def {signature}:\n{lines}"


def both(cdigen_process: Run, root: Path, guests: Path, *options: str) -> Done:
    """Write the specs of NVIDIA and of the guest."""
    vendors = ("--vendor", "guest", "--vendor", "nvidia")
    return cdigen_process("generate", "--root", root, *vendors, "--write", *options, PYTHONPATH=str(guests))


def assert_its_own_failure(cdigen_process: Run, root: Path, guests: Path, said: str) -> None:
    """Assert that the guest has no device, says so in one line, and that NVIDIA's are served."""
    done = both(cdigen_process, root, guests)
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    (line,) = [line for line in done.err.splitlines() if said in line]
    assert line.startswith("cdigen: error: ")
    assert "guest" in line
    assert "0" in names(root, NVIDIAS)
    assert not (root / "run/cdi/guest.example-npu.json").exists()


@pytest.mark.parametrize(
    "body", ["NAME = 'nvidia'", method("discover(self, context)", RAISE), "raise RuntimeError('broken')"]
)
def test_a_command_for_it_alone_or_for_all_of_several_ends_with_its_failure(
    cdigen_process: Run, mixed: Path, guests: Path, body: str
) -> None:
    like_acme(guests, "guest", body)
    alone = cdigen_process("inspect", "--root", mixed, "--vendor", "guest", PYTHONPATH=str(guests))
    assert alone.failed(3, "guest"), alone.err
    assert len(alone.err.splitlines()) == 1
    strict = both(cdigen_process, mixed, guests, "--strict")
    assert strict.failed(3, "guest")
    assert strict.err.splitlines()[-1] == alone.err.strip()


@pytest.mark.parametrize("how", NO_VENDORS)
def test_one_that_cannot_be_loaded_is_its_own_failure(
    cdigen_process: Run, mixed: Path, guests: Path, how: str
) -> None:
    code, said = NO_VENDORS[how]
    vendor(guests, "guest", code)
    assert_its_own_failure(cdigen_process, mixed, guests, said)


@pytest.mark.parametrize("how", ODD_VENDORS)
def test_one_that_is_no_vendor_is_its_own_failure(
    cdigen_process: Run, mixed: Path, guests: Path, how: str
) -> None:
    body, said = ODD_VENDORS[how]
    like_acme(guests, "guest", body)
    assert_its_own_failure(cdigen_process, mixed, guests, said)


@pytest.mark.parametrize("how", BAD_LOOKS)
def test_one_whose_look_fails_or_gives_nonsense_is_its_own_failure(
    cdigen_process: Run, mixed: Path, guests: Path, how: str
) -> None:
    body, said = BAD_LOOKS[how]
    like_acme(guests, "guest", method("discover(self, context)", body))
    assert_its_own_failure(cdigen_process, mixed, guests, said)


@pytest.mark.parametrize("how", BAD_EDITS)
def test_one_whose_edits_are_nonsense_is_refused_and_what_it_had_stays(
    cdigen_process: Run, mixed: Path, guests: Path, how: str
) -> None:
    like_acme(guests, "guest")
    assert both(cdigen_process, mixed, guests).code == 0
    body, said = BAD_EDITS[how]
    like_acme(guests, "guest", method("edits(self, inventory, profiles)", body))
    done = both(cdigen_process, mixed, guests, "--withdraw")
    assert done.failed(4, "guest", said), done.err
    assert names(mixed, "run/cdi/guest.example-npu.json")
    assert "0" in names(mixed, NVIDIAS)


def test_json_of_a_broken_one_is_one_document_with_its_finding(
    cdigen_process: Run, mixed: Path, guests: Path
) -> None:
    vendor(guests, "guest", RAISE)
    done = cdigen_process("inspect", "--root", mixed, "--vendor", "guest", "--json", PYTHONPATH=str(guests))
    assert done.code == 3
    assert "vendor-defect" in json.dumps(done.json)


# Broken ones in the daemon.


def status_of(running: Any, name: str) -> dict[str, Any]:
    return next(one for one in running.status["vendors"] if one["vendor"] == name)


# Vendor -> what breaks it. All are in one daemon.
BROKEN = {
    "looker": method("discover(self, context)", RAISE),
    "counter": method("discover(self, context)", "return 7"),
    "watcher": method("watches(self, context)", RAISE),
    "lister": method("watches(self, context)", "return ('/dev/accel',)"),
    "maker": method("missing_nodes(self, context)", RAISE),
    "thief": "CDI_VENDOR = 'nvidia.com'",
}


def test_the_daemon_serves_the_others(tmp_path: Path, guests: Path) -> None:
    host = Host(tmp_path / "host").make()
    lay_npus(host.root)
    for name, body in BROKEN.items():
        like_acme(guests, name, body)
    host.configure(f"vendors: [{', '.join(BROKEN)}, nvidia]\ncreate_nodes: true\n")
    with daemon(host, PYTHONPATH=str(guests)) as running:
        running.rests()
        host.remove_gpu(1)
        running.sees(lambda: host.devices() == {"0", "all"})
        assert status_of(running, "nvidia")["state"] == "ready"
        for name in ("looker", "counter", "thief"):
            assert name in status_of(running, name)["reason"]
        # What works of the others serves; of those that have the same devices, the first.
        assert len(host.devices("watcher.example-npu.json")) == 7
        for name in ("lister", "maker"):
            assert "is the node of watcher's NPU 0" in status_of(running, name)["reason"]
        assert running.stop()[0] == 0
        assert "Traceback" not in running.text


@pytest.mark.parametrize("name", ["lister", "maker"])
def test_the_daemon_serves_one_that_cannot_say_what_to_watch_or_make(
    tmp_path: Path, guests: Path, name: str
) -> None:
    host = Host(tmp_path / "host").make()
    lay_npus(host.root)
    like_acme(guests, name, BROKEN[name])
    host.configure(f"vendors: [{name}]\ncreate_nodes: true\n")
    with daemon(host, PYTHONPATH=str(guests)) as running:
        running.sees(lambda: len(host.devices(f"{name}.example-npu.json")) == 7)


def test_the_daemon_says_what_is_wrong_with_one_that_cannot_be_loaded(tmp_path: Path, guests: Path) -> None:
    host = Host(tmp_path / "host").make()
    vendor(guests, "guest", "import there_is_no_such_module")
    host.configure("vendors: [guest, nvidia]\n")
    with daemon(host, PYTHONPATH=str(guests)) as running:
        running.sees(lambda: host.devices() == {"0", "1", "all"})
        assert "there_is_no_such_module" in status_of(running, "guest")["reason"]


def test_the_daemon_keeps_the_specs_of_one_whose_edits_break(tmp_path: Path, guests: Path) -> None:
    """As an upgrade of its package would: the next start runs other code."""
    host = Host(tmp_path / "host").make()
    lay_npus(host.root)
    good = "return super().edits(inventory, profiles)"
    like_acme(guests, "guest", method("edits(self, inventory, profiles)", good))
    host.configure("vendors: [guest, nvidia]\n")
    with daemon(host, PYTHONPATH=str(guests)) as running:
        running.sees(lambda: host.devices("guest.example-npu.json"))
    file = guests / "cdigen_guest.py"
    file.write_text(file.read_text().replace(good, RAISE))
    with daemon(host, PYTHONPATH=str(guests)) as running:
        running.rests()
        host.remove_gpu(1)
        running.sees(lambda: host.devices() == {"0", "all"})
        assert len(host.devices("guest.example-npu.json")) == 7
