"""Device nodes are opened in a child process. If a node hangs, the other nodes are opened later."""

import os
import stat
from pathlib import Path

from cdigen.vendors.kernel.opening import unopenable


def test_a_node_that_can_be_opened_is_not_reported() -> None:
    assert unopenable(("/dev/null", "/dev/zero")) == ({}, ())
    assert unopenable(()) == ({}, ())


def test_an_error_that_the_device_did_not_cause_is_not_reported(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/dev/null")
    assert unopenable((str(tmp_path / "missing"), str(link), "/dev/null/x", str(tmp_path))) == ({}, ())


def test_a_node_without_a_driver_is_reported_with_the_reason(root: Path) -> None:
    node = root / "node"
    os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(240, 77))
    refused, hung = unopenable(("/dev/null", str(node), "/dev/zero"))
    assert (refused, hung) == ({str(node): "No such device or address"}, ())


def test_a_node_that_hangs_is_reported_and_the_next_node_is_opened() -> None:
    assert unopenable(("/dev/null", "/dev/zero"), deadline_s=0.0001) == ({}, ("/dev/null", "/dev/zero"))
    assert unopenable(("/dev/null\0", "/dev/null")) == ({}, ("/dev/null\0",))
