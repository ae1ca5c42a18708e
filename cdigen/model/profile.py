"""A profile: which part of a driver one kind's specs hold."""

from __future__ import annotations

from cdigen.value import frozen


@frozen
class Profile:
    """What the kind ``<vendor>/<device_class>`` gives; no capabilities means all of them."""

    name: str
    device_class: str
    capabilities: tuple[str, ...] = ()

    def wants(self, capabilities: tuple[str, ...]) -> bool:
        """Return whether a thing that serves CAPABILITIES belongs into this profile's specs."""
        if not self.capabilities or not capabilities:
            return True
        return any(capability in self.capabilities for capability in capabilities)


DEFAULT = Profile(name="default", device_class="gpu")
