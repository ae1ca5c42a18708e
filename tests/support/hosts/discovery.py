"""Common steps of the tests of every vendor: an error of discovery, and the devices of specs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cdigen.model.errors import HostError
from cdigen.pipeline import generate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cdigen.host.root import Root
    from cdigen.model.inventory import Inventory
    from cdigen.model.profile import Profile


def refused(discover: Callable[[Path], Inventory], root: Path) -> HostError:
    """Return the error that ends a discovery; assert that it has one line and a hint."""
    with pytest.raises(HostError) as caught:
        discover(root)
    assert caught.value.message.isprintable()
    assert caught.value.hint
    return caught.value


def documents(host: Root, inventory: Inventory, *profiles: Profile) -> dict[str, dict[str, Any]]:
    """Return the checked specs of INVENTORY: kind -> spec."""
    options = generate.GenerateOptions(profiles=profiles) if profiles else generate.GenerateOptions()
    products, broken = generate.generate_specs({inventory.vendor: inventory}, host=host, options=options)
    assert broken == {}
    return {product.kind: product.document for product in products}


def node_paths(document: dict[str, Any]) -> dict[str, list[str]]:
    """Return the devices of a spec with the paths of their nodes in a container."""
    return {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
        for device in document["devices"]
    }
