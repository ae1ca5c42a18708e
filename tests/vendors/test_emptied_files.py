"""If any file of a host is empty, a finding reports this. The test empties one file at a time."""

from pathlib import Path

import pytest
from support.hosts import driver_files
from support.hosts.mig import write_instance, write_minors
from support.hosts.nvidia import boot, discover

from cdigen.host.root import Root
from cdigen.model.errors import HostError
from cdigen.model.findings import Finding

pytestmark = pytest.mark.usefixtures("real_nodes")

# Files in /sys only confirm the files in /proc. Without the files in /sys, cdigen finds the same devices.
# /proc/cpuinfo is read only for the layout hwcaps (test_delivery.py).
CONFIRMING = ("/sys/", "/proc/cpuinfo")


def findings_of(root: Path) -> tuple[Finding, ...] | HostError:
    try:
        return discover(root).findings
    except HostError as error:
        return error


def test_each_emptied_file_causes_a_finding_and_no_traceback(tmp_path: Path) -> None:
    driver_files.debian_13(tmp_path)
    boot(tmp_path, 2)
    write_minors(tmp_path, 2)
    write_instance(tmp_path, 0, 7)
    before = findings_of(tmp_path)
    assert not isinstance(before, HostError)
    files = [path for path in sorted(tmp_path.rglob("*")) if path.is_file() and not path.is_symlink()]
    assert len(files) > 60
    silent = []
    for path in files:
        content = path.read_bytes()
        path.write_bytes(b"")
        after = findings_of(tmp_path)
        path.write_bytes(content)
        if isinstance(after, HostError) or set(after) - set(before):
            continue
        silent.append(Root(str(tmp_path)).resolve(f"/{path.relative_to(tmp_path)}"))
    assert [path for path in silent if not path.startswith(CONFIRMING)] == []
