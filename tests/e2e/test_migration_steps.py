"""The steps of `cdigen doctor --migrate`, taken as printed and taken back, where NVIDIA's toolkit is.

The toolkit itself is a stand-in: its package in dpkg's folder, a program by the name of its runtime, which
starts runc, and a spec as it writes one. Docker and podman are real: each starts a GPU container after
every step.
"""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, Host
from support.containers.doctor_host import RUNTIMES, diagnosed

pytestmark = pytest.mark.e2e

SPEC = "/var/run/cdi/nvidia.yaml"
DAEMON_JSON = "/etc/docker/daemon.json"
HOOK = "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"
REFRESH = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
# What a person does at the step 'unregister': the two keys that it names.
EDIT = f"""
import json
document = json.load(open("{DAEMON_JSON}"))
del document["runtimes"], document["default-runtime"]
json.dump(document, open("{DAEMON_JSON}", "w"))
"""
# systemctl of the host is a stand-in that restarts daemons alone: here it makes and removes links, too.
ENABLING = """#!/bin/bash
wants=/etc/systemd/system/multi-user.target.wants
case "$1" in
    enable) for unit in "${@:3}"; do ln -sf "/usr/lib/systemd/system/$unit" $wants/; done;;
    disable) for unit in "${@:3}"; do rm -f "$wants/$unit"; done;;
    *) exec /usr/bin/systemctl.restarts "$@";;
esac
"""
# apt-get of the host has no network: it takes the package's digests away and puts them back, as dpkg would.
APT_GET = """#!/bin/bash
digests=/var/lib/dpkg/info/nvidia-container-toolkit.md5sums program=/usr/bin/nvidia-container-runtime
case "$*" in
    "remove nvidia-container-toolkit") rm $digests $program;;
    "install nvidia-container-toolkit") touch $digests; cp /usr/bin/nvidia.kept $program;;
    *) exit 100;;
esac
"""


@pytest.fixture(scope="module")
def host(cache: Path, driver_tree: Path, images: Path) -> Iterator[Host]:
    tree = cache / "runtimes-forky"
    with diagnosed(cache, tree=tree, driver_tree=driver_tree, images=images, version="550.163.01") as running:
        lay_toolkit(running)
        yield running


def lay_toolkit(host: Host) -> None:
    """Make the host what it is with the toolkit and without cdigen's specs."""
    spec = json.loads(host.run("cat /var/run/cdi/nvidia.com-gpu.json"))
    host.run("cdigen withdraw --quiet")
    host.put(SPEC, json.dumps(spec))
    host.put("/usr/bin/nvidia.kept", '#!/bin/sh\nexec runc "$@"\n')
    host.put("/usr/bin/apt-get", APT_GET)
    host.run("mv /usr/bin/systemctl /usr/bin/systemctl.restarts")
    host.put("/usr/bin/systemctl", ENABLING)
    host.run("chmod +x /usr/bin/systemctl /usr/bin/apt-get /usr/bin/nvidia.kept")
    host.run("apt-get install nvidia-container-toolkit; mkdir -p /etc/systemd/system/multi-user.target.wants")
    for unit in (*REFRESH, "cdigen.service"):
        host.put(f"/usr/lib/systemd/system/{unit}", "[Unit]\n")
    host.run(f"systemctl enable --now {' '.join(REFRESH)}")
    host.put(
        HOOK, '{"version": "1.0.0", "hook": {"path": "/bin/true"}, "when": {"always": false}, "stages": []}'
    )
    configured = json.loads(host.run(f"cat {DAEMON_JSON}"))
    configured["runtimes"] = {"nvidia": {"path": "nvidia-container-runtime"}}
    host.put(DAEMON_JSON, json.dumps({**configured, "default-runtime": "nvidia"}))
    host.run("systemctl restart docker")


def plan(host: Host) -> dict[str, Any]:
    done = host.attempt("cdigen doctor --migrate --json")
    assert done.returncode in {0, 1}, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == bool(document["steps"])
    return document


def assert_containers_start(host: Host, after: str) -> None:
    for name in ("docker", "podman"):
        assert RUNTIMES[name].start(host), f"{name} after {after}"


def state(host: Host) -> str:
    """Return what the steps change, but for the copies that they make."""
    folders = "/etc/docker /var/run/cdi/ /usr/share/containers/oci/hooks.d /etc/systemd/system"
    kept = "-not -name '*.before-cdigen' -not -name '*.foreign-*'"
    files = host.run(f"find {folders} -not -type d {kept} | sort | xargs sha256sum")
    packages = host.run("ls /var/lib/dpkg/info/nvidia*")
    return files + packages + host.run("docker info --format '{{.DefaultRuntime}}'")


def test_containers_start_after_each_step_and_after_each_is_taken_back(host: Host) -> None:
    before = state(host)
    steps = plan(host)["steps"]
    assert [step["step"] for step in steps] == [
        "stop-refresh", "write-specs", "keep-fresh", "ask-by-name", "unregister", "disable-hook",
        "remove-packages",
    ]  # fmt: skip
    old = f"docker run --rm --network none --runtime=nvidia --device nvidia.com/gpu=0 {DEBIAN_IMAGE} true"
    for step in steps:
        if step["step"] == "ask-by-name":
            host.run(old)  # until here the old way works as well
        host.run(step["command"] or "true")
        if step["step"] == "unregister":
            host.run(f"python3 -c {shlex.quote(EDIT)}; systemctl restart docker")
        assert_containers_start(host, step["step"])
    assert plan(host) == {"found": [], "steps": [], "stays": [], "uses": []}
    assert "unknown or invalid runtime name: nvidia" in host.attempt(old).stderr
    for step in reversed(steps):
        host.run(step["undo"] or "true")
        assert_containers_start(host, f"{step['step']} was taken back")
    assert state(host) == before
    host.run(old)
