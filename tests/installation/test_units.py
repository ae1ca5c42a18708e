"""The units have no errors, no forbidden options, and only exposures that the documentation describes."""

import re
import subprocess
from pathlib import Path

import pytest
from support.abilities import cannot_run, tool
from support.installation.installing import LOCAL, done, make
from support.installation.unit_files import ETC, complaints, security, settings, systemd_version
from support.paths import REPOSITORY
from support.processes import captured, succeeded

from cdigen.cli.host import create_nodes
from cdigen.pipeline.driver import kernel_modules
from cdigen.vendors.nvidia.boot_nodes import BOOT_NODES
from cdigen.watch.kernel_log import SOCKET

UNIT = ETC / "cdigen.service"
ONCE = ETC / "cdigen-once.service"
KUBELET, NRI = ETC / "cdigen-kubelet.service", ETC / "cdigen-nri.service"
NODES, NODES_RULE = ETC / "cdigen-nodes.service", ETC / "60-cdigen-nodes.rules"
LOG_SOCKET, LOG_READER = ETC / "cdigen-kernel-log.socket", ETC / "cdigen-kernel-log@.service"
DROP_INS = sorted(path.name.removesuffix(".conf.example") for path in ETC.glob("cdigen.service.d/*"))
MOST_EXPOSED = {UNIT: 2.0, ONCE: 2.0, KUBELET: 1.0, NRI: 1.7, NODES: 2.2}
UNITS_PAGE = "docs/reference/files-and-units.md"
# The page and the section with the table of the remaining exposure.
HARDENING = {
    UNIT: (UNITS_PAGE, "cdigen.service"),
    KUBELET: (UNITS_PAGE, "cdigen-kubelet.service"),
    NRI: ("docs/reference/nri.md", "Hardening"),
    NODES: (UNITS_PAGE, "cdigen-nodes.service"),
}
KUBELETS = ("kubelet", "k3s", "k3s-agent", "rke2-server", "rke2-agent", "k0scontroller", "k0sworker")
RUNTIMES = ("containerd", "crio", "snap.microk8s.daemon-containerd", "snap.k8s.containerd")
SNAP_KUBELETS = ("snap.microk8s.daemon-kubelite", "snap.k8s.kubelet")
# Services that start containers, or that contain a runtime.
CONTAINER_SERVICES = (
    "docker", "snap.docker.dockerd", "podman-restart", "nomad", *RUNTIMES, *KUBELETS, *SNAP_KUBELETS,
)  # fmt: skip
# Options that mount their path. Hard links across such a mount fail. If the folder is removed and made again,
# the mount still has the old folder.
MOUNTING = (
    "BindPaths", "CacheDirectory", "ProtectSystem", "ReadWritePaths", "RuntimeDirectory", "StateDirectory",
)  # fmt: skip
# Options that can hide files from the daemon, with the values that hide none.
VISIBLE = {"ProcSubset": "all", "ProtectProc": "default", "PrivateTmp": "no"}
HIDING = ("PrivateDevices", "PrivateUsers", "RootDirectory", "DynamicUser", "User", "TemporaryFileSystem")
OPTIONS_OF_EACH_UNIT = (
    "Type",
    "ExecStart",
    "ExecReload",
    "SuccessExitStatus",
    "TimeoutStartSec",
    "TimeoutStopSec",
)
OPTIONS_OF_THE_DAEMON = (
    "WatchdogSec", "Restart", "RestartSec", "RestartPreventExitStatus", "OOMScoreAdjust", "TasksMax",
    "Environment",
)  # fmt: skip


def hardening(unit: Path) -> str:
    """Return the section of the documentation on the remaining exposure of a unit."""
    page, title = HARDENING[unit]
    return (REPOSITORY / page).read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("unit", MOST_EXPOSED, ids=lambda unit: unit.name)
def test_the_exposure_of_a_unit_is_below_its_limit(unit: Path, tmp_path: Path) -> None:
    level, _ = security(unit, tmp_path)
    assert level <= MOST_EXPOSED[unit]


