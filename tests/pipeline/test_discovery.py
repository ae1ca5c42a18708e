"""Discovery returns an inventory or a failure for each vendor.

tests/vendors/test_registry.py has hosts with several vendors, and a vendor whose code fails.
"""

from pathlib import Path

import pytest
from support.hosts import driver_files
from support.hosts.nvidia import install, places

from cdigen.pipeline import discovery


@pytest.mark.usefixtures("real_nodes")
def test_discover_returns_an_inventory_for_a_ready_host(tmp_path: Path) -> None:
    install(tmp_path, driver_files.ubuntu, gpus=2)
    found, failures = discovery.discover(("nvidia",), places(tmp_path))
    assert found.keys() == {"nvidia"}
    assert failures == {}


def test_discover_returns_a_failure_for_a_host_without_a_driver(tmp_path: Path) -> None:
    found, failures = discovery.discover(("nvidia",), places(tmp_path))
    assert found == {}
    assert failures["nvidia"].kind == "driver-not-loaded"
