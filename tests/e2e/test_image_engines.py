"""Real podman, Docker and containerd load cdigen's image and run its programs for the host.

The host's root is bind-mounted at /h. The kernel's files that the test has written are visible there. At
their own paths, the real /proc and /sys hide them. The tests run the commands of
docs/how-to/container-image.md with /h instead of /.
"""

import http.client
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, MACHINE, Host, running_host
from support.containers.containerd_host import RELEASES, running_containerd
from support.containers.forky_host import lay_driver, running_daemons
from support.containers.gpu_hosts import GPUS
from support.containers.image_archive import IMAGE, PROBE
from support.containers.upgrade_host import wait_until
from support.hosts.nvidia_kernel import write_kernel_side
from support.kubernetes.api_server import ApiServer
from support.kubernetes.cluster_model import Cluster
from support.own_trees import copied_tree
from support.paths import REPOSITORY

pytestmark = pytest.mark.e2e

ARCHIVE = "/cdigen.tar.zst"
LOAD = {
    "podman": f"podman load --quiet --input {ARCHIVE}",
    "docker": f"docker load --quiet --input {ARCHIVE}",
    "containerd": f"ctr --namespace cdigen images import {ARCHIVE}",
}
RUN = {
    "podman": f"podman run --rm --network none --read-only --cap-drop all {IMAGE}",
    "docker": f"docker run --rm --network none --read-only --cap-drop all {IMAGE}",
    "containerd": f"ctr --namespace cdigen run --rm --read-only {IMAGE} test-$RANDOM",
}
PRINT_USER = "import os; print(os.getuid(), os.getgid(), os.access('/', os.W_OK), *os.environ)"
LAY_HOST = """
mkdir --parents /h /var/lib/cdigen
mount --bind / /h
mount --rbind /run /h/run
mount --bind /dev /h/dev
# systemd makes all mounts shared.
mount --make-rshared /
"""


@pytest.fixture(scope="module")
def host(cache: Path, driver_tree: Path, images: Path, image_archive: Path) -> Iterator[Host]:
    with copied_tree(cache / "runtimes-forky", cache) as root:
        lay_driver(root, driver_tree)
        write_kernel_side(root, GPUS)
        shutil.copy(image_archive, f"{root}{ARCHIVE}")
        with running_host(root, images=images) as host, running_daemons(host):
            host.run(LAY_HOST)
            for load in LOAD.values():
                host.run(load)
            yield host


def documented_command(words: str, engine: str) -> str:
    """Return the command of docs/how-to/container-image.md with WORDS, for ENGINE and the host at /h."""
    text = (REPOSITORY / "docs/how-to/container-image.md").read_text()
    (command,) = (
        each for each in re.findall(r"^ *(podman run (?:.*\\\n)*.*)", text, re.MULTILINE) if words in each
    )
    return str(command).replace("podman", engine, 1).replace("--volume /:/host", "--volume /h:/host")


@pytest.mark.parametrize("engine", RUN)
def test_an_engine_runs_the_image_as_an_unprivileged_user(host: Host, engine: str) -> None:
    assert host.run(f"{RUN[engine]} cdigen --version").startswith("cdigen ")
    uid, gid, writes, *environment = host.run(f'{RUN[engine]} python3 -c "{PRINT_USER}"').split()
    assert (uid, gid, writes) == ("65532", "65532", "False")
    assert {"PATH", "LC_ALL"} <= set(environment)


