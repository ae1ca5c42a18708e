"""The units: what systemd makes of them, what they must not do, and that the documentation tells it all."""

import re
import subprocess
from pathlib import Path

import pytest
from support.abilities import cannot_run, tool
from support.installation.unit_files import ETC, complaints, security, settings, systemd_version
from support.paths import REPOSITORY

from cdigen.watch.kernel_log import SOCKET

UNIT = ETC / "cdigen.service"
ONCE = ETC / "cdigen-once.service"
LOG_SOCKET, LOG_READER = ETC / "cdigen-kernel-log.socket", ETC / "cdigen-kernel-log@.service"
DROP_INS = sorted(path.name.removesuffix(".conf.example") for path in ETC.glob("cdigen.service.d/*"))
MOST_EXPOSED = 2.0
# What makes a mount of its own of what it names: hard links across it fail, and it outlives a folder that is
# removed and made again.
MOUNTING = (
    "BindPaths", "CacheDirectory", "ProtectSystem", "ReadWritePaths", "RuntimeDirectory", "StateDirectory",
)  # fmt: skip
# What would blind the daemon, and the value with which it does not.
SEEING = {"ProcSubset": "all", "ProtectProc": "default", "PrivateTmp": "no"}
BLINDING = ("PrivateDevices", "PrivateUsers", "RootDirectory", "DynamicUser", "User", "TemporaryFileSystem")
OF_ONE_KIND = ("Type", "ExecStart", "ExecReload", "SuccessExitStatus", "TimeoutStartSec", "TimeoutStopSec")
OF_THE_DAEMON = (
    "WatchdogSec", "Restart", "RestartSec", "RestartPreventExitStatus", "OOMScoreAdjust", "TasksMax",
    "Environment",
)  # fmt: skip


@pytest.mark.parametrize("unit", [UNIT, ONCE], ids=lambda unit: unit.name)
def test_a_unit_is_exposed_as_little_as_was_promised(unit: Path, tmp_path: Path) -> None:
    level, _ = security(unit, tmp_path)
    assert level <= MOST_EXPOSED


def test_every_exposure_that_is_left_has_its_documented_reason(tmp_path: Path) -> None:
    if systemd_version() != "systemd 252":
        cannot_run(f"the documentation has the table of systemd 252; this is {systemd_version()}")
    text = (REPOSITORY / "docs/operations.md").read_text()
    rows = re.findall(r"^\| `(\S+)` \| (0\.\d) \| \S", text, re.MULTILINE)
    level, left = security(UNIT, tmp_path)
    assert dict(rows) == left
    assert f"says {level}." in text


@pytest.mark.parametrize("drop_in", DROP_INS)
def test_a_drop_in_is_exposed_as_the_documentation_says(drop_in: str, tmp_path: Path) -> None:
    level, _ = security(UNIT, tmp_path, drop_in)
    text = (REPOSITORY / "docs/operations.md").read_text()
    assert re.search(rf"^\| `{drop_in}\.conf` \| .* \| {level} \|$", text, re.MULTILINE)


@pytest.mark.parametrize("unit", [UNIT, ONCE], ids=lambda unit: unit.name)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path, tmp_path: Path) -> None:
    assert complaints(unit, tmp_path) == []


@pytest.mark.parametrize("unit", [UNIT, ONCE], ids=lambda unit: unit.name)
def test_no_unit_makes_a_mount_of_what_views_and_specs_need(unit: Path) -> None:
    named = dict(settings(unit))
    assert not {*MOUNTING} & {*named}
    read_only = [path.lstrip("-") for path in named["ReadOnlyPaths"].split()]
    needed = ("/", "/usr", "/opt", "/var", "/run", "/dev", "/proc", "/sys", "/tmp")
    assert not {path for path in read_only if path in needed or path.startswith(("/usr/", "/var/", "/run/"))}


