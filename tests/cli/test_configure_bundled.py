"""``cdigen configure containerd`` on hosts whose Kubernetes distribution contains containerd."""

import tomllib
from pathlib import Path

import pytest
from support.command.fixtures import Run

K3S = "/var/lib/rancher/k3s/agent/etc/containerd"
RKE2 = "/var/lib/rancher/rke2/agent/etc/containerd"
K0S, MICROK8S = "/etc/k0s/containerd.toml", "/var/snap/microk8s/current/args/containerd-template.toml"
NEW, OLD = "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"
DIRS = ["/etc/cdi", "/var/run/cdi"]
# The parts of the files that the distributions write, with the values that matter here.
OF_RANCHER = 'version = 3\nimports = ["{}/config-v3.toml.d/*.toml"]\n[plugins."{}"]\nenable_selinux = false\n'
OF_K0S = '# k0s_managed=true\nversion = 3\nimports = ["/etc/k0s/containerd.d/*.toml"]\n'
OF_OLD_K0S = '# k0s_managed=true\nversion = 2\nimports = ["/run/k0s/containerd-cri.toml"]\n'
OLD_CRI = (
    f'version = 2\n[plugins."{OLD}"]\nenable_cdi = false\ncdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n'
)
TEMPLATE = f'version = 2\n[plugins."{OLD}".containerd]\nsnapshotter = "${{SNAPSHOTTER}}"\n'
# Unit, files, the changed file, its name of the CRI plugin, and the restarted unit.
HOSTS = {
    "k3s": (
        "k3s.service",
        {f"{K3S}/config.toml": OF_RANCHER.format(K3S, NEW)},
        f"{K3S}/config-v3.toml.d/99-cdigen.toml",
        NEW,
        "k3s",
    ),
    "RKE2": (
        "rke2-agent.service",
        {f"{RKE2}/config.toml": OF_RANCHER.format(RKE2, NEW)},
        f"{RKE2}/config-v3.toml.d/99-cdigen.toml",
        NEW,
        "rke2-agent",
    ),
    "k0s": ("k0sworker.service", {K0S: OF_K0S}, "/etc/k0s/containerd.d/99-cdigen.toml", NEW, "k0sworker"),
    "k0s before 1.36": (
        "k0scontroller.service",
        {K0S: OF_OLD_K0S, "/run/k0s/containerd-cri.toml": OLD_CRI},
        "/etc/k0s/containerd.d/99-cdigen.toml",
        OLD,
        "k0scontroller",
    ),
    "k0s with the user's configuration": (
        "k0sworker.service",
        {K0S: f'version = 3\n[plugins."{NEW}"]\nenable_cdi = false\n'},
        K0S,
        NEW,
        "k0sworker",
    ),
    "MicroK8s": (
        "snap.microk8s.daemon-kubelite.service",
        {MICROK8S: TEMPLATE},
        MICROK8S,
        OLD,
        "snap.microk8s.daemon-containerd",
    ),
}


def put(root: Path, path: str, text: str) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def lay(root: Path, unit: str, files: dict[str, str], arguments: str = "") -> None:
    """Write a host whose UNIT starts a kubelet, with FILES and with a containerd for another purpose."""
    put(root, f"/etc/systemd/system/{unit}", f"[Service]\nExecStart=/usr/local/bin/program {arguments}\n")
    put(root, "/etc/systemd/system/snap.microk8s.daemon-containerd.service", "[Service]\nExecStart=/x\n")
    put(root, "/etc/systemd/system/containerd.service", "[Service]\nExecStart=/usr/bin/containerd\n")
    put(root, "/usr/bin/containerd", "")
    (root / "run/systemd/system").mkdir(parents=True)
    for path, text in files.items():
        put(root, path, text)


