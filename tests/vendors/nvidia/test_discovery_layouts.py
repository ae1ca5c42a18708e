"""The driver is found in the layout of each distribution."""

from pathlib import Path
from typing import NamedTuple

import pytest
from support.hosts import driver_files
from support.hosts.driver_files import Laid
from support.hosts.nvidia import boot, discover, install, places

from cdigen.model.inventory import Inventory
from cdigen.pipeline import generate
from cdigen.vendors.nvidia.vendor import VENDOR

pytestmark = pytest.mark.usefixtures("real_nodes")

LAYOUTS = (
    driver_files.debian_13,
    driver_files.debian_12,
    driver_files.debian_tesla_470,
    driver_files.ubuntu,
    driver_files.ubuntu_aarch64,
    driver_files.red_hat,
    driver_files.arch,
    driver_files.nixos,
    driver_files.container_optimized_os,
    driver_files.talos,
    driver_files.bottlerocket,
)


class Host(NamedTuple):
    root: Path
    laid: Laid
    inventory: Inventory


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda layout: layout.__name__)
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Host:
    root = tmp_path_factory.mktemp(request.param.__name__)
    laid = install(root, request.param, gpus=2)
    return Host(root, laid, discover(root))


def libraries(inventory: Inventory) -> dict[str, str]:
    return {name: file.host_path for file in inventory.files for name in file.names}


def targets(inventory: Inventory) -> dict[str, str]:
    return {target: file.host_path for file in inventory.files for target in file.targets}


def test_every_library_is_found_with_its_names_and_its_real_file(host: Host) -> None:
    assert libraries(host.inventory) == host.laid.libraries


def test_every_other_file_is_found_with_its_path_in_the_container(host: Host) -> None:
    assert targets(host.inventory) == host.laid.files


def test_a_complete_driver_has_no_finding(host: Host) -> None:
    assert host.inventory.findings == ()


def test_the_search_results_contain_exactly_the_files_of_the_inventory(host: Host) -> None:
    searched = {path for thing in host.inventory.searched for path in thing.found}
    assert searched == {file.host_path for file in host.inventory.files}


def test_every_path_is_a_real_file_of_the_host(host: Host) -> None:
    for file in host.inventory.files:
        path = host.root / file.host_path.lstrip("/")
        assert path.is_file()
        assert path.resolve() == path


def test_the_only_finding_about_the_spec_is_missing_forward_compatibility(host: Host) -> None:
    where = places(host.root)
    products, broken = generate.generate_specs({"nvidia": host.inventory}, host=where.host)
    assert not broken
    assert [[finding.rule for finding in product.findings] for product in products] == [
        ["no-forward-compatibility"]
    ]
    assert [product.document["cdiVersion"] for product in products] == ["0.5.0"]


@pytest.mark.parametrize("folder", ["/opt/vendor/nvidia", "/mnt/state/drivers"])
def test_a_driver_in_a_folder_that_only_the_loader_cache_lists_is_found(tmp_path: Path, folder: str) -> None:
    laid = driver_files.own_folder(tmp_path, folder=folder)
    driver_files.write_loader_cache(tmp_path, f"{folder}/lib64")
    boot(tmp_path)
    inventory = discover(tmp_path)
    assert libraries(inventory) == laid.libraries
    assert targets(inventory) == laid.files


def test_a_driver_in_two_folders_with_one_in_the_loader_cache_is_found_completely(tmp_path: Path) -> None:
    laid = driver_files.container_optimized_os(tmp_path)
    moved = "/opt/vendor/nvidia/lib64"
    source = tmp_path / "home/kubernetes/bin/nvidia/lib64"
    target = tmp_path / moved.lstrip("/")
    target.mkdir(parents=True)
    for path in source.glob("libnvidia-*"):
        path.rename(target / path.name)
    driver_files.write_loader_cache(tmp_path, moved)
    boot(tmp_path)
    found = libraries(discover(tmp_path))
    assert found.keys() == laid.libraries.keys()
    assert found["libcuda.so.1"] == laid.libraries["libcuda.so.1"]
    assert found["libnvidia-ml.so.1"].startswith(moved)


