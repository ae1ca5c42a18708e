"""A container with CAP_SYS_PTRACE can trace the start-up hook of another container if both share namespaces.

Through /proc/<pid>/root of the hook, the container can read the host's files. An unreadable interpreter
prevents this (docs/explanation/start-up-hook.md), except in the host's own user namespace. There, the
container can also trace the runtime.
"""

import json
import re
from pathlib import Path

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, Host
from support.containers.gpu_hosts import DEVICE, HostOf

pytestmark = pytest.mark.e2e

# This program examines all processes of hooks until SIGTERM, and then prints which access it had.
OBSERVER = r"""
import os, signal
found = set()

def end(*_):
    print(*sorted(found), sep="\n", flush=True)
    os._exit(0)

signal.signal(signal.SIGTERM, end)
while True:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read()
        except OSError:
            continue
        if b"cdigen-hook" not in command:
            continue
        try:
            with open(f"/proc/{pid}/root/srv/secret") as file:
                found.add(f"read {file.read()}")
        except PermissionError:
            found.add("not readable")
        except OSError:
            continue
        try:
            # The kernel requires the permissions of a tracer here (proc_mem_open); no process is stopped.
            os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
            found.add("traceable")
        except PermissionError:
            found.add("not traceable")
        except OSError:
            continue
"""
USER_NAMESPACE = "--uidmap 0:100000:65536"
STARTS = 5


@pytest.fixture(scope="module")
def host(driven: HostOf) -> Host:
    """Return a host with a copied interpreter (docs/how-to/start-up-hook.md), and a device of its hook."""
    host = driven("view+hook").host
    text = (Path(__file__).parents[2] / "docs/how-to/start-up-hook.md").read_text()
    (recipe,) = re.findall(r"```\n(install -d .*?)^cdigen generate", text, flags=re.DOTALL | re.MULTILINE)
    host.run(f"mkdir -p /etc/cdigen\n{recipe}")
    (python,) = re.findall(r"hook_python: (\S+)", host.run("cat /etc/cdigen/config.yaml"))
    spec = json.loads(host.run("cat /run/cdi/nvidia.com-gpu.json"))
    spec["kind"] = "example.com/copied"
    hook = spec["containerEdits"]["hooks"][0]
    hook["path"] = hook["args"][0] = python
    host.put("/etc/cdi/copied.json", json.dumps(spec))
    host.put("/srv/secret", "the host's")
    host.put("/srv/observer/observe.py", OBSERVER)
    return host


def observed(host: Host, device: str, first: str, second: str) -> set[str]:
    """Return the output of OBSERVER in a container with CAP_SYS_PTRACE that shares namespaces with hooks."""
    observer = host.run(
        f"podman run --detach {first} --cap-add SYS_PTRACE -v /srv/observer:/observer:ro {DEBIAN_IMAGE} "
        "python3 /observer/observe.py"
    ).strip()
    try:
        for _ in range(STARTS):
            host.run(
                f"podman run --rm --pid container:{observer} {second.replace('NAME', observer)} "
                f"--device {device} {DEBIAN_IMAGE} true"
            )
        host.run(f"podman kill --signal TERM {observer}; podman wait {observer}")
        return set(host.run(f"podman logs {observer}").splitlines())
    finally:
        host.attempt(f"podman rm --force --time 0 {observer}")


def test_a_container_can_trace_a_hook_with_a_readable_interpreter(host: Host) -> None:
    found = observed(host, DEVICE, USER_NAMESPACE, "--userns container:NAME")
    assert {"read the host's", "traceable"} <= found


def test_a_container_cannot_trace_a_hook_with_an_unreadable_interpreter(host: Host) -> None:
    found = observed(host, "example.com/copied=0", USER_NAMESPACE, "--userns container:NAME")
    assert found == {"not readable", "not traceable"}


def test_a_hook_with_an_unreadable_interpreter_updates_the_loader_cache(host: Host) -> None:
    listed = host.run(f"podman run --rm --device example.com/copied=0 {DEBIAN_IMAGE} ldconfig -p")
    assert "/usr/local/nvidia/lib64/libcuda.so.1" in listed


def test_a_container_in_the_hosts_user_namespace_can_trace_any_hook(host: Host) -> None:
    assert "read the host's" in observed(host, "example.com/copied=0", "", "")
