"""The doctor reports a configuration that users other than root may change."""

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
    """Return the configuration file of HOST. Only root may change the file."""
    return host.put(CONFIG, "nvml: 'off'\n")


@pytest.mark.usefixtures("configured")
def test_a_configuration_that_only_root_may_change_passes(host: BrokenHost) -> None:
    assert host.result("configuration-trust")["detail"] == f"only root may change /{CONFIG}"


@pytest.mark.parametrize("part", [CONFIG, "etc/cdigen", "etc"])
@pytest.mark.parametrize("mode", [0o757, 0o777])
def test_the_remedy_protects_a_configuration_that_other_users_may_write(
    host: BrokenHost, configured: Path, part: str, mode: int
) -> None:
    assert configured.is_file()
    (host.root / part).chmod(mode)
    row = host.result("configuration-trust")
    assert (row["ok"], row["severity"]) == (False, "warning")
    assert f"/{CONFIG}: services of root read it, and /{part} is writable by everyone" in row["detail"]
    host.fixed(row)


def test_the_remedy_makes_root_the_owner_of_the_configuration(
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


def test_a_configuration_from_the_command_line_is_not_checked(host: BrokenHost, configured: Path) -> None:
    configured.chmod(0o666)
    own = host.put("own.yaml", "nvml: 'off'\n")
    assert all(row["check"] != "configuration-trust" for row in host.results(f"--config {own}"))


def test_a_read_only_configmap_passes(host: BrokenHost, configured: Path, own_mounts: None) -> None:
    """The kubelet sets mode 0777 on the folder of a ConfigMap volume, and mounts it read-only."""
    del own_mounts
    folder = configured.parent
    folder.chmod(0o777)
    succeeded(["mount", "--bind", "-o", "ro", str(folder), str(folder)])
    try:
        row = host.result("configuration-trust")
    finally:
        succeeded(["umount", str(folder)])
    assert row["detail"] == f"/{CONFIG} is on a read-only mount"
