"""A host gives an inventory of each vendor, or the reason why it has none.

What becomes of several vendors, and of one whose code fails, is in tests/vendors/test_registry.py.
"""

from pathlib import Path

import pytest
from support.hosts import driver_files
from support.hosts.nvidia import install, places

from cdigen.pipeline import discovery


@pytest.mark.usefixtures("real_nodes")
def test_a_host_gives_an_inventory_and_no_failure(tmp_path: Path) -> None:
    install(tmp_path, driver_files.ubuntu, gpus=2)
    found, failures = discovery.discover(("nvidia",), places(tmp_path))
    assert found.keys() == {"nvidia"}
    assert failures == {}


def test_a_host_that_is_not_ready_gives_a_failure_and_no_inventory(tmp_path: Path) -> None:
    found, failures = discovery.discover(("nvidia",), places(tmp_path))
    assert found == {}
    assert failures["nvidia"].kind == "driver-not-loaded"
