"""The doctor's results for a machine with a real process named kubelet, in its own namespaces."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from support.abilities import cannot_run
from support.daemon.watching import run_apart

from cdigen.runtimes.settings.containerd import DROP_IN

pytestmark = pytest.mark.usefixtures("own_mounts")

# A machine with its own /etc, /run and /var/lib, and with the processes in the JSON text of the first
# argument. The processes have the names of kubelet and containerd, and listen at their sockets.
MACHINE = r"""
import json, os, subprocess, sys, time
given = json.loads(sys.argv[1])
for folder in ("/etc", "/run", "/var/lib"):
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
os.makedirs("/run/systemd/system")
for path, text in given.get("files", {}).items():
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
for path, target in given.get("binds", {}).items():
    os.makedirs(path)
    os.makedirs(target, exist_ok=True)
    subprocess.run(["mount", "--bind", target, path], check=True)
for path, text in given.get("over", {}).items():
    with open("/run/over", "w") as file:
        file.write(text)
    subprocess.run(["mount", "--bind", "/run/over", path], check=True)
DAEMON = '''
import ctypes, os, socket, sys, time
name, path = sys.argv[1:3]
ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
if path:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
print("ready", flush=True)
time.sleep(600)
'''
with open("/run/daemon", "w") as file:
    file.write(DAEMON)
running = []
for name, path, *flags in given["daemons"]:
    user = 4201 if name.startswith("user:") else 0
    command = ["/usr/bin/python3", "/run/daemon", name.removeprefix("user:"), path, *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, user=user)
    assert process.stdout.readline() == b"ready\n"
    running.append(process)
    for path in given.get("rewritten_after", {}).get(name + path, ()):
        time.sleep(2)
        os.utime(path)
for index in given.get("ended", ()):
    running[index].kill()
    running[index].wait()
for path in given.get("closed", ()):
    os.chmod(path, 0o700)
if given.get("hidepid"):
    subprocess.run(["mount", "-o", "remount,hidepid=2", "/proc"], check=True)
command = [*given.get("by", ()), sys.executable, "-m", "cdigen", "doctor", "--for", "kubelet", "--json"]
done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
print(done.stdout.replace("\n", " "))
"""
APART = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc")
DIR = "/var/lib/kubelet"
SOCKET = f"{DIR}/device-plugins/kubelet.sock"
CDI = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = true\n'
KUBELET = ["kubelet", SOCKET, "--container-runtime-endpoint=unix:///run/containerd/containerd.sock"]
CONTAINERD = ["containerd", "/run/containerd/containerd.sock"]
NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
PASSWD = {"/etc/passwd": "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"}


def rows(*daemons: list[str], **options: Any) -> dict[str, dict[str, Any]]:
    """Return the first result of each check, on a machine with DAEMONS."""
    (line,) = run_apart(MACHINE, json.dumps({"daemons": daemons, **options}), start=APART)
    found = json.loads(line)
    assert isinstance(found, list), found
    return {row["check"]: row for row in reversed(found)}


def test_a_kubelet_is_found_by_its_process_and_its_arguments() -> None:
    folder = "/var/lib/k0s/kubelet"
    kubelet = [
        "kubelet",
        f"{folder}/device-plugins/kubelet.sock",
        f"--root-dir={folder}",
        "--config",
        "/etc/k.yaml",
    ]
    found = rows(kubelet, files={"/etc/k.yaml": "topologyManagerPolicy: single-numa-node\n"})
    assert f"is running, with the folder {folder}" in found["kubelet-running"]["detail"]
    assert found["kubelet-socket"]["detail"] == f"the kubelet listens on {folder}/device-plugins/kubelet.sock"
    assert not found["kubelet-directory"]["ok"]
    assert "single-numa-node" in found["kubelet-topology"]["detail"]


@pytest.mark.parametrize("name", ["k3s-server", "k3s-agent"])
def test_the_kubelet_in_k3s_is_read_from_the_arguments_of_k3s(name: str) -> None:
    found = rows(
        [name, "/run/data/device-plugins/kubelet.sock", "server", "--kubelet-arg=root-dir=/run/data"]
    )
    assert "k3s" in found["kubelet-running"]["detail"]
    assert "with the folder /run/data" in found["kubelet-running"]["detail"]


def test_the_kubelet_in_microk8s_is_read_from_its_file_of_arguments() -> None:
    text = "--root-dir=${SNAP_COMMON}/var/lib/kubelet\n# --root-dir=/no\n--cgroup-driver=cgroupfs\n"
    found = rows(["kubelite", "", "--kubelet-args-file=/etc/args"], files={"/etc/args": text})
    assert "/var/snap/microk8s/common/var/lib/kubelet" in found["kubelet-running"]["detail"]


def test_the_kubelet_in_hyperkube_is_found_and_no_plugin_has_registered() -> None:
    """https://github.com/NVIDIA/k8s-device-plugin/issues/62: the node has no nvidia.com/gpu."""
    found = rows(["hyperkube", SOCKET, "kubelet"], ["hyperkube", "", "kube-proxy"])
    assert f"is running, with the folder {DIR}" in found["kubelet-running"]["detail"]
    assert found["kubelet-plugin-conflict"]["detail"] == "no other device plugin has a socket"
    assert "cdigen kubelet is not set up" in found["kubelet-plugin"]["detail"]
    assert not rows(["hyperkube", "", "kube-proxy"])["kubelet-running"]["ok"]


