"""cdigen-kubelet is installed, upgraded and uninstalled with `make` on a clean Debian 13 with systemd.

The tests run the commands of docs/how-to/install.md and docs/how-to/upgrade-and-remove.md, all on one
installation. GPUs have real nodes in /dev. The kubelet is a test double.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.booted_host import GpuHost, eventually, gpu_host, locked_wheels
from support.containers.booted_kubelet import GPU, PRETENDED, healthy, kubelet_at
from support.containers.chroot_host import DEBIAN_IMAGE
from support.containers.starting_containers import REFUSAL
from support.hosts.nvidia_kernel import write
from support.kubelet.double import Kubelet
from support.kubelet.nfd_worker import FOLDER, labels_of
from support.paths import REPOSITORY

pytestmark = pytest.mark.e2e

DRIVER = "550.163.01"
UNIT = "cdigen-kubelet"
MAKE = "PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels make --silent --directory=/cdigen"
DROP_INS = f"/etc/systemd/system/{UNIT}.service.d"
API = """\
import http.server

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, self.headers["Authorization"], flush=True)
        self.send_error(404)

http.server.HTTPServer(("127.0.0.1", 8001), Handler).serve_forever()
"""
ELSEWHERE = "/var/snap/microk8s/common/var/lib/kubelet"
SOURCES = ("cdigen", "etc", "schemas", "Makefile", "pyproject.toml", "requirements.lock")


def put_sources(root: Path) -> None:
    """Copy the sources to /cdigen of the host ROOT, and the wheels of their dependencies to /wheels."""
    configure(root)
    locked_wheels(root)
    (root / "cdigen").mkdir()
    for name in SOURCES:
        if (REPOSITORY / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(REPOSITORY / name, root / "cdigen" / name, ignore=ignored)
        else:
            shutil.copy(REPOSITORY / name, root / "cdigen")


def configure(root: Path, kubelet: str = "{}") -> None:
    write(root / "etc/cdigen/config.yaml", f"{PRETENDED}\nkubelet: {kubelet}\n")


@pytest.fixture(scope="module")
def gpus(cache: Path, images: Path) -> Iterator[GpuHost]:
    with gpu_host(cache / "host-trixie", DRIVER, images=images, install=put_sources) as found:
        # systemd does this at boot, so that later mounts are visible in services.
        found.host.run("mount --make-rshared /")
        yield found


@pytest.fixture
def kubelet(gpus: GpuHost) -> Iterator[Kubelet]:
    with kubelet_at(gpus, "/var/lib/kubelet") as double:
        yield double


def has_gpus(kubelet: Kubelet, gpus: GpuHost) -> None:
    assert eventually(lambda: len(healthy(kubelet)) == 2), gpus.host.run(f"journalctl -u {UNIT} -n 40")


def unit_property(gpus: GpuHost, name: str) -> str:
    return gpus.host.run(f"systemctl show --property={name} --value {UNIT}").strip()


def test_the_service_is_disabled_after_installation_and_waits_for_the_kubelet(gpus: GpuHost) -> None:
    gpus.host.run(f"{MAKE} install")
    gpus.host.run("systemctl daemon-reload; systemctl enable --now cdigen; cdigen status")
    assert gpus.host.attempt(f"systemctl is-enabled {UNIT}").stdout == "disabled\n"
    assert gpus.host.attempt(f"systemctl is-active {UNIT}").stdout == "inactive\n"
    gpus.host.run(f"systemctl enable --now {UNIT}")
    # The service is idle until it has read the inventory.
    assert eventually(lambda: "kubelet: waiting" in gpus.host.run("cdigen status"))


def test_a_container_has_the_gpu_of_the_allocate_response(gpus: GpuHost, kubelet: Kubelet) -> None:
    has_gpus(kubelet, gpus)
    response = kubelet.endpoints[GPU].allocate(healthy(kubelet)[0])
    (name,) = (device.name for device in response.cdi_devices)
    assert list(response.annotations.values()) == [name]
    run = f"podman run --rm --device {name} {DEBIAN_IMAGE}"
    assert gpus.host.run(f"{run} dlopen-all libcuda.so.1").startswith("ok ")
    assert len(gpus.host.run(f"{run} sh -c 'ls /dev/nvidia[0-9]*'").split()) == 1


def test_after_a_reload_the_allocate_response_has_real_device_nodes(gpus: GpuHost, kubelet: Kubelet) -> None:
    has_gpus(kubelet, gpus)
    configure(gpus.root, "{device_nodes: true}")
    gpus.host.run(f"systemctl reload {UNIT}")

    def nodes() -> list[str]:
        response = kubelet.endpoints[GPU].allocate(healthy(kubelet)[0])
        return [device.host_path for device in response.devices]

    assert eventually(lambda: len(nodes()) > 0)
    given = nodes()
    assert "/dev/nvidiactl" in given
    gpus.host.run(" && ".join(f"test -c {path}" for path in given))
    # With an invalid configuration the reload fails, and the previous configuration stays active.
    configure(gpus.root, "{colour: blue}")
    assert gpus.host.attempt(f"systemctl reload {UNIT}").returncode != 0
    assert unit_property(gpus, "ActiveState") == "active"
    assert nodes() == given
    configure(gpus.root)
    gpus.host.run(f"systemctl reload {UNIT}")
    assert eventually(lambda: nodes() == [])


def test_the_service_uses_a_disk_that_is_mounted_over_the_kubelets_folder(gpus: GpuHost) -> None:
    gpus.host.run("mkdir -p /srv/disk /var/lib/kubelet; mount --bind /srv/disk /var/lib/kubelet")
    try:
        with kubelet_at(gpus, "/srv/disk") as kubelet:
            has_gpus(kubelet, gpus)
    finally:
        gpus.host.run("umount /var/lib/kubelet")


def test_the_drop_in_kubelet_dir_sets_the_path_of_the_kubelets_folder(gpus: GpuHost) -> None:
    gpus.host.run(
        f"mkdir -p {ELSEWHERE} {DROP_INS}; "
        f"cp /usr/share/doc/cdigen/kubelet/kubelet-dir.conf.example {DROP_INS}/kubelet-dir.conf; "
        f"systemctl daemon-reload; systemctl restart {UNIT}"
    )
    with kubelet_at(gpus, ELSEWHERE) as kubelet:
        has_gpus(kubelet, gpus)
        gpus.host.run(f"rm {DROP_INS}/kubelet-dir.conf; systemctl daemon-reload; systemctl restart {UNIT}")
        assert os.listdir(kubelet.plugins) == ["kubelet.sock"]


def test_the_drop_in_for_shared_memory_permits_requests_to_the_api_server(gpus: GpuHost) -> None:
    server = {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:8001"}}]}
    chosen = {"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "current-context": "c"}
    write(gpus.root / "api.py", API)
    # Only root can read the files of kubeadm. With the drop-in, the service can read them.
    pki = gpus.root / "var/lib/kubelet/pki"
    write(pki / "token", "secret")
    user = {"users": [{"name": "u", "user": {"tokenFile": "/var/lib/kubelet/pki/token"}}]}
    config = gpus.root / "etc/kubernetes/kubelet.conf"
    write(config, json.dumps(server | chosen | user))
    for path, mode in ((config, 0o600), (pki / "token", 0o600), (pki, 0o700)):
        path.chmod(mode)
    configure(gpus.root, "{shared_memory: {unit: GiB}}")
    gpus.host.run(
        "systemd-run --unit=api python3 -u /api.py; "
        f"mkdir -p {DROP_INS}; systemctl stop {UNIT}; "
        f"cp /usr/share/doc/cdigen/kubelet/shared-memory.conf.example {DROP_INS}/shared-memory.conf; "
        f"systemctl daemon-reload; systemctl start {UNIT}"
    )
    request = re.compile("^/api/v1/pods.* Bearer secret$", re.MULTILINE)
    found = eventually(lambda: request.search(gpus.host.run("journalctl --output=cat --unit=api")))
    assert found, gpus.host.run(f"journalctl --unit={UNIT} --lines=20")
    configure(gpus.root)
    gpus.host.run(
        f"systemctl stop api; rm -r /etc/kubernetes /var/lib/kubelet/pki {DROP_INS}/shared-memory.conf; "
        f"systemctl daemon-reload; systemctl restart {UNIT}"
    )


def test_the_drop_in_for_labels_permits_writes_only_to_nfds_folder(gpus: GpuHost) -> None:
    configure(gpus.root, f"{{labels: /{FOLDER}/cdigen}}")
    gpus.host.run(f"systemctl restart {UNIT}; mkdir -p /{FOLDER}")
    denied = eventually(lambda: "Read-only file system" in gpus.host.run("cdigen status"))
    assert denied, gpus.host.run("cdigen status")
    gpus.host.run(
        f"rm -r /etc/kubernetes; mkdir -p {DROP_INS}; "
        f"cp /usr/share/doc/cdigen/kubelet/labels.conf.example {DROP_INS}/labels.conf; "
        f"systemctl daemon-reload; systemctl restart {UNIT}"
    )
    features = gpus.root / FOLDER
    assert eventually(lambda: labels_of(features).get("nvidia.com/gpu.count") == "2")
    assert labels_of(features)["nvidia.com/cuda.driver-version.full"] == DRIVER
    pid = unit_property(gpus, "MainPID")
    gpus.host.run("mkdir /etc/kubernetes/manifests")
    assert gpus.host.attempt(f"nsenter -t {pid} -m touch /etc/kubernetes/manifests/x").returncode != 0
    configure(gpus.root)
    assert eventually(lambda: os.listdir(features) == [])
    # The service also starts if the folder of the labels cannot be created.
    gpus.host.run(f"rm -r /etc/kubernetes; ln -s /run/missing /etc/kubernetes; systemctl restart {UNIT}")
    gpus.host.run(
        f"rm -r {DROP_INS}/labels.conf /etc/kubernetes; systemctl daemon-reload; systemctl restart {UNIT}"
    )


def test_the_service_is_a_new_process_and_registers_again_after_an_upgrade(
    gpus: GpuHost, kubelet: Kubelet
) -> None:
    has_gpus(kubelet, gpus)
    before = unit_property(gpus, "MainPID")
    gpus.host.run(f"{MAKE} install")
    gpus.host.run("systemctl daemon-reload; systemctl restart cdigen")
    gpus.host.run("systemctl try-restart cdigen-nri cdigen-kubelet; cdigen status")
    assert unit_property(gpus, "MainPID") != before
    assert eventually(lambda: len(kubelet.registered) == 2)
    has_gpus(kubelet, gpus)
    assert gpus.host.attempt("systemctl is-active cdigen-nri").stdout == "inactive\n"


def test_without_grpcio_the_service_logs_one_error_and_is_not_restarted(gpus: GpuHost) -> None:
    gpus.host.run("mv /usr/lib/cdigen/grpc /grpc-away")
    assert gpus.host.attempt(f"systemctl restart {UNIT}").returncode != 0
    assert (unit_property(gpus, "ExecMainStatus"), unit_property(gpus, "NRestarts")) == ("2", "0")
    invocation = unit_property(gpus, "InvocationID")
    lines = gpus.host.run(f"journalctl -o cat _SYSTEMD_INVOCATION_ID={invocation}").splitlines()
    (line,) = lines
    assert "needs the Python module grpcio" in line
    gpus.host.run(f"mv /grpc-away /usr/lib/cdigen/grpc; systemctl start {UNIT}")


def test_uninstallation_ends_the_kubelets_stream_and_leaves_only_the_configuration(
    gpus: GpuHost, kubelet: Kubelet
) -> None:
    has_gpus(kubelet, gpus)
    gpus.host.run(f"{MAKE} uninstall")
    assert kubelet.endpoints[GPU].ended.wait(5)
    assert os.listdir(kubelet.plugins) == ["kubelet.sock"]
    assert unit_property(gpus, "LoadState") == "not-found"
    left = gpus.host.run("find / -xdev -name '*cdigen*' -not -path '/cdigen/*' -not -path '/var/lib/cdigen*'")
    own = {"/cdigen", *(f"/etc/systemd/system/{unit}.service.d" for unit in ("cdigen", "cdigen-once", UNIT))}
    assert set(left.split()) - own == {"/etc/cdigen"}
    refused = gpus.host.attempt(f"podman run --rm --device {GPU}=0 {DEBIAN_IMAGE} true")
    assert REFUSAL in refused.stderr
