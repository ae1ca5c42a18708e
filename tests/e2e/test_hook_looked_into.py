"""A container that shares its namespaces with one that starts, and may trace in them, sees the hook.

Through /proc/<pid>/root of the hook it would read the host's files. An interpreter that it cannot read keeps
it out, as docs/hook.md says; in the host's own user namespace nothing does, and the runtime is as open.
"""

import json
import re
from pathlib import Path

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, Host
from support.containers.gpu_hosts import DEVICE, HostOf

pytestmark = pytest.mark.e2e

# It looks at every process that is not its own until it is told to end, and prints what it saw of hooks.
LOOKER = r"""
import os, signal
seen = set()

def end(*_):
    print(*sorted(seen), sep="\n", flush=True)
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
                seen.add(f"read {file.read()}")
        except PermissionError:
            seen.add("closed to reading")
        except OSError:
            continue
        try:
            # The kernel asks for what it asks of a tracer (proc_mem_open), and nobody is stopped.
            os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
            seen.add("open to tracing")
        except PermissionError:
            seen.add("closed to tracing")
        except OSError:
            continue
"""
USER_NAMESPACE = "--uidmap 0:100000:65536"
STARTS = 5


@pytest.fixture(scope="module")
def host(driven: HostOf) -> Host:
    """Return a host with a copy of the interpreter as docs/hook.md has it made, and a device that runs it."""
    host = driven("view+hook").host
    text = (Path(__file__).parents[2] / "docs/hook.md").read_text()
    (recipe,) = re.findall(r"```\n(install -d .*?)^cdigen generate", text, flags=re.DOTALL | re.MULTILINE)
    host.run(f"mkdir -p /etc/cdigen\n{recipe}")
    (python,) = re.findall(r"hook_python: (\S+)", host.run("cat /etc/cdigen/config.yaml"))
    spec = json.loads(host.run("cat /run/cdi/nvidia.com-gpu.json"))
    spec["kind"] = "example.com/copied"
    hook = spec["containerEdits"]["hooks"][0]
    hook["path"] = hook["args"][0] = python
    host.put("/etc/cdi/copied.json", json.dumps(spec))
    host.put("/srv/secret", "the host's")
    host.put("/srv/looker/look.py", LOOKER)
    return host


def seen(host: Host, device: str, first: str, second: str) -> set[str]:
    """Return what a container with CAP_SYS_PTRACE sees of the hooks of others that join its namespaces."""
    looker = host.run(
        f"podman run --detach {first} --cap-add SYS_PTRACE -v /srv/looker:/look:ro {DEBIAN_IMAGE} "
        "python3 /look/look.py"
    ).strip()
    try:
        for _ in range(STARTS):
            host.run(
                f"podman run --rm --pid container:{looker} {second.replace('NAME', looker)} "
                f"--device {device} {DEBIAN_IMAGE} true"
            )
        host.run(f"podman kill --signal TERM {looker}; podman wait {looker}")
        return set(host.run(f"podman logs {looker}").splitlines())
    finally:
        host.attempt(f"podman rm --force --time 0 {looker}")


def test_a_plain_interpreter_is_open_to_a_tracer_of_its_user_namespace(host: Host) -> None:
    found = seen(host, DEVICE, USER_NAMESPACE, "--userns container:NAME")
    assert {"read the host's", "open to tracing"} <= found


def test_a_copy_that_cannot_be_read_is_closed_to_it(host: Host) -> None:
    found = seen(host, "example.com/copied=0", USER_NAMESPACE, "--userns container:NAME")
    assert found == {"closed to reading", "closed to tracing"}


def test_a_copy_does_its_work(host: Host) -> None:
    listed = host.run(f"podman run --rm --device example.com/copied=0 {DEBIAN_IMAGE} ldconfig -p")
    assert "/usr/local/nvidia/lib64/libcuda.so.1" in listed


def test_in_the_hosts_user_namespace_nothing_keeps_a_tracer_out(host: Host) -> None:
    assert "read the host's" in seen(host, "example.com/copied=0", "", "")