def test_an_ordinary_users_process_with_the_name_kubelet_is_no_kubelet() -> None:
    assert not rows(["user:kubelet", ""])["kubelet-running"]["ok"]


def test_the_socket_of_an_ended_kubelet_is_an_error() -> None:
    found = rows(KUBELET, ["kubelet", ""], ended=[0])
    assert f"no process listens on {SOCKET}" in found["kubelet-socket"]["detail"]


def test_a_bind_mount_of_the_kubelets_folder_is_the_same_folder() -> None:
    unit = "/etc/systemd/system/cdigen-kubelet.service"
    text = "[Service]\nExecStart=/usr/bin/cdigen kubelet --kubelet-dir /run/kubelet\n"
    assert rows(KUBELET, files={unit: text}, binds={"/run/kubelet": DIR})["kubelet-directory"]["ok"]
    assert not rows(KUBELET, files={unit: text})["kubelet-directory"]["ok"]


def test_the_runtime_at_the_kubelets_endpoint_is_examined() -> None:
    other = [
        "containerd",
        "/run/docker/c.sock",
        "--address",
        "/run/docker/c.sock",
        "--config",
        "/run/docker/c.toml",
    ]
    found = rows(other, CONTAINERD, KUBELET, files={"/etc/containerd/config.toml": CDI})
    detail = found["kubelet-runtime"]["detail"]
    assert "at unix:///run/containerd/containerd.sock (configuration: /etc/containerd/config.toml)" in detail
    assert found["containerd-cdi"]["ok"]


def test_the_configuration_of_the_running_process_is_examined() -> None:
    config = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
    address = "/run/k3s/containerd/containerd.sock"
    text = f'{CDI.replace("true", "false")}[grpc]\naddress = "{address}"\n'
    found = rows(
        ["containerd", address, "-c", config],
        ["k3s-server", SOCKET],
        files={config: text, "/etc/containerd/config.toml": CDI},
    )
    row = found["containerd-cdi"]
    assert (row["ok"], row["severity"]) == (False, "error")
    assert row["detail"] == f"CDI is disabled: {config} disables it"
    # cdigen must not edit this configuration.
    assert row["remedy"] == ""
    assert "'cdigen configure' does not edit it" in found["kubelet-runtime"]["detail"]


