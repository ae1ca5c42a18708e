"""On Debian 13, cdigen-nodes.service creates nodes with three capabilities; the daemon starts the service."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.booted_host import KERNEL, SHOWN, GpuHost, eventually, gpu_host
from support.hosts.nvidia_kernel import write
from support.paths import REPOSITORY
from support.processes import succeeded

pytestmark = pytest.mark.e2e

VERSION = "550.163.01"
SPEC = "/run/cdi/nvidia.com-gpu.json"
UNIT = "cdigen-nodes.service"
# systemd runs in namespaces here, so ConditionVirtualization is reset. The machine's kernel has no NVIDIA
# modules, so a program of the test replaces modprobe.
AS_ON_A_HOST = f"""[Unit]
ConditionVirtualization=
{SHOWN}BindReadOnlyPaths=/{KERNEL}/sys/module:/sys/module
ExecStartPre=/bin/cat /proc/self/status
"""
CAPABILITIES = {"CAP_CHOWN": 0, "CAP_SYS_MODULE": 16, "CAP_MKNOD": 27}
NODES = "nvidiactl nvidia-modeset nvidia-uvm nvidia-uvm-tools nvidia0 nvidia1"


@pytest.fixture(scope="module")
def gpus(cache: Path, images: Path) -> Iterator[GpuHost]:
    """Boot a host with two GPUs."""
    with gpu_host(cache / "host-trixie", VERSION, images=images) as found:
        yield found


@pytest.fixture
def bare(gpus: GpuHost) -> GpuHost:
    """Return the host without NVIDIA device nodes, and without the file that marks it as a container."""
    write(gpus.root / f"etc/systemd/system/{UNIT}.d/test.conf", AS_ON_A_HOST)
    gpus.host.run("systemctl stop cdigen cdigen-nodes; systemctl reset-failed; systemctl daemon-reload")
    gpus.host.run(f"rm -rf /run/systemd/container /dev/nvidia* /dev/char {SPEC}")
    # modprobe succeeds and loads no module, as if a blacklist line excluded each module.
    modprobe(gpus, "exit 0")
    return gpus


def modprobe(gpus: GpuHost, code: str) -> None:
    program = gpus.root / "usr/sbin/modprobe"
    write(program, f'#!/bin/sh\necho "modprobe $*"\n{code}\n')
    program.chmod(0o755)


def result(gpus: GpuHost) -> str:
    return gpus.host.run(f"systemctl show --property=Result --value {UNIT}").strip()


def journal(gpus: GpuHost) -> str:
    return gpus.host.run(f"journalctl --unit={UNIT} --output=cat --no-pager")


def test_the_service_does_nothing_in_a_container(gpus: GpuHost) -> None:
    gpus.host.run(f"rm -rf /etc/systemd/system/{UNIT}.d; systemctl daemon-reload; rm -f /dev/nvidia0")
    gpus.host.run(f"systemctl start {UNIT}")
    assert gpus.host.run(f"systemctl show --property=ConditionResult --value {UNIT}").strip() == "no"
    assert gpus.host.attempt("test -e /dev/nvidia0").returncode != 0


def test_the_service_creates_nodes_and_links_with_three_capabilities(bare: GpuHost) -> None:
    bare.host.run(f"systemctl start {UNIT}")
    assert result(bare) == "success", journal(bare)
    assert sorted(bare.host.run("cd /dev; ls -d nvidia*").split()) == sorted(NODES.split())
    assert bare.host.run("stat --format=%t:%T:%a /dev/nvidia-uvm").strip() == "1fe:0:666"
    assert bare.host.run("readlink /dev/char/195:0 /dev/char/195:255").split() == [
        "../nvidia0",
        "../nvidiactl",
    ]
    log = journal(bare)
    assert "the device node /dev/nvidia-uvm (510:0) was created" in log
    (bounding,) = {line.split()[1] for line in log.splitlines() if line.startswith("CapBnd:")}
    assert int(bounding, 16) == sum(1 << bit for bit in CAPABILITIES.values())


def test_the_service_creates_the_nodes_and_fails_if_modprobe_fails(bare: GpuHost) -> None:
    modprobe(bare, "echo 'modprobe: FATAL: Module nvidia-uvm not found' >&2; exit 1")
    assert bare.host.attempt(f"systemctl start {UNIT}").returncode != 0
    assert result(bare) == "exit-code"
    assert (
        "the kernel module nvidia-uvm cannot be loaded: modprobe: FATAL: Module nvidia-uvm not found"
        in journal(bare)
    )
    bare.host.run("test -c /dev/nvidia-uvm")


def test_nodes_have_the_owner_and_the_mode_of_the_drivers_parameters(bare: GpuHost) -> None:
    params = bare.root / KERNEL / "proc/driver/nvidia/params"
    before = params.read_text()
    lines = [line for line in before.splitlines() if not line.startswith("DeviceFile")]
    write(params, "\n".join([*lines, "DeviceFileUID: 65534", "DeviceFileGID: 44", "DeviceFileMode: 432", ""]))
    try:
        bare.host.run(f"systemctl start {UNIT}")
        assert bare.host.run("stat --format=%u:%g:%a /dev/nvidia0").strip() == "65534:44:660"
    finally:
        write(params, before)


def test_the_daemon_starts_the_service_and_writes_the_spec(bare: GpuHost) -> None:
    bare.host.run("systemctl start cdigen")
    assert eventually(lambda: bare.host.attempt(f"grep -q /dev/nvidia-uvm {SPEC}").returncode == 0)
    assert result(bare) == "success"


def test_the_remedy_in_the_status_restores_the_spec_after_the_removal_of_a_node(bare: GpuHost) -> None:
    bare.host.run("systemctl start cdigen")
    assert eventually(lambda: bare.host.attempt(f"test -e {SPEC}").returncode == 0)
    bare.host.run("rm /dev/nvidia-uvm")
    assert eventually(lambda: bare.host.attempt(f"test -e {SPEC}").returncode != 0)
    remedy = "systemctl start cdigen-nodes.service"
    assert remedy in bare.host.attempt("cdigen status; cdigen status --json").stdout
    bare.host.run(remedy)
    assert eventually(lambda: bare.host.attempt(f"grep -q /dev/nvidia-uvm {SPEC}").returncode == 0)


def test_udevadm_verify_accepts_the_udev_rule_of_cdigen_nodes(cache: Path) -> None:
    # udevadm reads only files of its own root, and needs /proc.
    tools, rules = cache / "tools-forky", REPOSITORY / "etc"
    verify = f"unshare --root={tools} --mount-proc udevadm verify --no-summary /mnt/60-cdigen-nodes.rules"
    command = f"mount --bind {rules} {tools}/mnt && exec {verify}"
    assert succeeded(["unshare", "--mount", "--pid", "--fork", "sh", "-c", command]) == ""
