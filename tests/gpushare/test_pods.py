from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kubernetes.shared_pods import MEMORY, RESOURCES, container, pod_object

from cdigen.gpushare.pods import read_ask, read_pod


def ask(*units: object, inits: tuple[dict[str, Any], ...] = ()) -> Any:
    return read_ask(pod_object("p", *units, inits=inits)["spec"], RESOURCES)


def test_each_container_has_its_own_share() -> None:
    assert ask(3, None, 2).shares == ((0, 3), (2, 2))
    assert ask(3, None, 2).total == 5


@pytest.mark.parametrize(
    ("inits", "units", "together"),
    [
        ((container(5),), [3], 5),
        ((container(2),), [3, 1], 4),
        ((container(2, restartPolicy="Always"),), [3], 5),
        ((container(2, restartPolicy="Always"), container(4)), [3], 6),
        ((container(4), container(2, restartPolicy="Always")), [1], 4),
        ((container(None),), [3], 0),
    ],
)
def test_a_pod_with_asking_init_containers_needs_what_the_scheduler_counts(
    inits: tuple[dict[str, Any], ...], units: list[int], together: int
) -> None:
    assert ask(*units, inits=inits).together == together


@pytest.mark.parametrize("amount", ["-1", "1.5", "x", "9e18", ["1"], None])
def test_an_amount_that_nothing_can_serve_is_the_asks_problem(amount: object) -> None:
    spec = {"containers": [{"resources": {"limits": {MEMORY: amount}}}]}
    assert read_ask(spec, RESOURCES).problem
    assert read_ask(spec, RESOURCES).total == 0


def test_a_pod_that_asks_for_nothing_is_none_of_ours() -> None:
    assert read_pod(pod_object("p", None), RESOURCES) is None
    assert read_pod(pod_object("p", 0), RESOURCES) is None
    assert read_pod(pod_object("p", None), RESOURCES, is_any=True) is not None


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "spec", "status", "containers", "resources", "limits", MEMORY, "uid"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(ANYTHING)
def test_whatever_the_api_sends_is_a_pod_or_refused(found: object) -> None:
    try:
        pod = read_pod(found, RESOURCES)
    except ValueError:
        return
    assert pod is None or pod.ask.total or pod.ask.problem
