"""The units: what systemd makes of them, what they must not do, and that the documentation tells it all."""

import re
import subprocess
from pathlib import Path

import pytest
from support.abilities import cannot_run, tool
from support.installation.installing import LOCAL, done, make
from support.installation.unit_files import ETC, complaints, security, settings, systemd_version
from support.paths import REPOSITORY
from support.processes import captured, succeeded

from cdigen.watch.kernel_log import SOCKET

UNIT = ETC / "cdigen.service"
ONCE = ETC / "cdigen-once.service"
KUBELET, NRI = ETC / "cdigen-kubelet.service", ETC / "cdigen-nri.service"
LOG_SOCKET, LOG_READER = ETC / "cdigen-kernel-log.socket", ETC / "cdigen-kernel-log@.service"
DROP_INS = sorted(path.name.removesuffix(".conf.example") for path in ETC.glob("cdigen.service.d/*"))
MOST_EXPOSED = {UNIT: 2.0, ONCE: 2.0, KUBELET: 1.0, NRI: 1.7}
# The page and the section that has the table of what is left.
HARDENING = {
    UNIT: ("docs/operations.md", "Hardening"),
    KUBELET: ("docs/operations.md", "The kubelet's device plugins"),
    NRI: ("docs/nri.md", "Hardening"),
}
KUBELETS = ("kubelet", "k3s", "k3s-agent", "rke2-server", "rke2-agent", "k0scontroller", "k0sworker")
RUNTIMES = ("containerd", "crio")
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


def hardening(unit: Path) -> str:
    """Return the section of the documentation about what is left of a unit's exposure."""
    page, title = HARDENING[unit]
    return (REPOSITORY / page).read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("unit", MOST_EXPOSED, ids=lambda unit: unit.name)
def test_a_unit_is_exposed_as_little_as_was_promised(unit: Path, tmp_path: Path) -> None:
    level, _ = security(unit, tmp_path)
    assert level <= MOST_EXPOSED[unit]


@pytest.mark.parametrize("unit", HARDENING, ids=lambda unit: unit.name)
def test_every_exposure_that_is_left_has_its_documented_reason(unit: Path, tmp_path: Path) -> None:
    if systemd_version() != "systemd 252":
        cannot_run(f"the documentation has the table of systemd 252; this is {systemd_version()}")
    text = hardening(unit)
    rows = re.findall(r"^\| `(\S+)` \| (0\.\d) \| \S", text, re.MULTILINE)
    level, left = security(unit, tmp_path)
    assert dict(rows) == left
    assert f"says {level}." in text


@pytest.mark.parametrize("drop_in", DROP_INS)
def test_a_drop_in_is_exposed_as_the_documentation_says(drop_in: str, tmp_path: Path) -> None:
    level, _ = security(UNIT, tmp_path, drop_in)
    text = (REPOSITORY / "docs/operations.md").read_text()
    assert re.search(rf"^\| `{drop_in}\.conf` \| .* \| {level} \|$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("unit", "drop_in", "words"),
    [
        (KUBELET, "http-port", "(with it {})"),
        (KUBELET, "shared-memory", "([sharing.md](sharing.md); with it {})"),
        (NRI, "http-port", "with it {}"),
    ],
    ids=["kubelet, http-port", "kubelet, shared-memory", "nri, http-port"],
)
def test_a_plugins_drop_in_is_exposed_as_the_documentation_says(
    unit: Path, drop_in: str, words: str, tmp_path: Path
) -> None:
    level, _ = security(unit, tmp_path, drop_in)
    assert words.format(level) in hardening(unit)


@pytest.mark.parametrize("unit", MOST_EXPOSED, ids=lambda unit: unit.name)
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


@pytest.mark.parametrize(
    ("unit", "after", "before"),
    [(KUBELET, ("cdigen",), KUBELETS), (NRI, (*RUNTIMES, "cdigen"), ("kubelet",))],
    ids=["kubelet", "nri"],
)
def test_a_plugin_comes_before_pods_and_after_runtimes_and_needs_nobody(
    unit: Path, after: tuple[str, ...], before: tuple[str, ...]
) -> None:
    rows = settings(unit, "Unit")
    order = {
        order: {name for key, value in rows if key == order for name in value.split()}
        for order in ("After", "Before")
    }
    assert order["After"] == {f"{name}.service" for name in after}
    assert {f"{name}.service" for name in before} <= order["Before"]
    needs = {"Requires", "Wants", "Requisite", "BindsTo", "PartOf", "Upholds"}
    assert not needs & {key for key, _ in rows}


