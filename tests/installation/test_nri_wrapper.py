"""The NRI plugin's unit, and the file by which a runtime starts the plugin itself."""

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.abilities import cannot_run, tool
from support.daemon.host import unshared
from support.installation.installing import done, make
from support.installation.unit_files import ETC, complaints, security, settings, systemd_version
from support.paths import REPOSITORY

UNIT = ETC / "cdigen-nri.service"
WRAPPER = ETC / "nri-plugin/20-cdigen"
LOCAL = ("INSTALL_DEPS=no", f"HOST_PYTHON={sys.executable}", f"HOOK_PYTHON={sys.executable}")
MOST_EXPOSED = 1.7
DOCUMENTATION = REPOSITORY / "docs/nri.md"
GIVEN = {"NRI_PLUGIN_IDX", "NRI_PLUGIN_NAME", "NRI_PLUGIN_SOCKET"}
RUNTIMES = ("containerd.service", "crio.service")


def named(section: str = "Service") -> dict[str, str]:
    return dict(settings(UNIT, section))


def test_the_unit_is_exposed_as_little_as_was_promised(tmp_path: Path) -> None:
    assert security(UNIT, tmp_path)[0] <= MOST_EXPOSED


def test_every_exposure_of_the_plugin_has_its_documented_reason(tmp_path: Path) -> None:
    if systemd_version() != "systemd 252":
        cannot_run(f"the documentation has the table of systemd 252; this is {systemd_version()}")
    text = DOCUMENTATION.read_text()
    rows = re.findall(r"^\| `(\S+)` \| (0\.\d) \| \S", text, re.MULTILINE)
    level, left = security(UNIT, tmp_path)
    assert dict(rows) == left
    assert f"says {level}." in text


def test_the_drop_in_for_a_port_is_exposed_as_the_documentation_says(tmp_path: Path) -> None:
    level, _ = security(UNIT, tmp_path, "http-port")
    assert f"with it {level}" in DOCUMENTATION.read_text()


def test_systemd_finds_nothing_wrong_with_the_plugins_unit(tmp_path: Path) -> None:
    assert complaints(UNIT, tmp_path) == []


def test_the_plugin_comes_after_the_runtimes_and_before_pods_and_needs_nobody() -> None:
    rows = settings(UNIT, "Unit")
    after = {name for key, value in rows if key == "After" for name in value.split()}
    before = {name for key, value in rows if key == "Before" for name in value.split()}
    assert {*RUNTIMES, "cdigen.service"} <= after
    assert "kubelet.service" in before
    needs = {"Requires", "Wants", "Requisite", "BindsTo", "PartOf", "Upholds"}
    assert not needs & {key for key, _ in rows}


def test_the_plugin_is_never_given_up_but_for_a_wrong_configuration() -> None:
    service = named()
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("always", "2")
    assert named("Unit")["StartLimitIntervalSec"] == "0"


def test_the_plugin_reaches_no_network_and_opens_no_device() -> None:
    service = named()
    assert service["RestrictAddressFamilies"] == "AF_UNIX"
    assert (service["PrivateNetwork"], service["IPAddressDeny"]) == ("yes", "any")
    assert service["DevicePolicy"] == "closed"
    assert "DeviceAllow" not in service
    assert service["CapabilityBoundingSet"] == ""


def test_the_plugin_leaves_its_place_to_nobody_by_deleting_the_lock_of_another() -> None:
    service = named()
    assert service["ExecStart"].endswith(" nri --standby")
    assert service["RuntimeDirectoryPreserve"] == "yes"


def test_the_plugin_sees_the_nodes_that_it_gives_and_whose_they_are() -> None:
    # With either, 'unsupported_cdi: raw' would find no node, or give it to nobody.
    service = named()
    assert (service["PrivateDevices"], service["PrivateUsers"]) == ("no", "no")


def test_neither_unit_nor_wrapper_is_in_use_after_an_installation(tmp_path: Path) -> None:
    done(make("install", tmp_path, "PREFIX=/usr/local", *LOCAL))
    text = (tmp_path / "usr/local/lib/systemd/system/cdigen-nri.service").read_text()
    assert "ExecStart=/usr/local/bin/cdigen nri --standby\n" in text
    assert list(tmp_path.rglob("*.wants")) == []
    assert not (tmp_path / "opt").exists()
    examples = tmp_path / "usr/local/share/doc/cdigen/nri-plugin"
    assert sorted(path.name for path in examples.iterdir()) == ["20-cdigen", "http-port.conf.example"]
    assert "exec /usr/local/bin/cdigen nri\n" in (examples / "20-cdigen").read_text()


@pytest.fixture
def wrapper(tmp_path: Path) -> Path:
    """Return the wrapper with a program in cdigen's place, which tells what it was given."""
    program = tmp_path / "cdigen"
    program.write_text(
        f"#!{sys.executable} -BIS\n"
        "import os, socket, sys\n"
        "given = socket.socket(fileno=int(os.environ['NRI_PLUGIN_SOCKET']))\n"
        "said = [*sys.argv[1:], *sorted(os.environ)]\n"
        "given.sendall(' '.join(said).encode())\n"
    )
    program.chmod(0o755)
    copy = tmp_path / "20-cdigen"
    copy.write_text(WRAPPER.read_text().replace("/usr/bin/cdigen", str(program)))
    copy.chmod(0o755)
    return copy


# As Go's ExtraFiles: the socket is number 3.
AT_THREE = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.execv(sys.argv[2], sys.argv[2:])"


def told(wrapper: Path, *before: str) -> list[str]:
    """Start WRAPPER by BEFORE as runtimes do, and return what the program in cdigen's place was given."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = theirs.fileno()
        subprocess.run(
            [*before, sys.executable, "-IBSc", AT_THREE, str(number), wrapper],
            env={"NRI_PLUGIN_NAME": "cdigen", "NRI_PLUGIN_IDX": "20", "NRI_PLUGIN_SOCKET": "3"},
            pass_fds=[number],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        theirs.close()
        ours.settimeout(60)
        return ours.recv(4096).decode().split()


def test_the_wrapper_passes_the_socket_on_without_any_environment(wrapper: Path) -> None:
    argument, *environment = told(wrapper)
    assert argument == "nri"
    assert {*environment} >= GIVEN
    assert "PATH" not in environment


@pytest.mark.usefixtures("own_mounts")
def test_where_there_is_a_journal_the_log_goes_there_and_the_socket_is_passed_on(
    wrapper: Path, tmp_path: Path
) -> None:
    tool("systemd-cat", "systemd")
    journal = tmp_path / "journal"
    journal.mkdir()
    script = 'mkdir -p /run/systemd/journal && mount --bind {0} /run/systemd/journal && exec "$@"'
    program = tmp_path / "cdigen"
    program.write_text(f"{program.read_text()}print('said', flush=True)\n")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{journal}/stdout")
        listener.listen()
        listener.settimeout(60)
        before = [*unshared("--mount"), "sh", "-c", script.format(shlex.quote(str(journal))), "sh"]
        assert told(wrapper, *before)[0] == "nri"
        connection, _ = listener.accept()
        with connection:
            received = connection.makefile("rb").read().decode()
    assert received.startswith("cdigen-nri\n")
    assert received.endswith("\nsaid\n")


def test_the_wrapper_is_a_program_that_every_shell_reads() -> None:
    assert os.access(WRAPPER, os.X_OK)
    subprocess.run(["sh", "-n", WRAPPER], check=True)