@pytest.mark.parametrize("unit", [UNIT, ONCE], ids=lambda unit: unit.name)
def test_no_unit_blinds_what_it_starts(unit: Path) -> None:
    named = dict(settings(unit))
    assert {name: named.get(name) for name in SEEING} == SEEING
    assert not {*BLINDING} & {*named}
    # By any other name, a major that is given after the start stays shut.
    assert named["DeviceAllow"] == "char-* rw"


def test_both_units_are_hardened_alike() -> None:
    own = {*OF_ONE_KIND, *OF_THE_DAEMON}
    daemon, once = ([row for row in settings(unit) if row[0] not in own] for unit in (UNIT, ONCE))
    assert daemon == once


@pytest.mark.parametrize("unit", [UNIT, ONCE], ids=lambda unit: unit.name)
def test_whoever_starts_containers_comes_later_and_nobody_waits_for_others(unit: Path) -> None:
    rows = settings(unit, "Unit")
    before = {name for key, value in rows if key == "Before" for name in value.split()}
    assert {
        f"{name}.service" for name in ("docker", "containerd", "crio", "kubelet", "podman-restart")
    } <= before
    needs = {"After", "Requires", "Wants", "Requisite", "BindsTo"}
    # A socket is there at once, and nothing follows where it is not.
    wanted = [("Wants", "cdigen-kernel-log.socket"), ("After", "cdigen-kernel-log.socket")]
    assert [row for row in rows if row[0] in needs] == (wanted if unit == UNIT else [])
    assert "TimeoutStartSec" in dict(settings(unit))


def test_a_host_without_a_gpu_is_no_failure_of_the_unit_that_runs_once() -> None:
    assert dict(settings(ONCE))["SuccessExitStatus"] == "3"


def test_a_wrong_configuration_is_not_tried_again_and_again() -> None:
    named = dict(settings(UNIT))
    assert (named["Restart"], named["RestartPreventExitStatus"]) == ("on-failure", "2")


@pytest.mark.parametrize("name", ["cdigen", "cdigen-nri", "cdigen-kubelet"])
def test_a_reload_asks_first_whether_the_configuration_is_right(name: str) -> None:
    reloads = [value for key, value in settings(ETC / f"{name}.service") if key == "ExecReload"]
    # The first that fails ends the reload, and is what it fails with (systemd.service(5), ExecReload=).
    assert reloads == ["/usr/bin/cdigen config check", "/bin/sh -c 'kill -HUP ${MAINPID}'"]


