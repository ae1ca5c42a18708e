"""Every file of a host, replaced by an empty one, one at a time: something is said, and nothing breaks."""

from pathlib import Path

import pytest
from support.hosts import driver_files
from support.hosts.mig import write_instance, write_minors
from support.hosts.nvidia import boot, discover

from cdigen.host.root import Root
from cdigen.model.errors import HostError
from cdigen.model.findings import Finding

pytestmark = pytest.mark.usefixtures("real_nodes")

# Files of /sys only confirm what /proc has said: without them nothing is lost that would be served. The
# processor is asked only for the layout hwcaps (test_delivery.py).
CONFIRMING = ("/sys/", "/proc/cpuinfo")


def said(root: Path) -> tuple[Finding, ...] | HostError:
    try:
        return discover(root).findings
    except HostError as error:
        return error


def test_each_emptied_file_has_its_finding_and_costs_no_traceback(tmp_path: Path) -> None:
    driver_files.debian_13(tmp_path)
    boot(tmp_path, 2)
    write_minors(tmp_path, 2)
    write_instance(tmp_path, 0, 7)
    before = said(tmp_path)
    assert not isinstance(before, HostError)
    files = [path for path in sorted(tmp_path.rglob("*")) if path.is_file() and not path.is_symlink()]
    assert len(files) > 60
    silent = []
    for path in files:
        content = path.read_bytes()
        path.write_bytes(b"")
        after = said(tmp_path)
        path.write_bytes(content)
        if isinstance(after, HostError) or set(after) - set(before):
            continue
        silent.append(Root(str(tmp_path)).resolve(f"/{path.relative_to(tmp_path)}"))
    assert [path for path in silent if not path.startswith(CONFIRMING)] == []
