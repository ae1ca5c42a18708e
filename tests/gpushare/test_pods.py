from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kubernetes.gpu_memory_pods import MEMORY, RESOURCES, container, pod_object

from cdigen.gpushare.pods import read_pod, read_request


def request(*units: object, inits: tuple[dict[str, Any], ...] = ()) -> Any:
    return read_request(pod_object("p", *units, inits=inits)["spec"], RESOURCES)


def test_each_container_has_its_own_units() -> None:
    assert request(3, None, 2).by_container == ((0, 3), (2, 2))
    assert request(3, None, 2).total == 5


@pytest.mark.parametrize(
    ("inits", "units", "expected"),
    [
        ((container(5),), [3], 5),
        ((container(2),), [3, 1], 4),
        ((container(2, restartPolicy="Always"),), [3], 5),
        ((container(2, restartPolicy="Always"), container(4)), [3], 6),
        ((container(4), container(2, restartPolicy="Always")), [1], 4),
        ((container(None),), [3], 0),
    ],
)
def test_a_pod_with_requests_of_init_containers_needs_the_units_that_the_scheduler_computes(
    inits: tuple[dict[str, Any], ...], units: list[int], expected: int
) -> None:
    assert request(*units, inits=inits).on_one_gpu == expected


@pytest.mark.parametrize("amount", ["-1", "1.5", "x", "9e18", ["1"], None])
def test_an_invalid_amount_sets_the_problem_of_the_request(amount: object) -> None:
    spec = {"containers": [{"resources": {"limits": {MEMORY: amount}}}]}
    assert read_request(spec, RESOURCES).problem
    assert read_request(spec, RESOURCES).total == 0


def test_a_pod_without_a_request_is_ignored() -> None:
    assert read_pod(pod_object("p", None), RESOURCES) is None
    assert read_pod(pod_object("p", 0), RESOURCES) is None
    assert read_pod(pod_object("p", None), RESOURCES, any_request=True) is not None


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
def test_any_document_is_read_as_a_pod_or_raises_a_value_error(found: object) -> None:
    try:
        pod = read_pod(found, RESOURCES)
    except ValueError:
        return
    assert pod is None or pod.request.total or pod.request.problem
