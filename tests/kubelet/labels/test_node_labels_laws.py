"""Laws of a node's labels for any GPUs and any configuration."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from support.kubelet.advertised_resources import h100, in_mig, with_gpus
from support.kubelet.labels import labels, some
from support.kubelet.resources import GPU

from cdigen.config import SharingRow
from cdigen.value import replace

if TYPE_CHECKING:
    from cdigen.model.inventory import Accelerator, Inventory

KINDS = ("product", "memory", "family", "compute.major", "compute.minor", "replicas", "sharing-strategy")
MODELS = st.one_of(
    st.sampled_from(("NVIDIA H100 80GB HBM3", "NVIDIA A30", "Tesla T4", "Tesla (T4)", "")),
    st.text(max_size=90),
)
PROFILES = st.sampled_from(("1g.10gb", "1g.10gb+me", "1c.3g.40gb", "7g.80gb"))


@st.composite
def hosts(draw: st.DrawFn) -> dict[str, Inventory]:
    gpus: list[Accelerator] = []
    for index in range(8):
        gpu = replace(
            h100(index),
            model=draw(MODELS),
            memory_mib=draw(st.sampled_from((None, 81559, 24576))),
            health=draw(st.sampled_from(("healthy", "unhealthy", "unknown"))),
        )
        profiles = draw(st.lists(PROFILES, max_size=3))
        gpus.append(in_mig(gpu, *profiles) if profiles else gpu)
    return with_gpus(*gpus)


SETTINGS = st.fixed_dictionaries(
    {
        "mig_strategy": st.sampled_from(("mixed", "single", "none")),
        "sharing": st.lists(
            st.builds(
                SharingRow,
                resource=st.sampled_from((GPU, "nvidia.com/mig-1g.10gb")),
                replicas=st.integers(min_value=1, max_value=4),
                devices=st.lists(st.sampled_from("01234567"), max_size=3).map(tuple),
                rename=st.sampled_from(("", "nvidia.com/gpu.shared")),
            ),
            max_size=3,
        ).map(tuple),
    }
)


@given(hosts(), SETTINGS)
def test_a_property_has_one_label_for_all_gpus_or_a_count_for_each_value(
    host: dict[str, Inventory], settings: dict[str, Any]
) -> None:
    found = labels(host, **settings)
    total = int(found.get(f"{GPU}.count", "0"))
    for kind in KINDS:
        name = f"{GPU}.{kind}"
        counted = some(found, f"{name}.")
        assert not (name in found and counted), name
        assert sum(map(int, counted.values())) <= total, name
        assert all(int(count) > 0 for count in counted.values())


@given(hosts())
def test_a_product_label_without_counts_exists_only_if_all_models_are_equal(
    host: dict[str, Inventory],
) -> None:
    found = labels(host)
    gpus = list(host["nvidia"].accelerators)
    models = Counter(gpu.model for gpu in gpus)
    if f"{GPU}.product" in found:
        assert len(models) == 1
    elif len(models) > 1:
        counts = some(found, f"{GPU}.product.")
        assert sum(map(int, counts.values())) <= len(gpus)
    assert found[f"{GPU}.count"] == str(len(gpus))


@given(hosts(), SETTINGS)
def test_the_order_and_the_health_of_gpus_do_not_change_the_labels(
    host: dict[str, Inventory], settings: dict[str, Any]
) -> None:
    gpus = host["nvidia"].accelerators
    reversed_order = replace(host["nvidia"], accelerators=tuple(reversed(gpus)))
    healthy = replace(host["nvidia"], accelerators=tuple(replace(gpu, health="healthy") for gpu in gpus))
    found = labels(host, **settings)
    assert labels({"nvidia": reversed_order}, **settings) == found
    assert labels({"nvidia": healthy}, **settings) == found


@given(hosts())
def test_each_mig_instance_is_counted_once(host: dict[str, Inventory]) -> None:
    found = labels(host)
    parts = Counter(
        part.profile.replace("+", ".") for gpu in host["nvidia"].accelerators for part in gpu.partitions
    )
    counts = {
        name.removeprefix("nvidia.com/mig-").removesuffix(".count"): int(value)
        for name, value in found.items()
        if name.startswith("nvidia.com/mig-") and name.endswith(".count")
    }
    assert counts == parts
