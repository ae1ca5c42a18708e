"""In a container without the host's file system, the error names the container and the mount."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.hosts.added_vendors import minimal, vendor

from cdigen.pipeline import discovery
from cdigen.vendors.registry import DEFECT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command.fixtures import Done, Run

IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
MESSAGE = "the kernel module nvidia is not loaded"
MOUNT = "mount the host's / with '--volume /:/host:ro,rslave', and add --root /host"


@pytest.fixture
def failing(cdigen_process: Run, tmp_path: Path) -> Callable[[str, str], Done]:
    """Return a function that runs a command in a pod with a vendor whose discovery fails with a kind."""

    def fail(command: str, kind: str) -> Done:
        error = f"HostError({MESSAGE!r}, hint='load it', kind={kind!r})"
        code = minimal(discover=f"from cdigen.model.errors import HostError\n        raise {error}")
        vendor(tmp_path, "added", code)
        return cdigen_process(command, "--vendor", "added", PYTHONPATH=str(tmp_path), **IN_A_POD)

    return fail


@pytest.mark.parametrize(
    "kind", [*sorted(discovery.ABSENT), "no-nodes", "no-mig-instances", "driver-not-found"]
)
@pytest.mark.parametrize("command", ["generate", "inspect"])
def test_the_error_names_the_container_and_the_mount(
    failing: Callable[[str, str], Done], command: str, kind: str
) -> None:
    done = failing(command, kind)
    assert done.failed(3, f"this is a container, and the host is not mounted: {MESSAGE}", MOUNT)


@pytest.mark.parametrize("kind", [DEFECT, "version-mismatch"])
@pytest.mark.parametrize("command", ["generate", "inspect"])
def test_other_errors_of_the_vendor_are_unchanged(
    failing: Callable[[str, str], Done], command: str, kind: str
) -> None:
    done = failing(command, kind)
    assert done.failed(3, f"{MESSAGE}; load it")
    assert "container" not in done.err


def test_with_the_option_root_the_error_does_not_mention_a_container(cdigen: Run, tmp_path: Path) -> None:
    done = cdigen("generate", "--root", tmp_path, **IN_A_POD)
    assert done.code == 3
    assert "container" not in done.err


@pytest.mark.parametrize("command", ["status", "health"])
def test_without_a_daemon_the_error_names_the_container_and_the_mount(
    cdigen: Run, tmp_path: Path, command: str
) -> None:
    options = (command, "--run-dir", tmp_path)
    assert cdigen(*options, **IN_A_POD).failed(3, "this is a container, and the host is not mounted", MOUNT)
    done = cdigen(*options, "--root", tmp_path, **IN_A_POD)
    assert done.failed(3, "start it with 'cdigen run' as root")
    assert "container" not in done.err


def test_an_empty_list_has_the_mount_and_no_command_that_writes_specs(cdigen: Run, tmp_path: Path) -> None:
    options = ("list", "--spec-dir", tmp_path)
    done = cdigen(*options, **IN_A_POD)
    assert (done.code, "generate --write" in done.err) == (0, False)
    assert MOUNT in done.err
    assert cdigen(*options, "--kind", "nvidia.com/gpu", **IN_A_POD).failed(2, MOUNT)
    assert (
        "'cdigen generate --write' writes the specs" in cdigen(*options, "--root", tmp_path, **IN_A_POD).err
    )