@pytest.mark.parametrize("unit", [KUBELET, NRI], ids=lambda unit: unit.name)
def test_a_plugin_is_never_given_up_but_for_what_no_restart_fixes(unit: Path) -> None:
    service = dict(settings(unit))
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("always", "2")
    assert dict(settings(unit, "Unit"))["StartLimitIntervalSec"] == "0"


@pytest.mark.parametrize("unit", [KUBELET, NRI], ids=lambda unit: unit.name)
def test_a_plugin_reaches_no_network_opens_no_device_and_has_no_capability(unit: Path) -> None:
    service = dict(settings(unit))
    assert service["RestrictAddressFamilies"] == "AF_UNIX"
    assert (service["PrivateNetwork"], service["IPAddressDeny"]) == ("yes", "any")
    assert service["DevicePolicy"] == "closed"
    assert "DeviceAllow" not in service
    assert service["CapabilityBoundingSet"] == ""


def test_the_kubelets_plugin_sees_no_node_in_dev() -> None:
    assert dict(settings(KUBELET))["PrivateDevices"] == "yes"


def test_the_nri_plugin_sees_the_nodes_that_it_gives_and_whose_they_are() -> None:
    # With either, 'unsupported_cdi: raw' would find no node, or give it to nobody.
    service = dict(settings(NRI))
    assert (service["PrivateDevices"], service["PrivateUsers"]) == ("no", "no")


def test_the_nri_plugin_leaves_its_place_to_nobody_by_deleting_the_lock_of_another() -> None:
    service = dict(settings(NRI))
    assert service["ExecStart"].endswith(" nri --standby")
    assert service["RuntimeDirectoryPreserve"] == "yes"


def test_no_mount_of_the_kubelets_plugin_is_of_a_folder_that_the_kubelet_makes() -> None:
    # Where that does not exist yet it is skipped, and it stays with a folder that was removed.
    mounts = ("ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "BindPaths", "StateDirectory")
    assert [row for row in settings(KUBELET) if row[0] in mounts] == [("ReadWritePaths", "/var/lib")]


@pytest.mark.parametrize("prefix", ["/usr", "/usr/local"])
def test_no_plugin_is_in_use_after_an_installation(tmp_path: Path, prefix: str) -> None:
    done(make("install", tmp_path, f"PREFIX={prefix}", *LOCAL))
    placed = tmp_path / prefix.lstrip("/")
    units, examples = placed / "lib/systemd/system", placed / "share/doc/cdigen"
    for unit, name in ((KUBELET, "kubelet"), (NRI, "nri")):
        assert f"ExecStart={prefix}/bin/cdigen {name} --standby\n" in (units / unit.name).read_text()
    assert list(tmp_path.rglob("*.wants")) == []
    assert not (tmp_path / "opt").exists()
    assert sorted(path.name for path in (examples / "kubelet").iterdir()) == [
        "http-port.conf.example",
        "kubelet-dir.conf.example",
        "labels.conf.example",
        "shared-memory.conf.example",
    ]
    drop_in = (examples / "kubelet/kubelet-dir.conf.example").read_text()
    assert f"ExecStart=\nExecStart={prefix}/bin/cdigen kubelet --standby --kubelet-dir /var/snap/" in drop_in
    wrapper = examples / "nri-plugin/20-cdigen"
    assert sorted(path.name for path in wrapper.parent.iterdir()) == ["20-cdigen", "http-port.conf.example"]
    assert f"exec {prefix}/bin/cdigen nri\n" in wrapper.read_text()


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
    done = captured([tool("bash"), "-c", code])
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
    said = succeeded(["sh", "-c", f". {ETC}/cdigen.openrc; echo $respawn_delay $respawn_max $respawn_period"])
    delay_s, most, period_s = map(int, said.split())
    assert most > 0
    # Else there are never so many ends within one period; a start takes seconds on a slow machine.
    assert most * (delay_s + 10) < period_s


def test_conf_d_comes_before_the_init_script_and_decides() -> None:
    # OpenRC reads /etc/conf.d/cdigen first, then the script.
    code = f"respawn_max=0; . {ETC}/cdigen.openrc; echo $respawn_max"
    assert succeeded(["sh", "-c", code]) == "0\n"


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
    done = captured(command)
    assert [line for line in done.stderr.splitlines() if "kernel-log" in line] == []
