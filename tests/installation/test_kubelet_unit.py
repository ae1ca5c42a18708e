"""The unit of the kubelet's device plugins: what it may do, and what systemd says of it."""

import re
import sys
from pathlib import Path

import pytest
from support.abilities import cannot_run
from support.installation.installing import done, make
from support.installation.unit_files import ETC, complaints, security, settings, systemd_version
from support.paths import REPOSITORY

UNIT = ETC / "cdigen-kubelet.service"
LOCAL = ("INSTALL_DEPS=no", f"HOST_PYTHON={sys.executable}", f"HOOK_PYTHON={sys.executable}")
MOST_EXPOSED = 1.0
DOCUMENTATION = REPOSITORY / "docs/operations.md"
KUBELETS = ("kubelet", "k3s", "k3s-agent", "rke2-server", "rke2-agent", "k0scontroller", "k0sworker")


def named(section: str = "Service") -> dict[str, str]:
    return dict(settings(UNIT, section))


def documented() -> str:
    """Return the section of the documentation about the unit."""
    text = DOCUMENTATION.read_text()
    return text.partition("\n## The kubelet's device plugins\n")[2].partition("\n## ")[0]


def test_the_unit_is_exposed_as_little_as_was_promised(tmp_path: Path) -> None:
    assert security(UNIT, tmp_path)[0] <= MOST_EXPOSED


def test_every_exposure_has_its_documented_reason(tmp_path: Path) -> None:
    if systemd_version() != "systemd 252":
        cannot_run(f"the documentation has the table of systemd 252; this is {systemd_version()}")
    rows = re.findall(r"^\| `(\S+)` \| (0\.\d) \| \S", documented(), re.MULTILINE)
    level, left = security(UNIT, tmp_path)
    assert dict(rows) == left
    assert f"says {level}." in documented()


def test_the_drop_in_for_a_port_is_exposed_as_the_documentation_says(tmp_path: Path) -> None:
    level, _ = security(UNIT, tmp_path, "http-port")
    assert f"(with it {level})" in documented()


def test_the_drop_in_for_shared_memory_is_exposed_as_the_documentation_says(tmp_path: Path) -> None:
    level, _ = security(UNIT, tmp_path, "shared-memory")
    assert f"([sharing.md](sharing.md); with it {level})" in documented()


def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    assert complaints(UNIT, tmp_path) == []


def test_it_comes_before_every_kubelet_and_needs_nobody() -> None:
    rows = settings(UNIT, "Unit")
    before = {name for key, value in rows if key == "Before" for name in value.split()}
    assert {f"{name}.service" for name in KUBELETS} <= before
    assert [value for key, value in rows if key == "After"] == ["cdigen.service"]
    needs = {"Requires", "Wants", "Requisite", "BindsTo", "PartOf", "Upholds"}
    assert not needs & {key for key, _ in rows}


def test_it_is_never_given_up_but_for_what_no_restart_fixes() -> None:
    service = named()
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("always", "2")
    assert named("Unit")["StartLimitIntervalSec"] == "0"


def test_it_reaches_no_network_opens_no_device_and_has_no_capability() -> None:
    service = named()
    assert service["RestrictAddressFamilies"] == "AF_UNIX"
    assert (service["PrivateNetwork"], service["IPAddressDeny"]) == ("yes", "any")
    assert (service["PrivateDevices"], service["DevicePolicy"]) == ("yes", "closed")
    assert "DeviceAllow" not in service
    assert service["CapabilityBoundingSet"] == ""


def test_no_mount_is_of_a_folder_that_the_kubelet_makes() -> None:
    # Where that does not exist yet it is skipped, and it stays with a folder that was removed.
    mounts = ("ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "BindPaths", "StateDirectory")
    assert [row for row in settings(UNIT) if row[0] in mounts] == [("ReadWritePaths", "/var/lib")]


@pytest.mark.parametrize("prefix", ["/usr", "/usr/local"])
def test_it_is_not_in_use_after_an_installation(tmp_path: Path, prefix: str) -> None:
    done(make("install", tmp_path, f"PREFIX={prefix}", *LOCAL))
    placed = tmp_path / prefix.lstrip("/")
    text = (placed / "lib/systemd/system/cdigen-kubelet.service").read_text()
    assert f"ExecStart={prefix}/bin/cdigen kubelet --standby\n" in text
    assert list(tmp_path.rglob("*.wants")) == []
    examples = placed / "share/doc/cdigen/kubelet"
    assert sorted(path.name for path in examples.iterdir()) == [
        "http-port.conf.example",
        "kubelet-dir.conf.example",
        "labels.conf.example",
        "shared-memory.conf.example",
    ]
    drop_in = (examples / "kubelet-dir.conf.example").read_text()
    assert f"ExecStart=\nExecStart={prefix}/bin/cdigen kubelet --standby --kubelet-dir /var/snap/" in drop_in