@pytest.mark.parametrize("unit", HARDENING, ids=lambda unit: unit.name)
def test_every_remaining_exposure_has_a_documented_reason(unit: Path, tmp_path: Path) -> None:
    if systemd_version() != "systemd 252":
        cannot_run(f"the documentation has the table of systemd 252; this is {systemd_version()}")
    text = hardening(unit)
    rows = re.findall(r"^\| `(\S+)` \| (0\.\d) \| \S", text, re.MULTILINE)
    level, left = security(unit, tmp_path)
    # A vertical bar within a table cell is escaped.
    assert {name.replace("\\|", "|"): exposure for name, exposure in rows} == left
    assert f"rates it {level} (" in text


@pytest.mark.parametrize(
    ("unit", "drop_in"),
    [*((UNIT, name) for name in DROP_INS), (KUBELET, "http-port"), (KUBELET, "shared-memory")],
    ids=lambda each: each if isinstance(each, str) else each.name,
)
def test_the_documentation_has_the_exposure_with_each_drop_in(
    unit: Path, drop_in: str, tmp_path: Path
) -> None:
    level, _ = security(unit, tmp_path, drop_in)
    text = (REPOSITORY / UNITS_PAGE).read_text()
    table = text.partition(f"\n| drop-in of {unit.name} |")[2].partition("\n\n")[0]
    assert re.search(rf"^\| `{drop_in}\.conf` \| .* \| {level} \|$", table, re.MULTILINE)


def test_the_documentation_has_the_exposure_of_the_nri_plugin_with_a_port(tmp_path: Path) -> None:
    level, _ = security(NRI, tmp_path, "http-port")
    assert f"(with it {level})" in hardening(NRI)


@pytest.mark.parametrize("unit", MOST_EXPOSED, ids=lambda unit: unit.name)
def test_systemd_analyze_reports_no_error_in_a_unit(unit: Path, tmp_path: Path) -> None:
    assert complaints(unit, tmp_path) == []


@pytest.mark.parametrize("unit", [UNIT, ONCE], ids=lambda unit: unit.name)
def test_no_unit_mounts_a_folder_that_views_and_specs_need(unit: Path) -> None:
    named = dict(settings(unit))
    assert not {*MOUNTING} & {*named}
    read_only = [path.lstrip("-") for path in named["ReadOnlyPaths"].split()]
    needed = ("/", "/usr", "/opt", "/var", "/run", "/dev", "/proc", "/sys", "/tmp")
    assert not {path for path in read_only if path in needed or path.startswith(("/usr/", "/var/", "/run/"))}


@pytest.mark.parametrize("unit", [UNIT, ONCE], ids=lambda unit: unit.name)
def test_no_unit_hides_files_or_devices_from_cdigen(unit: Path) -> None:
    named = dict(settings(unit))
    assert {name: named.get(name) for name in VISIBLE} == VISIBLE
    assert not {*HIDING} & {*named}
    # Any other value would not permit a major number that the kernel assigns after the start.
    assert named["DeviceAllow"] == "char-* rw"


def test_the_units_cdigen_and_cdigen_once_have_the_same_hardening() -> None:
    own = {*OPTIONS_OF_EACH_UNIT, *OPTIONS_OF_THE_DAEMON}
    daemon, once = ([row for row in settings(unit) if row[0] not in own] for unit in (UNIT, ONCE))
    assert daemon == once


@pytest.mark.parametrize("unit", [UNIT, ONCE], ids=lambda unit: unit.name)
def test_the_units_start_before_container_services_and_wait_for_no_service(unit: Path) -> None:
    rows = settings(unit, "Unit")
    before = {name for key, value in rows if key == "Before" for name in value.split()}
    assert before == {f"{name}.service" for name in CONTAINER_SERVICES}
    needs = {"After", "Requires", "Wants", "Requisite", "BindsTo"}
    # systemd makes this socket at once, and the daemon also works without the socket.
    log = [("Wants", "cdigen-kernel-log.socket"), ("After", "cdigen-kernel-log.socket")]
    wanted = [*(log if unit == UNIT else ()), ("Wants", "cdigen-nodes.service")]
    assert sorted(row for row in rows if row[0] in needs) == sorted(wanted)
    assert "TimeoutStartSec" in dict(settings(unit))


