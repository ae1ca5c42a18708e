"""The doctor's checks of SELinux: each type of node has its own boolean in the policy."""

from pathlib import Path

import pytest
from support.doctor.broken_host import BrokenHost
from support.hosts import amd_tree, intel_tree

EVERY, XSERVER, DRI = (f"container_use_{name}" for name in ("devices", "xserver_devices", "dri_devices"))
# The booleans of container-selinux 2.250 with their defaults, of 2.231, and of 2.217.
NEWEST, MIDDLE, OLDEST = {EVERY: 0, XSERVER: 0, DRI: 1}, {EVERY: 0, DRI: 1}, {EVERY: 0}


def enforce(host: BrokenHost, booleans: dict[str, int]) -> BrokenHost:
    """Make SELinux enforcing on HOST, with BOOLEANS and with the labels of Fedora's policy."""
    host.put("sys/fs/selinux/enforce", "1")
    for name, value in booleans.items():
        host.put(f"sys/fs/selinux/booleans/{name}", f"{value} {value}")
    for pattern, type_ in (
        ("nvidia*", "xserver_misc_device_t"),
        ("dri/[cr]*", "dri_device_t"),
        ("kfd", "hsa_device_t"),
        ("accel/*", "device_t"),
    ):
        nodes = host.path("dev").glob(pattern)
        host.set_label(type_, *(str(node.relative_to(host.root)) for node in nodes if not node.is_dir()))
    return host


def other_host(tmp_path: Path, lay: object) -> BrokenHost:
    return BrokenHost(tmp_path / "host").make("podman", lay=lay)  # type: ignore[arg-type]


def test_without_enforcing_selinux_the_check_passes(host: BrokenHost) -> None:
    assert "disabled" in host.result("selinux-boolean")["detail"]
    host.put("sys/fs/selinux/enforce", "0")
    assert "permissive" in host.result("selinux-boolean")["detail"]


@pytest.mark.parametrize(
    ("booleans", "remedy"),
    [(NEWEST, XSERVER), (MIDDLE, EVERY), (OLDEST, EVERY)],
    ids=["2.250", "2.231", "2.217"],
)
def test_the_remedy_is_the_narrowest_boolean_of_the_policy(
    host: BrokenHost, booleans: dict[str, int], remedy: str
) -> None:
    row = enforce(host, booleans).diagnosis()
    assert (row["check"], row["severity"]) == ("selinux-boolean", "warning")
    assert row["detail"].startswith("SELinux denies rootless containers, and others with a user namespace,")
    assert "(xserver_misc_device_t)" in row["detail"]
    assert host.remedy_on_host(row) == f"setsebool -P {remedy}=1"
    host.put("etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n")
    row = host.result("selinux-boolean", "--user alice")
    assert (row["severity"], row["detail"][:24]) == ("error", "SELinux denies container")
    host.put(f"sys/fs/selinux/booleans/{remedy}", "1 1")
    host.doctor(wrong=False)


def test_the_boolean_of_every_device_is_sufficient(host: BrokenHost) -> None:
    enforce(host, NEWEST | {EVERY: 1}).doctor(wrong=False)


@pytest.mark.usefixtures("real_nodes")
def test_the_default_policy_permits_dri_nodes(tmp_path: Path) -> None:
    host = other_host(tmp_path, lambda root: intel_tree.lay(root, *intel_tree.arc_a770()))
    enforce(host, NEWEST)
    assert "permits containers" in host.result("selinux-boolean")["detail"]
    assert host.result("selinux-boolean")["ok"]
    host.put(f"sys/fs/selinux/booleans/{DRI}", "0 0")
    assert host.remedy_on_host(host.result("selinux-boolean")) == f"setsebool -P {DRI}=1"


@pytest.mark.usefixtures("real_nodes")
def test_nodes_without_a_type_of_their_own_need_the_boolean_of_every_device(tmp_path: Path) -> None:
    host = other_host(tmp_path, lambda root: intel_tree.lay(root, *intel_tree.gaudi_3(1)))
    row = enforce(host, NEWEST).diagnosis()
    assert "/dev/accel/accel0 (device_t)" in row["detail"]
    assert host.remedy_on_host(row) == f"setsebool -P {EVERY}=1"


@pytest.mark.usefixtures("real_nodes")
def test_a_node_that_containers_may_open_but_not_map_is_a_warning(tmp_path: Path) -> None:
    host = other_host(tmp_path, lambda root: amd_tree.write(root, amd_tree.mi210(1)))
    row = enforce(host, NEWEST).diagnosis()
    assert (row["check"], row["severity"]) == ("selinux-boolean", "warning")
    assert "/dev/kfd (hsa_device_t)" in row["detail"]
    assert "renderD128" not in row["detail"]
    host.put(f"sys/fs/selinux/booleans/{EVERY}", "1 1")
    host.doctor(wrong=False)


def test_a_node_with_the_label_of_container_files_needs_no_boolean(host: BrokenHost) -> None:
    enforce(host, NEWEST)
    nodes = host.path("dev").glob("nvidia*")
    host.set_label("container_file_t", *(f"dev/{node.name}" for node in nodes))
    host.doctor(wrong=False)


def test_without_labels_or_without_the_policy_nothing_is_wrong(host: BrokenHost) -> None:
    host.put("sys/fs/selinux/enforce", "1")
    assert "container-selinux is not installed" in host.result("selinux-boolean")["detail"]
    host.put(f"sys/fs/selinux/booleans/{EVERY}", "0 0")
    row = host.result("selinux-boolean")
    assert (row["ok"], row["checked"]) == (True, False)


@pytest.mark.parametrize(
    ("runtime", "file", "text", "is_needed"),
    [
        ("docker", "", "", False),
        ("docker", "usr/lib/systemd/system/docker.service",
         "[Service]\nExecStart=/usr/bin/dockerd --selinux-enabled\n", True),
        ("podman", "", "", True),
        ("podman", "etc/containers/containers.conf", "[containers]\nlabel = false\n", False),
        ("containerd", "", "", False),
        ("containerd", "etc/containerd/config.toml",
         'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\nenable_selinux = true\n', True),
        ("crio", "", "", True),
        ("crio", "etc/crio/crio.conf.d/10-selinux.conf", "[crio.runtime]\nselinux = false\n", False),
    ],
)  # fmt: skip
def test_selinux_is_checked_only_for_runtimes_that_set_labels(
    tmp_path_host: BrokenHost, *, runtime: str, file: str, text: str, is_needed: bool
) -> None:
    enforce(tmp_path_host, NEWEST)
    if file:
        tmp_path_host.put(file, text)
    row = tmp_path_host.result("selinux-boolean", f"--for {runtime}")
    assert row["ok"] != is_needed
    assert ("others with a user namespace" in row["detail"]) == is_needed
    assert row["severity"] == ("warning" if is_needed else "info")


def test_the_remedy_restores_labels_that_containers_may_not_read(host: BrokenHost) -> None:
    enforce(host, NEWEST | {XSERVER: 1})
    mount = host.document()["containerEdits"]["mounts"][0]["hostPath"]
    host.set_label("user_home_t", mount.lstrip("/"))
    row = host.diagnosis()
    assert row["check"] == "selinux-labels"
    assert "user_home_t" in row["detail"]
    assert host.remedy_on_host(row).startswith("restorecon -R /")
