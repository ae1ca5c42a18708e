"""Processes that use DRM devices, from the fdinfo of amdgpu, i915 and xe (drm-usage-stats.rst)."""

import os
from pathlib import Path

import pytest
from support.hosts.driver_files import link, put
from support.values.devices import host_node

from cdigen.host.root import Root
from cdigen.model.inventory import HostNode
from cdigen.vendors.kernel.drm.clients import Clients, read_clients

AMD, XE = "0000:05:00.0", "0000:03:00.0"
FDINFO = (
    "pos:\t0\nflags:\t02100002\ndrm-driver:\t{driver}\ndrm-pdev:\t{pdev}\ndrm-client-id:\t{client}\n{memory}"
)
OF_AMDGPU = "drm-memory-vram:\t123 KiB\ndrm-memory-gtt:\t9 MiB\n"
OF_NEWER_AMDGPU = "drm-total-vram:\t500 KiB\ndrm-resident-vram:\t200 KiB\ndrm-memory-vram:\t200 KiB\n"
OF_XE = (
    "drm-total-vram0:\t4 MiB\ndrm-resident-vram0:\t2 MiB\ndrm-resident-vram1:\t1024\ndrm-resident-gtt:\t9\n"
)
OF_I915 = "drm-resident-system0:\t7 MiB\ndrm-resident-local0:\t1 GiB\n"


def node(number: int) -> HostNode:
    return host_node(f"/dev/dri/renderD{number}", "render", major=226, minor=number, mode=0o660)


@pytest.fixture
def host(tmp_path: Path, real_nodes: None) -> Path:  # noqa: ARG001 - nodes must be real
    """Return a host with two render nodes, and with a process that uses no render node."""
    (tmp_path / "dev/dri").mkdir(parents=True)
    for number in (128, 129):
        os.mknod(tmp_path / f"dev/dri/renderD{number}", 0o20660, os.makedev(226, number))
    (tmp_path / "proc/1/fd").mkdir(parents=True)
    link(tmp_path / "proc/1/fd/0", "/dev/null")
    link(tmp_path / "proc/1/fd/1", "socket:[123]")
    put(tmp_path / "proc/version", b"Linux\n")
    return tmp_path


def use(host: Path, pid: int, file: int, number: int, text: str) -> None:
    (host / f"proc/{pid}/fd").mkdir(parents=True, exist_ok=True)
    link(host / f"proc/{pid}/fd/{file}", str(host / f"dev/dri/renderD{number}"))
    put(host / f"proc/{pid}/fdinfo/{file}", text.encode())


def info(pdev: str = AMD, memory: str = "", client: int = 7, driver: str = "amdgpu") -> str:
    return FDINFO.format(driver=driver, pdev=pdev, client=client, memory=memory)


def read(host: Path, *numbers: int) -> Clients:
    return read_clients(Root(str(host)), [node(number) for number in numbers or (128, 129)])


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (OF_AMDGPU, 123 << 10),
        (OF_NEWER_AMDGPU, 200 << 10),
        (OF_XE, (2 << 20) + 1024),
        (OF_I915, 1 << 30),
        ("", None),
        ("drm-resident-system0:\t7 MiB\n", None),
        ("drm-memory-vram:\tlots\n", None),
    ],
)
def test_a_process_has_the_device_memory_that_its_driver_reports(
    host: Path, memory: str, expected: int | None
) -> None:
    use(host, 100, 5, 128, info(memory=memory))
    assert read(host) == Clients(by_address={AMD: {100: expected}}, is_complete=True)


def test_the_memory_of_a_process_is_the_sum_of_its_clients_and_each_client_is_added_once(host: Path) -> None:
    use(host, 100, 5, 128, info(memory=OF_AMDGPU))
    use(host, 100, 6, 128, info(memory=OF_AMDGPU))
    use(host, 100, 7, 128, info(memory=OF_AMDGPU, client=8))
    use(host, 200, 3, 129, info(XE, OF_XE, driver="xe"))
    assert read(host).by_address == {AMD: {100: 246 << 10}, XE: {200: (2 << 20) + 1024}}


def test_the_drivers_of_devices_that_are_not_requested_are_not_queried(host: Path) -> None:
    use(host, 100, 5, 128, "")
    (host / "proc/100/fdinfo/5").unlink()
    os.mkfifo(host / "proc/100/fdinfo/5")
    use(host, 200, 3, 129, info(XE, OF_XE, driver="xe"))
    assert read(host, 129) == Clients(by_address={XE: {200: (2 << 20) + 1024}}, is_complete=True)
    assert read_clients(Root(str(host)), []) == Clients(by_address={}, is_complete=True)


def test_the_result_is_incomplete_if_a_driver_hangs(host: Path) -> None:
    use(host, 100, 5, 128, "")
    (host / "proc/100/fdinfo/5").unlink()
    os.mkfifo(host / "proc/100/fdinfo/5")
    assert read_clients(Root(str(host)), [node(128)], deadline_s=1.0) == Clients(
        by_address={}, is_complete=False
    )


def test_the_result_is_incomplete_if_there_is_no_process(host: Path) -> None:
    (host / "proc/1").rename(host / "proc/self")
    assert read(host) == Clients(by_address={}, is_complete=False)


def test_a_file_whose_fdinfo_has_no_device_is_skipped(host: Path) -> None:
    use(host, 100, 5, 128, "pos:\t0\n")
    use(host, 200, 5, 128, "\xff\x00drm-pdev:\n")
    assert read(host) == Clients(by_address={}, is_complete=True)


def test_the_processes_of_this_machine_are_read() -> None:
    assert read_clients(Root("/"), [node(128)]).by_address == {}
