"""In a container without the host's file system, the error names the container and the mount."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdigen.model.errors import HostError
from cdigen.pipeline import discovery
from cdigen.vendors.registry import DEFECT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command.fixtures import Run

IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
MESSAGE = "the kernel module nvidia is not loaded"
MOUNT = "mount the host's / with '--volume /:/host:ro,rslave', and add --root /host"


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that makes discovery fail with an error of the kind in its argument."""

    def fail(kind: str) -> None:
        failures = {"nvidia": HostError(MESSAGE, hint="load it", kind=kind)}
        monkeypatch.setattr(discovery, "discover", lambda *_: ({}, failures))

    return fail


@pytest.mark.parametrize(
    "kind", [*sorted(discovery.ABSENT), "no-nodes", "no-mig-instances", "driver-not-found"]
)
@pytest.mark.parametrize("command", ["generate", "inspect"])
def test_the_error_names_the_container_and_the_mount(
    cdigen: Run, failing: Callable[[str], None], command: str, kind: str
) -> None:
    failing(kind)
    done = cdigen(command, "--vendor", "nvidia", **IN_A_POD)
    assert done.failed(3, f"this is a container, and the host is not mounted: {MESSAGE}", MOUNT)


@pytest.mark.parametrize("kind", [DEFECT, "version-mismatch"])
@pytest.mark.parametrize("command", ["generate", "inspect"])
def test_other_errors_of_the_vendor_are_unchanged(
    cdigen: Run, failing: Callable[[str], None], command: str, kind: str
) -> None:
    failing(kind)
    done = cdigen(command, "--vendor", "nvidia", **IN_A_POD)
    assert done.failed(3, f"{MESSAGE}; load it")
    assert "container" not in done.err


def test_with_the_option_root_the_error_does_not_mention_a_container(cdigen: Run, tmp_path: Path) -> None:
    done = cdigen("generate", "--root", tmp_path, **IN_A_POD)
    assert done.code == 3
    assert "container" not in done.err