def test_openrc_sends_no_signal_for_a_configuration_that_is_wrong(tmp_path: Path) -> None:
    program = tmp_path / "cdigen"
    program.write_text('#!/bin/sh\n[ "$*" = "config check" ]\nexit 2\n')
    program.chmod(0o755)
    code = (
        "ebegin() { :; }; eend() { return $1; }; supervise-daemon() { echo signal; }; "
        f". {ETC}/cdigen.openrc; command={program}; reload"
    )
    done = subprocess.run([tool("bash"), "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")


def test_copying_a_driver_from_a_slow_disk_is_not_taken_for_a_hang() -> None:
    # The loop pings between looks only; a driver is a gibibyte, a disk that others keep busy gives 1.2 MB/s.
    unit, minutes = dict(settings(UNIT))["WatchdogSec"], r"([0-9]+)min"
    match = re.fullmatch(minutes, unit)
    assert match is not None
    assert int(match[1]) * 60 * 1.2e6 > 1 << 30


@pytest.mark.parametrize("unit", [UNIT, ONCE], ids=lambda unit: unit.name)
def test_the_memory_that_a_unit_may_use_is_above_all_that_was_measured(unit: Path) -> None:
    most = dict(settings(unit))["MemoryMax"]
    text = (REPOSITORY / "docs/operations.md").read_text()
    (told,) = re.findall(r"^\*\*Memory\.\*\* `MemoryMax=(\S+)`.*?\n\n", text, re.MULTILINE | re.DOTALL)
    measured = [
        int(size) for size in re.findall(r"(\d+) MB", text.partition("**Memory.**")[2].partition("\n\n")[0])
    ]
    assert most == told == "1G"
    assert max(measured) * 1.5 < 1024


def test_openrc_gives_up_what_ends_again_and_again() -> None:
    said = subprocess.run(
        ["sh", "-c", f". {ETC}/cdigen.openrc; echo $respawn_delay $respawn_max $respawn_period"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    delay_s, most, period_s = map(int, said.split())
    assert most > 0
    # Else there are never so many ends within one period; a start takes seconds on a slow machine.
    assert most * (delay_s + 10) < period_s


def test_conf_d_comes_before_the_init_script_and_decides() -> None:
    # OpenRC reads /etc/conf.d/cdigen first, then the script.
    code = f"respawn_max=0; . {ETC}/cdigen.openrc; echo $respawn_max"
    assert subprocess.run(["sh", "-c", code], check=True, capture_output=True, text=True).stdout == "0\n"


@pytest.mark.parametrize("name", ["cdigen.openrc", "install"])
def test_the_shell_reads_what_it_is_given(name: str) -> None:
    subprocess.run(["sh", "-n", ETC / name], check=True)


def test_the_reader_of_the_kernels_log_is_exposed_as_the_documentation_says(tmp_path: Path) -> None:
    level, left = security(LOG_READER, tmp_path)
    assert level < 1
    if systemd_version() != "systemd 252":
        cannot_run(f"the documentation has what systemd 252 says; this is {systemd_version()}")
    text = (REPOSITORY / "docs/operations.md").read_text().partition("etc/cdigen-kernel-log@.service`")[2]
    said, _, named = text.partition("\n\n")[0].partition("What remains:")
    assert f"says {level}." in said
    assert {*re.findall(r"`(\w+=\S*)`", named)} == {*left}


def test_the_reader_of_the_kernels_log_opens_that_and_nothing_else() -> None:
    rows = settings(LOG_READER)
    named = dict(rows)
    assert (named["CapabilityBoundingSet"], named["AmbientCapabilities"]) == ("CAP_SYSLOG", "CAP_SYSLOG")
    assert [value for name, value in rows if name == "DeviceAllow"] == ["/dev/kmsg r"]
    assert (named["DevicePolicy"], named["ProtectSystem"], named["DynamicUser"]) == (
        "closed",
        "strict",
        "yes",
    )
    assert (named["PrivateNetwork"], named["RestrictAddressFamilies"]) == ("yes", "none")
    assert not {"ReadWritePaths", "StateDirectory", "RuntimeDirectory", "LogsDirectory"} & {*named}


def test_only_root_reaches_the_kernels_log_and_where_the_daemon_looks_for_it() -> None:
    named = dict(settings(LOG_SOCKET, "Socket"))
    assert (named["SocketMode"], named["Accept"]) == ("0600", "yes")
    assert not {"SocketUser", "SocketGroup"} & {*named}
    assert int(named["MaxConnections"]) < 10
    assert named["ListenStream"] == SOCKET


def test_the_daemon_may_still_not_read_the_kernels_log_itself() -> None:
    named = dict(settings(UNIT))
    assert (named["ProtectKernelLogs"], named["CapabilityBoundingSet"]) == ("yes", "")


def test_systemd_finds_nothing_wrong_with_what_reads_the_kernels_log(tmp_path: Path) -> None:
    command = [tool("systemd-analyze", "systemd"), "verify", "--man=no"]
    for unit in (LOG_SOCKET, LOG_READER):
        copy = tmp_path / unit.name
        copy.write_text(unit.read_text().replace("/usr/libexec/cdigen/cdigen-kernel-log", "/bin/true"))
        command.append(str(copy).replace("@", "@one"))
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert [line for line in done.stderr.splitlines() if "kernel-log" in line] == []
