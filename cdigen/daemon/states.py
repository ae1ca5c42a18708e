"""Two tables: ``assess`` names the state of a vendor's GPUs and driver, ``decide`` what to do with its specs.

Pure: the host's condition, and how long it has lasted, are arguments.
"""

from __future__ import annotations

from cdigen.model.findings import errors
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from cdigen.daemon.report import VendorState
    from cdigen.model.errors import HostError
    from cdigen.model.findings import Finding

    SpecCondition = Literal["none", "whole", "broken"]
    Action = Literal["write", "keep", "withdraw", "nothing"]

# Errors that are expected for a moment while a driver is installed or a module is loaded, and the state if
# they last; all other errors count at once.
_TRANSIENT_ERRORS: dict[str, VendorState] = {
    "version-mismatch": "mismatch",  # the package is unpacked, the module not yet loaded: reload or reboot
    "driver-broken": "absent",  # a library that is being written
    "driver-not-found": "absent",  # the module comes before the libraries, or after them
    "no-nodes": "absent",  # nvidia-modprobe and udev come after the module
    "no-gpu": "absent",  # the module registers before it has seen its GPUs
    "no-mig-instances": "absent",  # they are being made
}
# Errors about one GPU, or a node that all share (nvidia-uvm is a module of its own, with a new major each
# time), that pass in the same way; what is lost or contradicts itself does not.
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
        # A driver that was just bound to its device has not yet made its nodes.
        "gpu-without-drm",
        "accel-without-node",
        # KFD's topology is rebuilt while a GPU's partitioning changes.
        "kfd-node-unusable",
        "partition-without-kfd",
        "partition-contradiction",
        "partition-missing",
    )
)
# Those of them that remove a GPU's partitions, so that the numbers of others move up, and back again.
_RENUMBERING_FINDINGS = frozenset(("partition-without-kfd", "partition-contradiction", "partition-missing"))
# The devices offered meanwhile are right, so the spec is written; NVML is asked again soon.
_RETRIED_FINDINGS = frozenset(("mig-names-kept", "mig-not-named"))


@frozen
class VendorStatus:
    """The state of one vendor, and why; ``offers``: whether it has devices to give now.

    ``awaits_change`` says that the host is expected to change, so that another look is due soon;
    ``transient`` names what is expected to change, also when that has been waited for long enough.
    """

    state: VendorState
    offers: bool
    awaits_change: bool = False
    transient: str = ""
    reason: str = ""
    hint: str = ""


def assess(
    failure: HostError | None,
    findings: tuple[Finding, ...] = (),
    *,
    patient: Callable[[str], bool],
    busy: str = "",
) -> VendorStatus:
    """Return the state of a vendor whose discovery failed with FAILURE, or gave FINDINGS.

    PATIENT(what) says whether a transient condition may still be waited for; BUSY names a package
    manager that is at work, or is empty.
    """
    if failure is not None:
        if failure.kind == "vendor-defect":
            # A failure of its code does not prove that any device has gone.
            return VendorStatus(state="degraded", offers=False, reason=failure.message, hint=failure.hint)
        transient = failure.kind if failure.kind in _TRANSIENT_ERRORS else ""
        awaits_change = bool(transient) and patient(transient)
        return VendorStatus(
            state="settling" if awaits_change else _TRANSIENT_ERRORS.get(failure.kind, "absent"),
            offers=False,
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
        awaits_change = bool(transient) and patient(transient)
        return VendorStatus(
            state=state if awaits_change else "degraded",
            # A name that will soon mean another device is worse than none.
            offers=not (awaits_change and not _RENUMBERING_FINDINGS.isdisjoint(rules)),
            awaits_change=awaits_change,
            transient=transient,
            reason=wrong[0].message,
            hint=wrong[0].hint,
        )
    if busy:
        awaits_change = patient(busy)
        return VendorStatus(
            state="settling" if awaits_change else "ready",
            # Half a driver is worse than a clear refusal by the runtime.
            offers=not awaits_change,
            awaits_change=awaits_change,
            transient=busy,
            reason=f"{busy} is at work" if awaits_change else "",
        )
    return VendorStatus(state="ready", offers=True)


# A whole spec names only what exists, of the running driver; with a broken one containers fail half-way, and
# without one the user gets the runtime's clear message ("unresolvable CDI devices").
ACTIONS: dict[tuple[VendorState, bool, SpecCondition], Action] = {
    # (state, offers, spec on disk): action
    ("ready", True, "none"): "write",
    ("ready", True, "whole"): "write",
    ("ready", True, "broken"): "write",
    ("degraded", True, "none"): "write",
    ("degraded", True, "whole"): "write",
    ("degraded", True, "broken"): "write",
    ("degraded", False, "none"): "nothing",
    ("degraded", False, "whole"): "keep",
    ("degraded", False, "broken"): "withdraw",
    # The devices present are better than nothing; the old spec is better than half of them.
    ("settling", True, "none"): "write",
    ("settling", True, "whole"): "keep",
    ("settling", True, "broken"): "write",
    ("settling", False, "none"): "nothing",
    ("settling", False, "whole"): "keep",
    ("settling", False, "broken"): "withdraw",
    # The old module runs: while the spec's files exist (in a view they do), containers can start.
    ("mismatch", False, "none"): "nothing",
    ("mismatch", False, "whole"): "keep",
    ("mismatch", False, "broken"): "withdraw",
    ("absent", False, "none"): "nothing",
    ("absent", False, "whole"): "withdraw",
    ("absent", False, "broken"): "withdraw",
}


def decide(standing: VendorStatus, disk: SpecCondition) -> Action:
    """Return what to do with a vendor's specs whose condition on the disk is DISK."""
    return ACTIONS[standing.state, standing.offers, disk]


# What a withdrawal becomes: (configured to keep, a foreign spec would take effect): action.
WITHDRAWALS: dict[tuple[bool, bool], Action] = {
    (False, False): "withdraw",
    # Runtimes would take the spec of the same kind in a directory of lower priority, which is as old or
    # older: ours stays, and an error says so.
    (False, True): "keep",
    (True, False): "keep",
    (True, True): "keep",
}