@pytest.mark.parametrize(("unit", "files", "changed", "plugin", "restarted"), HOSTS.values(), ids=HOSTS)
def test_the_distributions_own_file_is_changed_and_its_own_unit_is_restarted(
    cdigen: Run,
    tmp_path: Path,
    *,
    unit: str,
    files: dict[str, str],
    changed: str,
    plugin: str,
    restarted: str,
) -> None:
    lay(tmp_path, unit, files)
    done = cdigen("configure", "containerd", "--json", "--root", tmp_path)
    assert done.code == 0
    assert [file["path"] for file in done.json["files"]] == [changed]
    assert done.json["restart"] == f"systemctl restart {restarted}"
    document = tomllib.loads((tmp_path / changed.lstrip("/")).read_text())
    main = tomllib.loads(next(iter(files.values())))
    assert document["version"] == main["version"]
    assert document["plugins"][plugin].get("cdi_spec_dirs", DIRS) == DIRS
    # Version 2 may be the version of containerd 1.7, in which CDI is off by default.
    assert document["plugins"][plugin].get("enable_cdi", plugin == NEW) is True
    assert not (tmp_path / "etc/containerd").exists()
    for path, text in files.items():
        assert path == changed or (tmp_path / path.lstrip("/")).read_text() == text
    again = cdigen("configure", "containerd", "--root", tmp_path)
    assert f"nothing to do: no change is needed in {changed}\n" in again.err
    cdigen("configure", "containerd", "--undo", "--root", tmp_path)
    place = tmp_path / changed.lstrip("/")
    assert (place.read_text() if place.exists() else None) == files.get(changed)


@pytest.mark.parametrize("option", ["--nri", "--nri-required"])
def test_nri_is_enabled_in_the_same_drop_in(cdigen: Run, tmp_path: Path, option: str) -> None:
    unit, files, changed, _, _ = HOSTS["k0s before 1.36"]
    lay(tmp_path, unit, files)
    assert cdigen("configure", "containerd", option, "--root", tmp_path).code == 0
    assert "io.containerd.nri.v1.nri" in (tmp_path / changed.lstrip("/")).read_text()


@pytest.mark.parametrize(
    ("unit", "files", "words"),
    [
        ("k3s.service", {}, (f"{K3S}/config.toml does not exist: k3s has not written", "start k3s.service")),
        (
            "k3s.service",
            {f"{K3S}/config.toml": "version = 2\n"},
            (f"k3s overwrites {K3S}/config.toml", f"{K3S}/config.toml.tmpl", "restart k3s.service"),
        ),
        (
            "rke2-server.service",
            {f"{RKE2}/config.toml": f'version = 2\nimports = ["{RKE2}/config.toml.d/*.toml"]\n'},
            (f"RKE2 overwrites {RKE2}/config.toml", "restart rke2-server.service"),
        ),
        ("x.service", {"/etc/os-release": "NAME=Talos\nID=talos\n"}, ("Talos writes", "talosctl patch")),
    ],
)
def test_a_configuration_that_keeps_no_change_is_refused_with_the_steps(
    cdigen: Run, tmp_path: Path, unit: str, files: dict[str, str], words: tuple[str, ...]
) -> None:
    lay(tmp_path, unit, files)
    done = cdigen("configure", "containerd", "--root", tmp_path)
    assert done.code == 2
    assert all(word in done.err for word in words), done.err
    assert not (tmp_path / "etc/containerd").exists()
    for path, text in files.items():
        assert (tmp_path / path.lstrip("/")).read_text() == text


@pytest.mark.parametrize(
    ("unit", "arguments"),
    [
        ("k3s.service", "server --docker"),
        ("k3s.service", "agent --container-runtime-endpoint /run/containerd/containerd.sock"),
        ("k0sworker.service", "worker --cri-socket=remote:unix:///run/containerd/containerd.sock"),
        ("kubelet.service", ""),
    ],
)
def test_a_kubelet_with_a_separate_runtime_leaves_the_usual_file(
    cdigen: Run, tmp_path: Path, unit: str, arguments: str
) -> None:
    lay(tmp_path, unit, {"/etc/containerd/config.toml": "version = 3\n"}, arguments)
    done = cdigen("configure", "containerd", "--json", "--root", tmp_path)
    assert [file["path"] for file in done.json["files"]] == ["/etc/containerd/config.toml"]
    assert done.json["restart"] == "systemctl restart containerd"
