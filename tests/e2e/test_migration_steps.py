"""On a host with NVIDIA's toolkit, containers start after each step and undo of `cdigen doctor --migrate`.

The toolkit is a fake. It has a package in dpkg's folder, a runtime program that starts runc, and a spec like
the toolkit's. Docker and podman are real. Each engine starts a GPU container after every step.
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
# The manual edit of the step 'unregister': it removes the keys runtimes and default-runtime.
EDIT = f"""
import json
document = json.load(open("{DAEMON_JSON}"))
del document["runtimes"], document["default-runtime"]
json.dump(document, open("{DAEMON_JSON}", "w"))
"""
# The host's systemctl is a fake that only restarts daemons. This wrapper also enables and disables units.
ENABLING = """#!/bin/bash
wants=/etc/systemd/system/multi-user.target.wants
case "$1" in
    enable) for unit in "${@:3}"; do ln -sf "/usr/lib/systemd/system/$unit" $wants/; done;;
    disable) for unit in "${@:3}"; do rm -f "$wants/$unit"; done;;
    *) exec /usr/bin/systemctl.restarts "$@";;
esac
"""
# The host has no network. Like dpkg, this apt-get removes and restores the digests of the package.
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
        install_toolkit(running)
        yield running


def install_toolkit(host: Host) -> None:
    """Set up the host with the toolkit and without cdigen's specs."""
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
    """Return the state that the steps change: digests of files, the package, and Docker's default runtime."""
    folders = "/etc/docker /var/run/cdi/ /usr/share/containers/oci/hooks.d /etc/systemd/system"
    kept = "-not -name '*.before-cdigen' -not -name '*.foreign-*'"
    files = host.run(f"find {folders} -not -type d {kept} | sort | xargs sha256sum")
    packages = host.run("ls /var/lib/dpkg/info/nvidia*")
    return files + packages + host.run("docker info --format '{{.DefaultRuntime}}'")


def test_containers_start_after_each_step_and_after_each_undo(host: Host) -> None:
    before = state(host)
    steps = plan(host)["steps"]
    assert [step["step"] for step in steps] == [
        "stop-refresh", "write-specs", "start-service", "request-by-name", "unregister", "disable-hook",
        "remove-packages",
    ]  # fmt: skip
    old = f"docker run --rm --network none --runtime=nvidia --device nvidia.com/gpu=0 {DEBIAN_IMAGE} true"
    for step in steps:
        if step["step"] == "request-by-name":
            host.run(old)  # up to this step the old options work as well
        host.run(step["command"] or "true")
        if step["step"] == "unregister":
            host.run(f"python3 -c {shlex.quote(EDIT)}; systemctl restart docker")
        assert_containers_start(host, step["step"])
    assert plan(host) == {"leftovers": [], "steps": [], "kept": [], "legacy_requests": []}
    assert "unknown or invalid runtime name: nvidia" in host.attempt(old).stderr
    for step in reversed(steps):
        host.run(step["undo"] or "true")
        assert_containers_start(host, f"{step['step']} was undone")
    assert state(host) == before
    host.run(old)