def test_a_distribution_with_drop_ins_is_configured_by_cdigen() -> None:
    folder = "/var/lib/rancher/k3s/agent/etc/containerd"
    config, address = f"{folder}/config.toml", "/run/k3s/containerd/containerd.sock"
    text = f'version = 3\nimports = ["{folder}/config-v3.toml.d/*.toml"]\n[grpc]\naddress = "{address}"\n'
    off = '[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = false\n'
    found = rows(
        ["containerd", address, "-c", config],
        ["k3s-server", SOCKET],
        files={
            config: text + off,
            "/etc/systemd/system/k3s.service": "[Service]\nExecStart=/usr/local/bin/k3s server\n",
        },
    )
    assert found["containerd-cdi"]["detail"] == f"CDI is disabled: {config} disables it"
    assert found["containerd-cdi"]["remedy"].startswith("cdigen configure containerd")
    assert "does not edit it" not in found["kubelet-runtime"]["detail"]


def test_the_configuration_is_compared_with_the_start_of_its_own_process() -> None:
    config, address = "/etc/k3s/config.toml", "/run/k3s/containerd/containerd.sock"
    found = rows(
        CONTAINERD,
        ["containerd", address, "-c", config, "-a", address],
        ["k3s-server", SOCKET],
        files={config: CDI, DROP_IN: ""},
        rewritten_after={"".join(CONTAINERD): [config], f"containerd{address}": [DROP_IN]},
    )
    assert found["containerd-restart"]["ok"]


def test_a_runtime_that_does_not_listen_is_an_error() -> None:
    row = rows(KUBELET)["kubelet-runtime"]
    assert (row["ok"], row["severity"]) == (False, "error")
    assert "does not listen at unix:///run/containerd/containerd.sock" in row["detail"]


def test_another_plugin_that_listens_is_a_conflict() -> None:
    plugin = ["nvidia-device-plugin", f"{DIR}/device-plugins/nvidia-gpu.sock"]
    status = {"/etc/cdigen/config.yaml": "{}"}
    assert "nvidia-gpu.sock" in rows(KUBELET, plugin, files=status)["kubelet-plugin-conflict"]["detail"]


def test_exhausted_inotify_instances_are_a_warning() -> None:
    limit = "/proc/sys/fs/inotify/max_user_instances"
    row = rows(KUBELET, over={limit: "0"})["kubelet-inotify"]
    assert (row["ok"], row["remedy"]) == (False, "sysctl -w fs.inotify.max_user_instances=1024")
    assert rows(KUBELET, over={limit: "1000000"})["kubelet-inotify"]["ok"]


def test_with_the_option_for_kubelet_missing_device_plugins_are_an_error() -> None:
    unit = "/etc/systemd/system/cdigen-kubelet.service"
    assert "cdigen-kubelet.service is not installed" in rows(KUBELET)["kubelet-plugin"]["detail"]
    row = rows(KUBELET, files={unit: "[Service]\nExecStart=/usr/bin/cdigen kubelet\n"})["kubelet-plugin"]
    assert row["remedy"] == "systemctl enable --now cdigen-kubelet.service"


def wrong_for_nobody(*daemons: list[str], **options: Any) -> set[str]:
    """Return the checks of the kubelet and its runtime that fail for an ordinary user."""
    trial = subprocess.run(
        [*NOBODY, sys.executable, "-m", "cdigen", "--version"], check=False, capture_output=True
    )
    if trial.returncode != 0:
        cannot_run("other users may not enter this checkout")
    found = rows(*daemons, files=PASSWD | options.pop("files", {}), by=NOBODY, **options)
    return {
        name for name, row in found.items() if not row["ok"] and row["topic"] in {"kubelet", "containerd"}
    }


def test_an_ordinary_user_gets_no_error_for_a_runtime_that_only_root_can_see() -> None:
    config = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
    address = "/run/k3s/containerd/containerd.sock"
    daemons = ["containerd", address, "-c", config, "-a", address], ["k3s-server", SOCKET]
    for closed in ((), ("/var/lib/rancher/k3s/agent",)):
        wrong = wrong_for_nobody(*daemons, files={config: CDI}, closed=closed)
        assert wrong == {"kubelet-plugin"}


def test_hidden_processes_of_root_are_no_failure_for_an_ordinary_user() -> None:
    assert wrong_for_nobody(KUBELET, CONTAINERD, hidepid=True) == {"kubelet-plugin"}
