"""The audit finds uninjected containers in the state of a runtime, whatever the order of the state."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from support.nri.host import allowed
from support.nri.runtime import container, there
from support.nri.serving import context_on
from support.nri.synchronization import parts

from cdigen.config import NriConfig, Settings
from cdigen.nri.decision.audit import AuditResult, audit
from cdigen.nri.decision.result.handover import INJECTED_INTO_ANNOTATION
from cdigen.nri.decision.result.injection import INJECTED_ANNOTATION
from cdigen.nri.wire.messages import CLASSES, read_synchronize

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.nri.decision.context import DecisionContext

ALL = "NVIDIA_VISIBLE_DEVICES=all"
DEVICE = "nvidia.com/gpu=all"


def marked(container: str) -> dict[str, str]:
    """Return the annotations of the injected CONTAINER."""
    return {INJECTED_ANNOTATION: DEVICE, INJECTED_INTO_ANNOTATION: f"{container}/1"}


def found(context: DecisionContext, *messages: Any) -> AuditResult:
    """Return the result of an audit of MESSAGES (Synchronize requests) in this order."""
    return audit([read_synchronize(message.SerializeToString()) for message in messages], context)


def by(root: Path, **row: Any) -> DecisionContext:
    """Return the context of decisions on the host below ROOT. The policy has one rule, with ROW."""
    return context_on(root, Settings(nri=NriConfig(allow=allowed(**row))))


PRIVILEGED = {"devices": [{"allow": True, "access": "rwm"}]}


def part(*rows: Any) -> Any:
    kind, pod = CLASSES["SynchronizeRequest"], CLASSES["Pod"]
    pods = [row.SerializeToString() for row in rows if isinstance(row, pod)]
    containers = [row.SerializeToString() for row in rows if not isinstance(row, pod)]
    return kind(pods=pods, containers=containers)


def names(findings: AuditResult) -> list[str]:
    return sorted(one.name.pod for one in findings.uninjected)


def test_a_container_reported_before_its_pod_is_found(context: DecisionContext) -> None:
    sandbox, created = there(1, ALL)
    for messages in (
        [part(created), part(sandbox)],
        [part(sandbox), part(created)],
        [part(sandbox, created)],
    ):
        findings = found(context, *messages)
        assert names(findings) == ["pod-1"]
        assert findings.is_complete


@given(st.randoms(use_true_random=False), st.integers(1, 5))
def test_the_order_of_the_runtimes_state_does_not_change_the_audit(
    context: DecisionContext, chance: Any, count: int
) -> None:
    rows = [
        there(1, ALL),
        there(2, "NVIDIA_VISIBLE_DEVICES=77", "NVIDIA_REQUIRE_CUDA=cuda>=1"),
        there(3, ALL, annotations=marked("c3")),
        there(4, ALL, namespace="other"),
        there(5, ALL, linux={"devices": [{"path": "/dev/nvidia0"}]}),
        there(6, ALL, linux={"devices": [{"path": "/dev/nvidia0"}], "resources": PRIVILEGED}),
        there(7, ALL, cdi_devices=[{"name": "k8s.gpu.nvidia.com/claim=x"}]),
        there(8),
        there(9, ALL, linux={"devices": [{"path": "/dev/dxg"}]}, mounts=[{"destination": "/x/libdxcore.so"}]),
        there(10, ALL, linux={"devices": [{"path": "/dev/dxg"}]}),
    ]
    rows[7][0].annotations["devices.cdigen.dev"] = "nvidia.com/gpu=0"
    rows[4][0].annotations["nvidia.cdi.k8s.io"] = "nvidia.com/gpu=0"
    flat = [row for pair in rows for row in pair]
    chance.shuffle(flat)
    size = -(-len(flat) // count)
    findings = found(context, *[part(*flat[at : at + size]) for at in range(0, len(flat), size)])
    assert names(findings) == ["pod-1", "pod-10", "pod-2", "pod-6", "pod-8"]
    assert findings.foreign_annotations == ("nvidia.cdi.k8s.io",)
    assert findings.is_complete


def test_the_audit_ignores_a_marker_that_was_copied_from_a_checkpoint_or_a_pod(
    context: DecisionContext,
) -> None:
    rows = [
        there(1, ALL, annotations=marked("c1")),
        # The container was restored, without a plugin, with the annotations of the saved container.
        there(2, ALL, annotations=marked("c1")),
        # The runtime copies the annotations of the pod to the container.
        there(3, ALL, annotations={INJECTED_ANNOTATION: DEVICE}),
        there(4, ALL, annotations=marked("c4")),
    ]
    for sandbox, _ in rows[2:4]:
        sandbox.annotations[INJECTED_ANNOTATION] = DEVICE
    findings = found(context, part(*[row for pair in rows for row in pair]))
    assert names(findings) == ["pod-2", "pod-3"]
    assert [injected.id for injected in findings.injected] == ["c1", "c4"]


def test_an_uninjected_container_whose_mounts_list_devices_is_found(host_root: Path) -> None:
    mounts = [{"source": "/dev/null", "destination": "/var/run/nvidia-container-devices/0"}]
    rows = [
        *there(1, mounts=mounts),
        *there(2, mounts=[{**mounts[0], "source": "/dev/zero"}]),
        *there(3, ALL),
    ]
    for sources, uninjected in ((("mounts",), ["pod-1"]), (("environment",), ["pod-3"])):
        assert names(found(by(host_root, sources=sources), part(*rows))) == uninjected


def test_a_rule_for_privileged_containers_applies_in_the_audit(host_root: Path) -> None:
    rows = [*there(1, ALL), *there(2, ALL, linux={"resources": PRIVILEGED})]
    assert names(found(by(host_root, privileged=True), part(*rows))) == ["pod-2"]


def test_the_labels_of_a_rule_apply_whatever_the_order_of_the_state(host_root: Path) -> None:
    context = by(host_root, labels=(("gpus", "yes"),))
    sandbox, created = there(1, ALL)
    assert names(found(context, part(created), part(sandbox))) == []
    sandbox.labels["gpus"] = "yes"
    sandbox.labels["long"] = "x" * 1000
    assert names(found(context, part(created), part(sandbox))) == ["pod-1"]


def test_a_container_without_a_pod_makes_the_audit_incomplete(context: DecisionContext) -> None:
    assert not found(context, part(there(1, ALL)[1])).is_complete


def test_a_container_that_containerd_is_removing_leaves_the_audit_complete(context: DecisionContext) -> None:
    removed = container(pod_sandbox_id="", name="", env=[])
    findings = found(context, part(*there(1, ALL), removed))
    assert names(findings) == ["pod-1"]
    assert findings.is_complete


def test_the_audit_is_complete_without_the_pod_of_an_injected_container(context: DecisionContext) -> None:
    _, created = there(1, ALL, annotations=marked("c1"))
    assert found(context, part(created)).is_complete


def test_invalid_state_makes_the_audit_incomplete(context: DecisionContext) -> None:
    sandbox, created = there(1, ALL)
    for field in ("pods", "containers"):
        broken = part(sandbox, created)
        getattr(broken, field).append(b"\xff\xff\xff")
        findings = found(context, broken)
        assert names(findings) == ["pod-1"]
        assert not findings.is_complete


def test_the_audit_finds_uninjected_containers_among_five_thousand_pods(context: DecisionContext) -> None:
    env = [
        ALL,
        f"NVIDIA_REQUIRE_CUDA={'cuda>=1 ' * 200}",
        *[f"E{number}=" + "y" * 40 for number in range(20)],
    ]
    rows = [there(number, *env, namespace="ml" if number % 10 == 0 else "web") for number in range(5000)]
    for sandbox, _ in rows:
        sandbox.annotations["filler"] = "x" * 1500
        sandbox.labels["app"] = "y" * 60
    pods = random.Random(1).sample([sandbox for sandbox, _ in rows], len(rows))
    messages = list(parts(pods, [created for _, created in rows], limit=4 << 20))
    assert len(messages) > 3
    findings = found(context, *messages)
    assert len(findings.uninjected) == 500
    assert findings.is_complete
