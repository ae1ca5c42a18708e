"""Pods and containers as plain values."""

import pytest
from nri.nrihost import POD, container

from cdigen.nri.pods import ContainerMount, size_of
from cdigen.value import replace

LONG = "x" * 1000


def test_all_that_may_be_long_counts() -> None:
    here = container("A=B")
    small = size_of(POD, here)
    mount = ContainerMount(destination=LONG, source=LONG, type="bind", options=(LONG,))
    grown = [
        size_of(replace(POD, labels={LONG: ""}), here),
        size_of(replace(POD, labels={"a": LONG}), here),
        size_of(replace(POD, annotations={LONG: ""}), here),
        size_of(replace(POD, name=LONG), here),
        size_of(POD, replace(here, annotations={LONG: ""})),
        size_of(POD, replace(here, env=(LONG,))),
        size_of(POD, replace(here, devices=(LONG,))),
        size_of(POD, replace(here, cdi_devices=(LONG,))),
        size_of(POD, replace(here, mounts=(mount,))),
    ]
    assert all(size >= small + 900 for size in grown)


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_many_short_ones_count_as_well(field: str) -> None:
    many = replace(POD, **{field: {f"k{number}": "" for number in range(10_000)}})
    assert size_of(many, container()) > 1_000_000
