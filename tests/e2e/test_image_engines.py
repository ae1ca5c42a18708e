"""cdigen's image under real podman, Docker and containerd: loaded, run as nobody, serving the host it is on.

The host's root is bound at /h, where its files of the kernel are to be seen, which /proc and /sys hide at
their places; so the page's command (docs/image.md) is run word for word, but for /h instead of /.
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
WHO = "import os; print(os.getuid(), os.getgid(), os.access('/', os.W_OK), *os.environ)"
LAY_HOST = """
mkdir --parents /h /var/lib/cdigen
mount --bind / /h
mount --rbind /run /h/run
mount --bind /dev /h/dev
# As systemd leaves them.
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


def of_the_page(words: str, engine: str) -> str:
    """Return the command of docs/image.md with WORDS in it, for ENGINE and for the host at /h."""
    text = (REPOSITORY / "docs/image.md").read_text()
    (command,) = (
        each for each in re.findall(r"^podman run (?:.*\\\n)*.*", text, re.MULTILINE) if words in each
    )
    return str(command).replace("podman", engine, 1).replace("--volume /:/host", "--volume /h:/host")


@pytest.mark.parametrize("engine", RUN)
def test_an_engine_runs_it_as_nobody(host: Host, engine: str) -> None:
    assert host.run(f"{RUN[engine]} cdigen --version").startswith("cdigen ")
    uid, gid, writes, *environment = host.run(f'{RUN[engine]} python3 -c "{WHO}"').split()
    assert (uid, gid, writes) == ("65532", "65532", "False")
    assert {"PATH", "LC_ALL"} <= set(environment)


def test_older_engines_take_it_too(images: Path, cache: Path, image_archive: Path, tmp_path: Path) -> None:
    with running_host(MACHINE, images=images) as machine:
        machine.run(f"podman load --quiet --input {image_archive}", timeout_s=120)
        assert machine.run(f"{RUN['podman']} cdigen --version").startswith("cdigen ")
    with running_containerd(cache, RELEASES["trixie"]) as containerd:
        # Its ctr unpacks nothing.
        plain = tmp_path / "cdigen.tar"
        subprocess.run(["zstd", "--quiet", "--decompress", image_archive, "-o", plain], check=True)
        containerd.ctr("images", "import", plain)
        containerd.ctr("run", "--rm", "--read-only", IMAGE, "test-image", "cdigen", "--version")


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_the_daemon_serves_the_host_that_its_container_is_on(host: Host, engine: str) -> None:
    gpu = f"{engine} run --rm --network none --device nvidia.com/gpu=0 {DEBIAN_IMAGE}"
    seen = f"{gpu} sh -c \"ls /dev/nvidia0; dlopen-all libcuda.so.1 | cut -d' ' -f1\""
    assert host.attempt(seen).returncode != 0
    host.run(of_the_page("cdigen run", engine))
    try:
        ask = f"{engine} exec cdigen {PROBE} /host/run/cdigen/http.sock"
        wait_until(lambda: host.attempt(f"{ask} /readyz").returncode == 0, "the daemon is ready")
        host.run(f"{ask} /healthz")
        spec = host.run("cat /run/cdi/nvidia.com-gpu.json")
        # Nothing that starts a container needs the image.
        assert '"/host' not in spec
        assert "hooks" not in json.loads(spec)["containerEdits"]
        assert host.run(seen).split() == ["/dev/nvidia0", "ok"]
        assert "nvidia.com/gpu" in host.run(f"{engine} exec cdigen cdigen status --root /host")
        before = time.monotonic()
        host.run(f"{engine} stop --time 30 cdigen")
        assert time.monotonic() - before < 10
        assert '"event": "stopped"' in host.run(f"{engine} logs cdigen 2>&1")
        assert host.run(seen).split() == ["/dev/nvidia0", "ok"]
    finally:
        host.attempt(f"{engine} logs cdigen; {engine} rm --force cdigen")
    host.run(of_the_page("cdigen withdraw", engine))
    assert host.run("ls /run/cdi /h/run/cdi").split() == ["/h/run/cdi:", "/run/cdi:"]


def test_the_extender_needs_no_rights(host: Host, tmp_path: Path) -> None:
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
        # As its manifest starts it (examples/kubernetes/gpushare/extender.yaml).
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
def test_the_mount_that_a_container_lacks_is_named_with_its_option(host: Host, engine: str) -> None:
    least = "--network none --read-only --cap-drop all --user 0"

    def found(*mounts: str) -> str:
        volumes = " ".join(f"--volume {mount}" for mount in mounts)
        done = host.attempt(f"{engine} run --rm {least} {volumes} {IMAGE} cdigen doctor --root /host --json")
        results = json.loads(done.stdout)
        return "".join(each["detail"] for each in results if each["check"] == "host-mounts")

    # In the order in which they are added, each by the words of what was found. What is mounted below / is
    # read-only with Docker alone: /run is a file system of its own.
    mounts = ["/sys:/host/sys:ro"]
    wanted = ["/:/host:ro,rslave", "/var/lib/cdigen:/host/var/lib/cdigen:rw,rslave"]
    for asked in [*wanted, "/run:/host/run:rw,rslave"][: 3 if engine == "docker" else 2]:
        assert f"'--volume {asked}'" in found(*mounts)
        mounts = [mount for mount in mounts if ":/host/sys" not in mount] + [asked]
    assert found(*mounts) == "all that is needed of the host is mounted, or it is a recorded one"


def test_nvidias_library_of_the_host_is_loaded_where_it_is_named(host: Host) -> None:
    library = "/host/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.550.163.01"
    child = "/usr/lib/python3/dist-packages/cdigen/vendors/nvidia/nvml/child"
    least = "--network none --read-only --cap-drop all --user 0 --volume /h:/host:ro,rslave"
    said = host.attempt(f"podman run --rm {least} {IMAGE} python3 -I {child} {library} identity")
    assert "NVML_ERROR_DRIVER_NOT_LOADED" in said.stdout, said
