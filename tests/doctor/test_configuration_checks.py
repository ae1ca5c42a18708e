"""The doctor reports a configuration that others than root may change."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.processes import succeeded

if TYPE_CHECKING:
    from pathlib import Path

    from support.doctor.broken_host import BrokenHost

CONFIG = "etc/cdigen/config.yaml"


@pytest.fixture
def configured(host: BrokenHost) -> Path:
    """Return the configuration of HOST, which root alone may change."""
    return host.put(CONFIG, "nvml: 'off'\n")


@pytest.mark.usefixtures("configured")
def test_a_configuration_that_root_alone_may_change_is_good(host: BrokenHost) -> None:
    assert host.result("configuration-trust")["detail"] == f"only root may change /{CONFIG}"


@pytest.mark.parametrize("part", [CONFIG, "etc/cdigen", "etc"])
@pytest.mark.parametrize("mode", [0o757, 0o777])
def test_a_configuration_that_others_may_write_is_closed_by_the_remedy(
    host: BrokenHost, configured: Path, part: str, mode: int
) -> None:
    assert configured.is_file()
    (host.root / part).chmod(mode)
    row = host.result("configuration-trust")
    assert (row["ok"], row["severity"]) == (False, "warning")
    assert f"root's services read /{CONFIG}, and /{part} is writable by everyone" in row["detail"]
    host.fixed(row)


def test_a_configuration_of_another_user_is_given_to_root(
    host: BrokenHost, configured: Path, other_users: None
) -> None:
    del other_users
    os.chown(configured, 4201, 4201)
    row = host.result("configuration-trust")
    assert f"/{CONFIG} belongs to uid 4201, not to root" in row["detail"]
    host.fixed(row)
    assert configured.stat().st_uid == 0


def test_no_remedy_follows_a_link_that_another_user_may_change(
    host: BrokenHost, configured: Path, other_users: None
) -> None:
    del other_users
    configured.unlink()
    target = host.put("home/alice/config.yaml", "nvml: 'off'\n")
    os.chown(target, 4201, 4201)
    os.chown(target.parent, 4201, 4201)
    configured.symlink_to("/home/alice/config.yaml")
    row = host.result("configuration-trust")
    assert (row["ok"], row["remedy"]) == (False, "")


def test_another_file_of_the_command_line_is_the_callers_affair(host: BrokenHost, configured: Path) -> None:
    configured.chmod(0o666)
    own = host.put("own.yaml", "nvml: 'off'\n")
    assert all(row["check"] != "configuration-trust" for row in host.ask(f"--config {own}"))


def test_a_configmap_is_on_a_read_only_mount(host: BrokenHost, configured: Path, own_mounts: None) -> None:
    """The kubelet gives the volume's folder mode 0777, and mounts it read-only."""
    del own_mounts
    folder = configured.parent
    folder.chmod(0o777)
    succeeded(["mount", "--bind", "-o", "ro", str(folder), str(folder)])
    try:
        row = host.result("configuration-trust")
    finally:
        succeeded(["umount", str(folder)])
    assert row["detail"] == f"/{CONFIG} is on a read-only mount"