def test_nodes_are_created_before_specs_and_containers() -> None:
    rows = settings(NODES, "Unit")
    before = {name for key, value in rows if key == "Before" for name in value.split()}
    assert before == {f"{name}.service" for name in ("cdigen", "cdigen-once", *CONTAINER_SERVICES)}
    assert ("ConditionVirtualization", "!container") in rows
    # The unit is inactive after its run, so udev can start it again.
    service = dict(settings(NODES))
    assert (service["Type"], "RemainAfterExit" in service) == ("oneshot", False)


def test_nodes_may_be_created_in_a_driver_container() -> None:
    assert dict(settings(NODES))["ReadWritePaths"] == "-/run/nvidia"


def test_the_timeout_of_the_nodes_unit_is_longer_than_all_its_steps() -> None:
    steps_s = create_nodes.DRIVER_DEADLINE_S + len(BOOT_NODES.modules) * kernel_modules.LOAD_DEADLINE_S
    assert int(dict(settings(NODES))["TimeoutStartSec"].removesuffix("s")) > steps_s


def test_the_nodes_unit_is_restarted_a_limited_number_of_times() -> None:
    service, unit = dict(settings(NODES)), dict(settings(NODES, "Unit"))
    assert service["Restart"] == "on-failure"
    assert "3" not in service["RestartPreventExitStatus"].split()
    each_s = create_nodes.DRIVER_DEADLINE_S + int(service["RestartSec"].removesuffix("s"))
    interval_s = 60 * int(unit["StartLimitIntervalSec"].removesuffix("min"))
    assert int(unit["StartLimitBurst"]) * each_s < interval_s


def test_udev_starts_the_unit_when_the_driver_is_loaded() -> None:
    (rule,) = [line for line in NODES_RULE.read_text().splitlines() if not line.startswith("#")]
    words = rule.split(", ")
    names = "|".join(BOOT_NODES.drivers)
    assert words[:3] == ['ACTION=="add"', 'SUBSYSTEM=="module"', f'KERNEL=="{names}"']
    assert words[3:] == ['TAG+="systemd"', f'ENV{{SYSTEMD_WANTS}}+="{NODES.name}"']


def test_only_the_unit_of_nodes_may_load_modules_and_create_nodes() -> None:
    for unit in ETC.glob("*.service"):
        named = dict(settings(unit))
        allowed = {*named["CapabilityBoundingSet"].split()}
        assert bool(allowed & {"CAP_SYS_MODULE", "CAP_MKNOD", "CAP_CHOWN"}) == (unit == NODES), unit.name
        assert (named.get("ProtectKernelModules") == "no") == (unit == NODES), unit.name
        assert "m" not in named.get("DeviceAllow", "").partition(" ")[2] or unit == NODES, unit.name
    assert dict(settings(NODES))["DeviceAllow"] == "char-* m"


@pytest.mark.parametrize(
    ("unit", "after", "before"),
    [
        (KUBELET, ("cdigen",), (*KUBELETS, *SNAP_KUBELETS)),
        (NRI, (*RUNTIMES, "cdigen"), ("kubelet", *SNAP_KUBELETS)),
    ],
    ids=["kubelet", "nri"],
)
def test_a_plugin_starts_after_the_daemon_and_before_the_kubelet_and_requires_no_unit(
    unit: Path, after: tuple[str, ...], before: tuple[str, ...]
) -> None:
    rows = settings(unit, "Unit")
    order = {
        order: {name for key, value in rows if key == order for name in value.split()}
        for order in ("After", "Before")
    }
    assert order["After"] == {f"{name}.service" for name in after}
    assert order["Before"] == {f"{name}.service" for name in before}
    needs = {"Requires", "Wants", "Requisite", "BindsTo", "PartOf", "Upholds"}
    assert not needs & {key for key, _ in rows}


