"""After the documented installation on Debian 12 and 13, systemd runs the units, and containers get a view.

GPUs, driver and cdigen are at /, as on a real host. The mounts of the units decide whether cdigen can make
hard links. A unit has a separate network namespace and so a new /sys. Therefore, DRM nodes are not tested.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.containers.booted_host import GpuHost, eventually, gpu_host, status, troubles
from support.containers.chroot_host import DEBIAN_IMAGE
from support.containers.starting_containers import LOADED, Starts
from support.containers.upgrade_host import PACKAGES

pytestmark = pytest.mark.e2e

RELEASES = {"trixie": "550.163.01", "bookworm": "535.216.03"}
VIEWS = "/var/lib/cdigen/views/nvidia-"
SPEC = "/run/cdi/nvidia.com-gpu.json"
ICD = "/etc/OpenCL/vendors/nvidia.icd"
APT = (
    "DEBIAN_FRONTEND=noninteractive apt-get install --assume-yes --no-install-recommends "
    "--option=Dpkg::Options::=--force-unsafe-io {folder}/*.deb"
)
RUN = f"podman run --rm --device nvidia.com/gpu=0 {DEBIAN_IMAGE}"


@pytest.fixture(scope="module", params=RELEASES)
def gpus(request: pytest.FixtureRequest, cache: Path, images: Path) -> Iterator[GpuHost]:
    """Boot Debian 12 and 13, one after the other."""
    tree = cache / f"host-{request.param}"
    with gpu_host(tree, RELEASES[request.param], images=images) as found:
        yield found


def spec(gpus: GpuHost) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gpus.host.run(f"cat {SPEC}"))
    return found


def is_ready(gpus: GpuHost) -> bool:
    rows = {row["vendor"]: row["state"] for row in status(gpus).get("vendors", [])}
    return rows.get("nvidia") == "ready"


def assert_containers_get_the_view(gpus: GpuHost) -> None:
    mounts = {row["containerPath"]: row["hostPath"] for row in spec(gpus)["containerEdits"]["mounts"]}
    assert mounts["/usr/local/nvidia"].startswith(VIEWS)
    # Each mount is the view or a part of the view, so an upgrade cannot remove its source.
    assert [path for path in mounts.values() if not path.startswith(VIEWS)] == []
    assert len(mounts) < 30
    table = [line.split() for line in gpus.host.run(f"{RUN} cat /proc/self/mountinfo").splitlines()]
    (root,) = (row[3] for row in table if row[4] == "/usr/local/nvidia")
    assert root.endswith(mounts["/usr/local/nvidia"])
    assert sum(VIEWS in row[3] for row in table) == len(mounts)
    # /etc is a separate mount in the unit, so cdigen copies this file.
    assert gpus.host.run(f"{RUN} cat {ICD}") == gpus.host.run(f"cat {ICD}")
    for row in gpus.host.run(f"{RUN} dlopen-all {' '.join(LOADED)}").splitlines():
        assert row.startswith("ok /usr/local/nvidia/lib64/"), row


def test_containers_get_a_view_after_the_one_shot_unit(gpus: GpuHost) -> None:
    gpus.host.run("systemctl start cdigen-once")
    assert_containers_get_the_view(gpus)
    gpus.host.run("rm -r /run/cdi /var/lib/cdigen")


def test_containers_get_a_view_from_the_daemons_unit_without_warnings(gpus: GpuHost) -> None:
    gpus.host.run("systemctl start cdigen")
    assert is_ready(gpus)
    assert troubles(gpus) == []
    assert_containers_get_the_view(gpus)


@pytest.mark.parametrize("gpus", ["bookworm"], indirect=True)
def test_containers_that_start_during_an_upgrade_by_apt_have_a_driver(gpus: GpuHost) -> None:
    gpus.host.run("systemctl start cdigen")
    older, newer = gpus.versions
    starts = Starts(gpus.host, gpus.versions)
    with starts:
        gpus.host.run(APT.format(folder=f"/{PACKAGES}/{newer}"), timeout_s=300)
        assert not is_ready(gpus)
        gpus.load_module(newer)
        assert eventually(lambda: is_ready(gpus))
    print(f"from {older} to {newer}: {starts.counts()}")
    assert starts.wrong() == []
    assert starts.counts()["driver"] > 0
    assert_containers_get_the_view(gpus)
    found = gpus.host.run(f"{RUN} find /usr/local/nvidia/lib64/ -name 'libcuda.so.5*'")
    assert found == f"/usr/local/nvidia/lib64/libcuda.so.{newer}\n"
