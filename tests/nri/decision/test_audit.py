"""Who asked and was missed, from a runtime's state in any order."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from support.nri.host import allowed
from support.nri.runtime import container, there
from support.nri.serving import known_of
from support.nri.synchronization import parts

from cdigen.config import NriConfig, Settings
from cdigen.nri.decision.answer import MARK
from cdigen.nri.decision.audit import AuditResult, audit
from cdigen.nri.decision.handover import SEAL
from cdigen.nri.wire.messages import read_synchronize
from cdigen.nri.wire.protobuf import message_class

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.nri.decision.context import DecisionContext

ALL = "NVIDIA_VISIBLE_DEVICES=all"


def found(context: DecisionContext, *messages: Any) -> AuditResult:
    """Return what there is to say of MESSAGES, requests of Synchronize, in this order."""
    return audit([read_synchronize(message.SerializeToString()) for message in messages], context)


def by(root: Path, **row: Any) -> DecisionContext:
    """Return what decisions on the host below ROOT know, by a policy of one ROW."""
    return known_of(root, Settings(nri=NriConfig(allow=allowed(**row))))


PRIVILEGED = {"devices": [{"allow": True, "access": "rwm"}]}


def part(*rows: Any) -> Any:
    kind, asked = message_class("SynchronizeRequest"), message_class("Pod")
    pods = [row.SerializeToString() for row in rows if isinstance(row, asked)]
    containers = [row.SerializeToString() for row in rows if not isinstance(row, asked)]
    return kind(pods=pods, containers=containers)


def names(findings: AuditResult) -> list[str]:
    return sorted(one.name.pod for one in findings.missed)


def test_a_container_that_comes_before_its_pod_is_found(known: DecisionContext) -> None:
    one, its = there(1, ALL)
    for messages in ([part(its), part(one)], [part(one), part(its)], [part(one, its)]):
        findings = found(known, *messages)
        assert names(findings) == ["pod-1"]
        assert findings.is_complete


@given(st.randoms(use_true_random=False), st.integers(1, 5))
def test_the_order_in_which_a_runtime_tells_its_state_changes_nothing(
    known: DecisionContext, chance: Any, count: int
) -> None:
    rows = [
        there(1, ALL),
        there(2, "NVIDIA_VISIBLE_DEVICES=77", "NVIDIA_REQUIRE_CUDA=cuda>=1"),
        there(3, ALL, annotations={MARK: "nvidia.com/gpu=all"}),
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
    findings = found(known, *[part(*flat[at : at + size]) for at in range(0, len(flat), size)])
    assert names(findings) == ["pod-1", "pod-10", "pod-2", "pod-6", "pod-8"]
    assert findings.foreign == ("nvidia.cdi.k8s.io",)
    assert findings.is_complete


def test_a_mark_that_came_with_a_checkpoint_or_from_the_pod_hides_no_container(
    known: DecisionContext,
) -> None:
    gpu = "nvidia.com/gpu=all"
    rows = [
        there(1, ALL, annotations={MARK: gpu, SEAL: "c1/1"}),
        # Restored while no plugin was there: the marks are those of the container that was saved.
        there(2, ALL, annotations={MARK: gpu, SEAL: "c1/1"}),
        # The runtime passes the pod's annotations on to its containers.
        there(3, ALL, annotations={MARK: gpu}),
        there(4, ALL, annotations={MARK: gpu, SEAL: "c4/1"}),
        # Of version 0.1, which writes no seal.
        there(5, ALL, annotations={MARK: gpu}),
    ]
    for asking, _ in rows[2:4]:
        asking.annotations[MARK] = gpu
    findings = found(known, part(*[row for pair in rows for row in pair]))
    assert names(findings) == ["pod-2", "pod-3"]
    assert [held.id for held in findings.given] == ["c1", "c4", "c5"]


def test_a_container_whose_devices_mounts_list_is_found(host_root: Path) -> None:
    mounts = [{"source": "/dev/null", "destination": "/var/run/nvidia-container-devices/0"}]
    rows = [
        *there(1, mounts=mounts),
        *there(2, mounts=[{**mounts[0], "source": "/dev/zero"}]),
        *there(3, ALL),
    ]
    for sources, missed in ((("mounts",), ["pod-1"]), (("environment",), ["pod-3"])):
        assert names(found(by(host_root, sources=sources), part(*rows))) == missed


def test_a_container_is_missed_by_a_row_for_privileged_ones_if_it_is_one(host_root: Path) -> None:
    rows = [*there(1, ALL), *there(2, ALL, linux={"resources": PRIVILEGED})]
    assert names(found(by(host_root, privileged=True), part(*rows))) == ["pod-2"]


def test_labels_that_the_policy_names_count_in_any_order(host_root: Path) -> None:
    context = by(host_root, labels=(("gpus", "yes"),))
    one, its = there(1, ALL)
    assert names(found(context, part(its), part(one))) == []
    one.labels["gpus"] = "yes"
    one.labels["long"] = "x" * 1000
    assert names(found(context, part(its), part(one))) == ["pod-1"]


def test_a_container_whose_pod_never_comes_makes_the_audit_incomplete(known: DecisionContext) -> None:
    assert not found(known, part(there(1, ALL)[1])).is_complete


def test_a_container_that_containerd_is_removing_leaves_the_audit_complete(known: DecisionContext) -> None:
    removed = container(pod_sandbox_id="", name="", env=[])
    findings = found(known, part(*there(1, ALL), removed))
    assert names(findings) == ["pod-1"]
    assert findings.is_complete


def test_a_container_that_was_served_needs_no_pod(known: DecisionContext) -> None:
    _, its = there(1, ALL, annotations={MARK: "nvidia.com/gpu=all"})
    assert found(known, part(its)).is_complete


def test_what_cannot_be_read_makes_the_audit_incomplete(known: DecisionContext) -> None:
    one, its = there(1, ALL)
    for field in ("pods", "containers"):
        broken = part(one, its)
        getattr(broken, field).append(b"\xff\xff\xff")
        findings = found(known, broken)
        assert names(findings) == ["pod-1"]
        assert not findings.is_complete


def test_five_thousand_pods_in_the_order_of_go_are_found(known: DecisionContext) -> None:
    env = [
        ALL,
        f"NVIDIA_REQUIRE_CUDA={'cuda>=1 ' * 200}",
        *[f"E{number}=" + "y" * 40 for number in range(20)],
    ]
    rows = [there(number, *env, namespace="ml" if number % 10 == 0 else "web") for number in range(5000)]
    for one, _ in rows:
        one.annotations["filler"] = "x" * 1500
        one.labels["app"] = "y" * 60
    pods = random.Random(1).sample([one for one, _ in rows], len(rows))
    messages = list(parts(pods, [its for _, its in rows], limit=4 << 20))
    assert len(messages) > 3
    findings = found(known, *messages)
    assert len(findings.missed) == 500
    assert findings.is_complete
