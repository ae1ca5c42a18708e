"""The context of the doctor's checks, without a command line."""

from __future__ import annotations

from typing import Any

from cdigen.config import Settings
from cdigen.doctor.context import Context, DoctorRequest
from cdigen.host.root import Root
from cdigen.pipeline.delivery import DEFAULT_DELIVERY
from cdigen.pipeline.generate import DEFAULT_OPTIONS
from cdigen.service.host_state import HostInventory
from cdigen.vendors.context import DiscoveryContext


def doctor_context(root: str = "/", **fields: Any) -> Context:
    """Return the context of a request for the host below ROOT, without vendors and services.

    FIELDS replace those of the request.
    """
    host = Root(root)
    request = {
        "host": host,
        "configuration": Settings(),
        "discovery_context": DiscoveryContext(host=host, driver=host, dev=host),
        "generate_options": DEFAULT_OPTIONS,
        "delivery_options": DEFAULT_DELIVERY,
        "vendors": (),
        "spec_dirs": (),
        "state_dir": "/nonexistent",
        "inventory": HostInventory,
        "daemon": lambda: (None, ""),
        "plugin": lambda: None,
        "restart": lambda _: (),
    }
    return Context(DoctorRequest(**{**request, **fields}))
