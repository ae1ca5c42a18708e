"""The labels of a node for inventories and a configuration: `labels`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.kubelet.advertised_resources import offered
from support.kubelet.nfd_worker import parse

from cdigen.config import KubeletConfig
from cdigen.kubelet.labels.label_file import content
from cdigen.kubelet.labels.node_labels import node_labels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.model.inventory import Inventory


def labels(
    inventories: Mapping[str, Inventory],
    *,
    machine: str = "",
    running: Mapping[str, str] | None = None,
    **settings: Any,
) -> dict[str, str]:
    """Return the labels that NFD makes for the resources of INVENTORIES with these SETTINGS."""
    found = offered(inventories, **settings)
    made, failures = node_labels(
        found.resources,
        inventories,
        running=running or {},
        mig_strategy=KubeletConfig(**settings).mig_strategy,
        machine=machine,
    )
    assert failures == ()
    assert dict(made) == parse(content(made, 2**33).decode())
    return dict(made)


def some(found: Mapping[str, str], start: str) -> dict[str, str]:
    """Return the labels of FOUND whose names begin with START; START is removed from the names."""
    return {name.removeprefix(start): value for name, value in found.items() if name.startswith(start)}
