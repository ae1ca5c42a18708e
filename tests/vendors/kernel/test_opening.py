"""Device nodes are tried in a process of their own: one that hangs costs the others only time."""

import os
import stat
from pathlib import Path

from cdigen.vendors.kernel.opening import unopenable


def test_what_can_be_opened_is_not_named() -> None:
    assert unopenable(("/dev/null", "/dev/zero")) == ({}, ())
    assert unopenable(()) == ({}, ())


def test_what_says_nothing_of_the_device_is_not_named(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/dev/null")
    assert unopenable((str(tmp_path / "missing"), str(link), "/dev/null/x", str(tmp_path))) == ({}, ())


def test_a_node_without_a_driver_is_named_with_the_reason(root: Path) -> None:
    node = root / "node"
    os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(240, 77))
    refused, hung = unopenable(("/dev/null", str(node), "/dev/zero"))
    assert (refused, hung) == ({str(node): "No such device or address"}, ())


def test_a_node_that_hangs_is_named_and_the_next_one_is_tried() -> None:
    assert unopenable(("/dev/null", "/dev/zero"), deadline_s=0.0001) == ({}, ("/dev/null", "/dev/zero"))
    assert unopenable(("/dev/null\0", "/dev/null")) == ({}, ("/dev/null\0",))
