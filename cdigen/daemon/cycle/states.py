"""Decision tables: ``assess`` returns the state of a vendor, ``decide`` returns the action for its specs.

Both functions are pure. Their arguments describe the host, and whether the daemon may wait for a change.
"""

from __future__ import annotations

from cdigen.model.findings import errors
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from cdigen.daemon.cycle.report import VendorState
    from cdigen.model.errors import HostError
    from cdigen.model.findings import Finding

    SpecCondition = Literal["none", "whole", "broken"]
    Action = Literal["write", "keep", "withdraw", "nothing"]

# The state of a vendor by the error of its discovery. With any other error, the vendor is degraded, because
# it has devices that containers cannot use.
_STATES: dict[str, VendorState] = {
    "driver-not-loaded": "absent",
    "no-gpu": "absent",
    "version-mismatch": "mismatch",
}
# Errors that are expected for a short time while a driver is installed or a module is loaded.
_TRANSIENT_ERRORS = frozenset(
    (
        "version-mismatch",  # the new package is unpacked, the old module stays until a reload or reboot
        "driver-broken",  # a library is being written
        "driver-not-found",  # the module is loaded, the libraries are not installed yet or are already gone
        "no-nodes",  # nvidia-modprobe and udev make the nodes after the module is loaded
        "no-gpu",  # the module is registered before it has found its GPUs
        "no-usable-device",  # the driver makes the files of a GPU one after the other
        "no-mig-instances",  # the instances are being made
    )
)
# Findings about one GPU, or about a node that all GPUs share. Like the errors above, they are expected for a
# short time. For example, nvidia-uvm is a separate module, and its major number changes at each load. Other
# findings about lost or contradictory devices are not transient.
_TRANSIENT_FINDINGS = frozenset(
    (
        "gpu-node-missing",
        "accel-node-missing",
        "control-node-missing",
        "vfio-node-missing",
        "gpu-information-unreadable",
        "mig-instance-unusable",
        # The kernel and NVML disagree for a moment while instances are changed.
        "mig-contradiction",
        # A driver that was just bound to its device has not made the nodes yet.
        "gpu-without-drm",
        "accel-without-node",
        # KFD's topology is rebuilt while a GPU's partitioning changes.
        "kfd-node-unusable",
        "partition-without-kfd",
        "partition-contradiction",
        "partition-missing",
    )
)
# Transient findings that remove partitions of a GPU. The numbers of the remaining partitions then change, and
# later change back.
_RENUMBERING_FINDINGS = frozenset(("partition-without-kfd", "partition-contradiction", "partition-missing"))
# With these findings, the devices in the spec are correct, so the spec is written. NVML is queried again
# soon.
_RETRIED_FINDINGS = frozenset(("mig-names-kept", "mig-not-named"))


@frozen
class VendorStatus:
    """The state of one vendor and its reason.

    ``has_devices`` is true if the vendor has devices for a spec now. ``is_known`` is false after a defect in
    the vendor's code, which does not prove that a device is gone. ``awaits_change`` is true if the host is
    expected to change, so another cycle is due soon. ``transient`` names the expected change. It stays set
    after the daemon has stopped waiting for the change.
    """

    state: VendorState
    has_devices: bool
    is_known: bool = True
    awaits_change: bool = False
    transient: str = ""
    reason: str = ""
    hint: str = ""


def assess(
    failure: HostError | None,
    findings: tuple[Finding, ...] = (),
    *,
    may_wait: Callable[[str], bool],
    busy: str = "",
) -> VendorStatus:
    """Return the state of a vendor whose discovery raised FAILURE, or returned FINDINGS.

    MAY_WAIT returns whether the daemon may still wait for a transient condition. BUSY is the name of a
    package manager that is at work, or "".
    """
    if failure is not None:
        transient = failure.kind if failure.kind in _TRANSIENT_ERRORS else ""
        awaits_change = bool(transient) and may_wait(transient)
        return VendorStatus(
            state="settling" if awaits_change else _STATES.get(failure.kind, "degraded"),
            has_devices=False,
            is_known=failure.kind != "vendor-defect",
            awaits_change=awaits_change,
            transient=transient,
            reason=failure.message,
            hint=failure.hint,
        )
    wrong = errors(findings)
    if wrong:
        rules = [finding.rule for finding in wrong]
        transient = next((rule for rule in rules if rule in _TRANSIENT_FINDINGS), "")
        state: VendorState = "settling" if transient else "degraded"
        transient = transient or next((rule for rule in rules if rule in _RETRIED_FINDINGS), "")
        awaits_change = bool(transient) and may_wait(transient)
        return VendorStatus(
            state=state if awaits_change else "degraded",
            # A device name that will soon mean another device is worse than no name.
            has_devices=not (awaits_change and not _RENUMBERING_FINDINGS.isdisjoint(rules)),
            awaits_change=awaits_change,
            transient=transient,
            reason=wrong[0].message,
            hint=wrong[0].hint,
        )
    if busy:
        awaits_change = may_wait(busy)
        return VendorStatus(
            state="settling" if awaits_change else "ready",
            # An incomplete driver is worse than the runtime's clear error message.
            has_devices=not awaits_change,
            awaits_change=awaits_change,
            transient=busy,
            reason=f"{busy} is at work" if awaits_change else "",
        )
    return VendorStatus(state="ready", has_devices=True)


# A whole spec names only existing files and devices of the running driver. With a broken spec, containers
# fail during their start. Without a spec, the user gets the runtime's clear message ("unresolvable CDI
# devices").
ACTIONS: dict[tuple[VendorState, bool], dict[SpecCondition, Action]] = {
    # (state, has devices): {spec on disk: action}
    ("ready", True): {"none": "write", "whole": "write", "broken": "write"},
    ("degraded", True): {"none": "write", "whole": "write", "broken": "write"},
    ("degraded", False): {"none": "nothing", "whole": "withdraw", "broken": "withdraw"},
    # Some devices are better than no spec. An old spec with all devices is better than a spec with some
    # devices.
    ("settling", True): {"none": "write", "whole": "keep", "broken": "write"},
    ("settling", False): {"none": "nothing", "whole": "keep", "broken": "withdraw"},
    # The old module runs. Containers can start while the files of the spec exist. A view keeps these files.
    ("mismatch", False): {"none": "nothing", "whole": "keep", "broken": "withdraw"},
    ("absent", False): {"none": "nothing", "whole": "withdraw", "broken": "withdraw"},
}


def decide(status: VendorStatus, disk: SpecCondition) -> Action:
    """Return the action for the specs of a vendor with STATUS; DISK is the condition of the specs."""
    if disk == "whole" and not status.is_known:
        return "keep"
    return ACTIONS[status.state, status.has_devices][disk]
