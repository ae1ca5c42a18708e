"""Why a container must not start, and the cause under which that is counted: ``Refusal``."""

from __future__ import annotations

from cdigen.host.root import shown

# cause -> what it means; the causes are labels of a metric.
CAUSES = {
    "annotation": "an annotation is not a list of device names",
    "default_action": "a pod asks by annotation where the policy allows nothing (default_action: refuse)",
    "not_permitted": "the policy does not let this container have devices of that kind",
    "too_much": "more is asked for than a container can sensibly need",
    "malformed": "a variable holds what it cannot hold",
    "unknown_capability": "NVIDIA_DRIVER_CAPABILITIES names what no driver gives",
    "no_kind": "no kind of GPUs gives what NVIDIA_DRIVER_CAPABILITIES asks for",
    "unknown_device": "no spec in the spec directories defines the device",
    "requirement": "the driver or a GPU does not meet what the image requires",
    "requirement_malformed": "what the image requires cannot be read",
    "no_inventory": "what the image requires cannot be judged without a current inventory",
    "runtime": "the runtime drops or refuses CDI devices of plugins",
    "configuration": "the configuration of cdigen is wrong, so that nobody knows who may ask",
    "late": "what the host has could not be looked up in time",
    "defect": "cdigen has a defect",
    "raw_spec": "the runtime drops CDI devices, and the spec has what cannot be given in another way",
    "raw_node": "the runtime drops CDI devices, and the host has not the device node that the spec names",
}
_MOST = 80


class Refusal(Exception):
    """Say why a container is refused: ``cause`` is one of CAUSES, ``reason`` one line for people."""

    def __init__(self, cause: str, reason: str) -> None:
        super().__init__(reason)
        self.cause = cause
        self.reason = reason


def quote(text: str) -> str:
    """Return TEXT, which anybody may have written, in quotes, cut and fit for a line."""
    return f"'{shown(text if len(text) <= _MOST else f'{text[:_MOST]}...')}'"