def test_older_engines_run_the_image(images: Path, cache: Path, image_archive: Path, tmp_path: Path) -> None:
    with running_host(MACHINE, images=images) as machine:
        machine.run(f"podman load --quiet --input {image_archive}", timeout_s=120)
        assert machine.run(f"{RUN['podman']} cdigen --version").startswith("cdigen ")
    with running_containerd(cache, RELEASES["trixie"]) as containerd:
        # ctr 1.7 does not decompress archives.
        plain = tmp_path / "cdigen.tar"
        subprocess.run(["zstd", "--quiet", "--decompress", image_archive, "-o", plain], check=True)
        containerd.ctr("images", "import", plain)
        containerd.ctr("run", "--rm", "--read-only", IMAGE, "test-image", "cdigen", "--version")


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_the_daemon_in_a_container_writes_the_specs_of_its_host(host: Host, engine: str) -> None:
    gpu = f"{engine} run --rm --network none --device nvidia.com/gpu=0 {DEBIAN_IMAGE}"
    observed = f"{gpu} sh -c \"ls /dev/nvidia0; dlopen-all libcuda.so.1 | cut -d' ' -f1\""
    assert host.attempt(observed).returncode != 0
    host.run(documented_command("cdigen run", engine))
    try:
        query = f"{engine} exec cdigen {PROBE} /host/run/cdigen/http.sock"
        wait_until(lambda: host.attempt(f"{query} /readyz").returncode == 0, "the daemon is ready")
        host.run(f"{query} /healthz")
        spec = host.run("cat /run/cdi/nvidia.com-gpu.json")
        # Other containers start without cdigen's image: the spec has no path below /host and no hook.
        assert '"/host' not in spec
        assert "hooks" not in json.loads(spec)["containerEdits"]
        assert host.run(observed).split() == ["/dev/nvidia0", "ok"]
        assert "nvidia.com/gpu" in host.run(f"{engine} exec cdigen cdigen status --root /host")
        before = time.monotonic()
        host.run(f"{engine} stop --time 30 cdigen")
        assert time.monotonic() - before < 10
        assert '"event": "stopped"' in host.run(f"{engine} logs cdigen 2>&1")
        assert host.run(observed).split() == ["/dev/nvidia0", "ok"]
    finally:
        host.attempt(f"{engine} logs cdigen; {engine} rm --force cdigen")
    host.run(documented_command("cdigen withdraw", engine))
    assert host.run("ls /run/cdi /h/run/cdi").split() == ["/h/run/cdi:", "/run/cdi:"]


def test_the_extender_runs_without_capabilities(host: Host, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def status() -> int:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            client.request("GET", "/readyz")
            return client.getresponse().status
        except OSError:
            return 0
        finally:
            client.close()

    with ApiServer(Cluster()) as server:
        host.put("/extender/kubeconfig", server.kubeconfig(tmp_path / "kubeconfig").read_text())
        # The options of the manifest (examples/kubernetes/gpushare/extender.yaml).
        mounts = "--tmpfs /run/cdigen-extender:mode=1777 --volume /extender:/etc/extender:ro"
        least = f"--read-only --cap-drop all {mounts}"
        options = f"--listen 127.0.0.1:{port} --run-dir /run/cdigen-extender/own"
        host.run(
            f"podman run --detach --name extender --network host {least} {IMAGE} "
            f"cdigen extender {options} --kubeconfig /etc/extender/kubeconfig"
        )
        try:
            wait_until(lambda: status() == 200, "the extender is ready")
        finally:
            log = host.run(
                "podman stop --time 30 extender >/dev/null; podman logs extender 2>&1; podman rm extender"
            )
    assert '"event": "stopped"' in log


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_the_doctor_prints_the_option_for_each_missing_mount_of_its_container(
    host: Host, engine: str
) -> None:
    least = "--network none --read-only --cap-drop all --user 0"

    def found(*mounts: str) -> str:
        options = " ".join(f"--volume {mount}" for mount in mounts)
        done = host.attempt(f"{engine} run --rm {least} {options} {IMAGE} cdigen doctor --root /host --json")
        results = json.loads(done.stdout)
        return "".join(each["detail"] for each in results if each["check"] == "host-mounts")

    # The doctor reports one missing mount at a time. /run is a separate file system. If / is mounted
    # read-only, Docker also mounts /run read-only (podman does not), so /run needs a separate option.
    mounts = ["/sys:/host/sys:ro"]
    volumes = ["/:/host:ro,rslave", "/var/lib/cdigen:/host/var/lib/cdigen:rw,rslave"]
    for volume in [*volumes, "/run:/host/run:rw,rslave"][: 3 if engine == "docker" else 2]:
        assert f"'--volume {volume}'" in found(*mounts)
        mounts = [mount for mount in mounts if ":/host/sys" not in mount] + [volume]
    assert found(*mounts) == "all required host files are mounted, or the folder is not a running host"


def test_the_nvml_library_of_the_host_is_loaded_by_its_path(host: Host) -> None:
    library = "/host/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.550.163.01"
    child = "/usr/lib/python3/dist-packages/cdigen/vendors/nvidia/nvml/child"
    least = "--network none --read-only --cap-drop all --user 0 --volume /h:/host:ro,rslave"
    message = host.attempt(f"podman run --rm {least} {IMAGE} python3 -I {child} {library} identity")
    assert "NVML_ERROR_DRIVER_NOT_LOADED" in message.stdout, message