@pytest.mark.parametrize("unit", [KUBELET, NRI], ids=lambda unit: unit.name)
def test_a_plugin_is_restarted_except_after_errors_that_no_restart_fixes(unit: Path) -> None:
    service = dict(settings(unit))
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("always", "2")
    assert dict(settings(unit, "Unit"))["StartLimitIntervalSec"] == "0"


@pytest.mark.parametrize("unit", [KUBELET, NRI], ids=lambda unit: unit.name)
def test_a_plugin_has_no_network_no_device_and_no_capability(unit: Path) -> None:
    service = dict(settings(unit))
    assert service["RestrictAddressFamilies"] == "AF_UNIX"
    assert (service["PrivateNetwork"], service["IPAddressDeny"]) == ("yes", "any")
    assert service["DevicePolicy"] == "closed"
    assert "DeviceAllow" not in service
    assert service["CapabilityBoundingSet"] == ""


def test_the_device_plugins_have_no_device_nodes() -> None:
    assert dict(settings(KUBELET))["PrivateDevices"] == "yes"


def test_the_nri_plugin_can_read_device_nodes_and_their_owners() -> None:
    # If one of these options were "yes", 'unsupported_cdi: raw' would find no node, or a wrong owner.
    service = dict(settings(NRI))
    assert (service["PrivateDevices"], service["PrivateUsers"]) == ("no", "no")


def test_the_nri_plugin_does_not_delete_the_lock_of_another_instance() -> None:
    service = dict(settings(NRI))
    assert service["ExecStart"].endswith(" nri --standby")
    assert service["RuntimeDirectoryPreserve"] == "yes"