def test_the_driver_of_plain_container_optimized_os_needs_no_loader_cache(tmp_path: Path) -> None:
    laid = driver_files.own_folder(tmp_path, folder="/var/lib/nvidia")
    boot(tmp_path)
    assert libraries(discover(tmp_path)) == laid.libraries


def test_files_of_a_driver_container_have_host_paths_with_its_prefix(tmp_path: Path) -> None:
    prefix = "/run/nvidia/driver"
    laid = driver_files.ubuntu(tmp_path / prefix.lstrip("/"))
    boot(tmp_path)
    inventory = VENDOR.discover(places(tmp_path, driver=prefix))
    assert libraries(inventory) == {name: prefix + path for name, path in laid.libraries.items()}
    assert targets(inventory) == {name: prefix + path for name, path in laid.files.items()}


def test_nodes_below_a_dev_root_have_their_usual_paths_in_the_container(tmp_path: Path) -> None:
    driver_files.ubuntu(tmp_path)
    boot(tmp_path)
    (tmp_path / "srv").mkdir()
    (tmp_path / "dev").rename(tmp_path / "srv/dev")
    inventory = VENDOR.discover(places(tmp_path, dev="/srv"))
    nodes = [
        node for node in (*inventory.nodes, *inventory.accelerators[0].nodes) if "by-path" not in node.path
    ]
    assert {node.host_path for node in nodes} == {f"/srv{node.path}" for node in nodes}
    assert "/dev/nvidia0" in {node.path for node in nodes}


def test_the_library_folder_of_earlier_talos_releases_is_searched(tmp_path: Path) -> None:
    laid = driver_files.talos(tmp_path, libraries="/usr/local/glibc/usr/lib")
    boot(tmp_path)
    assert libraries(discover(tmp_path)) == laid.libraries


@pytest.mark.parametrize("stem", ["libEGL", "libGL", "libGLESv1_CM", "libGLESv2", "libGLX", "libOpenCL"])
def test_libraries_that_several_vendors_have_are_never_libraries_of_the_driver(
    tmp_path: Path, stem: str
) -> None:
    laid = driver_files.ubuntu(tmp_path)
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    for name in (f"{stem}.so.{driver_files.V550}", f"libnvidia-{stem}.so.{driver_files.V550}"):
        driver_files.write_library(folder / name, f"{stem}.so.1")
    boot(tmp_path)
    inventory = discover(tmp_path)
    assert libraries(inventory) == laid.libraries
    assert not inventory.findings


def test_the_setting_library_search_paths_replaces_all_other_folders(tmp_path: Path) -> None:
    driver_files.ubuntu(tmp_path)
    laid = driver_files.own_folder(tmp_path, folder="/opt/other")
    boot(tmp_path)
    inventory = VENDOR.discover(places(tmp_path, libraries=("/opt/other/lib64",)))
    assert libraries(inventory) == laid.libraries


def test_libraries_are_used_from_the_first_folder_that_has_them(tmp_path: Path) -> None:
    laid = driver_files.ubuntu(tmp_path)
    driver_files.own_folder(tmp_path, folder="/usr/local/nvidia")
    boot(tmp_path)
    assert libraries(discover(tmp_path)) == laid.libraries


def test_of_two_debian_drivers_the_driver_of_the_loaded_module_is_found(tmp_path: Path) -> None:
    driver_files.debian_12(tmp_path)
    laid = install(tmp_path, driver_files.debian_tesla_470)
    inventory = discover(tmp_path)
    assert libraries(inventory) == laid.libraries
    assert targets(inventory) == laid.files
    assert [finding.rule for finding in inventory.findings] == ["other-driver-version"]