def test_the_unit_of_the_device_plugins_mounts_no_folder_that_the_kubelet_makes() -> None:
    # If the folder does not exist, systemd ignores the option. If the folder is removed and made again, the
    # mount still has the old folder.
    mounts = ("ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "BindPaths", "StateDirectory")
    assert [row for row in settings(KUBELET) if row[0] in mounts] == [("ReadWritePaths", "/var/lib")]


@pytest.mark.parametrize("prefix", ["/usr", "/usr/local"])
def test_no_plugin_is_enabled_after_an_installation(tmp_path: Path, prefix: str) -> None:
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


def test_the_one_shot_unit_succeeds_on_a_host_without_a_gpu() -> None:
    assert dict(settings(ONCE))["SuccessExitStatus"] == "3"


def test_the_daemon_is_not_restarted_after_a_configuration_error() -> None:
    named = dict(settings(UNIT))
    assert (named["Restart"], named["RestartPreventExitStatus"]) == ("on-failure", "2")


@pytest.mark.parametrize("name", ["cdigen", "cdigen-nri", "cdigen-kubelet"])
def test_a_reload_checks_the_configuration_before_it_sends_the_signal(name: str) -> None:
    reloads = [value for key, value in settings(ETC / f"{name}.service") if key == "ExecReload"]
    # The first command that fails ends the reload, which reports its error (systemd.service(5), ExecReload=).
    assert reloads == ["/usr/bin/cdigen config check", "/bin/sh -c 'kill -HUP ${MAINPID}'"]


def test_openrc_sends_no_signal_if_the_configuration_is_invalid(tmp_path: Path) -> None:
    program = tmp_path / "cdigen"
    program.write_text('#!/bin/sh\n[ "$*" = "config check" ]\nexit 2\n')
    program.chmod(0o755)
    code = (
        "ebegin() { :; }; eend() { return $1; }; supervise-daemon() { echo signal; }; "
        f". {ETC}/cdigen.openrc; command={program}; reload"
    )
    done = captured([tool("bash"), "-c", code])
    assert (done.returncode, done.stdout) == (2, "")


def test_copying_a_driver_from_a_slow_disk_is_not_treated_as_a_hang() -> None:
    # The loop sends watchdog messages only between cycles; a driver has 1 GiB, a busy disk reads 1.2 MB/s.
    unit, minutes = dict(settings(UNIT))["WatchdogSec"], r"([0-9]+)min"
    match = re.fullmatch(minutes, unit)
    assert match is not None
    assert int(match[1]) * 60 * 1.2e6 > 1 << 30


@pytest.mark.parametrize("unit", [UNIT, ONCE], ids=lambda unit: unit.name)
def test_the_memory_limit_of_a_unit_is_above_all_measured_values(unit: Path) -> None:
    most = dict(settings(unit))["MemoryMax"]
    text = (REPOSITORY / UNITS_PAGE).read_text()
    (report,) = re.findall(r"^\*\*Memory\.\*\* `MemoryMax=(\S+)`.*?\n\n", text, re.MULTILINE | re.DOTALL)
    measured = [
        int(size) for size in re.findall(r"(\d+) MB", text.partition("**Memory.**")[2].partition("\n\n")[0])
    ]
    assert most == report == "1G"
    assert max(measured) * 1.5 < 1024


def test_openrc_stops_restarting_a_daemon_that_ends_repeatedly() -> None:
    message = succeeded(
        ["sh", "-c", f". {ETC}/cdigen.openrc; echo $respawn_delay $respawn_max $respawn_period"]
    )
    delay_s, most, period_s = map(int, message.split())
    assert most > 0
    # The period must be long enough for this number of restarts; a start takes seconds on a slow machine.
    assert most * (delay_s + 10) < period_s


def test_values_of_conf_d_override_those_of_the_init_script() -> None:
    # OpenRC reads /etc/conf.d/cdigen first, then the script.
    code = f"respawn_max=0; . {ETC}/cdigen.openrc; echo $respawn_max"
    assert succeeded(["sh", "-c", code]) == "0\n"


@pytest.mark.parametrize("name", ["cdigen.openrc", "install"])
def test_every_shell_script_is_valid(name: str) -> None:
    subprocess.run(["sh", "-n", ETC / name], check=True)


def test_the_documentation_has_the_exposure_of_the_kernel_log_reader(tmp_path: Path) -> None:
    level, left = security(LOG_READER, tmp_path)
    assert level < 1
    if systemd_version() != "systemd 252":
        cannot_run(f"the documentation has the rating of systemd 252; this is {systemd_version()}")
    text = (REPOSITORY / UNITS_PAGE).read_text()
    command = "systemd-analyze security --offline=true etc/cdigen-kernel-log@.service"
    before, _, after = text.partition(f"(`{command}`)")
    assert before.endswith(f"rates it {level} ")
    exposures = after.partition("\n\n")[0]
    assert {*re.findall(r"`(\w+=\S*)`", exposures)} == {*left}


def test_the_kernel_log_reader_can_open_only_the_kernel_log() -> None:
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


def test_the_kernel_log_socket_has_the_path_of_the_daemon_and_only_root_can_connect() -> None:
    named = dict(settings(LOG_SOCKET, "Socket"))
    assert (named["SocketMode"], named["Accept"]) == ("0600", "yes")
    assert not {"SocketUser", "SocketGroup"} & {*named}
    assert int(named["MaxConnections"]) < 10
    assert named["ListenStream"] == SOCKET


def test_the_daemon_cannot_read_the_kernel_log_itself() -> None:
    named = dict(settings(UNIT))
    assert (named["ProtectKernelLogs"], named["CapabilityBoundingSet"]) == ("yes", "")


def test_systemd_analyze_reports_no_error_in_the_units_of_the_kernel_log(tmp_path: Path) -> None:
    command = [tool("systemd-analyze", "systemd"), "verify", "--man=no"]
    for unit in (LOG_SOCKET, LOG_READER):
        copy = tmp_path / unit.name
        copy.write_text(unit.read_text().replace("/usr/libexec/cdigen/cdigen-kernel-log", "/bin/true"))
        command.append(str(copy).replace("@", "@one"))
    done = captured(command)
    assert [line for line in done.stderr.splitlines() if "kernel-log" in line] == []
