"""What a container requests by its pod's annotations. Pure.

Semantics: NVIDIA's NRI plugin and the device injector of NRI's samples.
"""

from __future__ import annotations

from cdigen.nri.decision.refusal import Refusal
from cdigen.nri.decision.request import (
    MAX_DEVICES,
    MAX_TEXT,
    DeviceRequest,
    bounded,
    comma_list,
    qualified_request,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Whose annotations -> their names, the preferred first, and whether the value may be a list with commas.
# Each stands for itself, for /pod and for /container.NAME. The second of the device injector is its older
# one (containerd/nri, plugins/device-injector); NVIDIA's is a list with commas only.
PREFIXES = {
    "cdigen": ("devices.cdigen.dev",),
    "nvidia": ("nvidia.cdi.k8s.io",),
    "noderesource": ("cdi-devices.noderesource.dev", "cdi-devices.nri.io"),
}


def requesting_annotations(
    annotations: Mapping[str, str], container: str, readers: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Return the names of the annotations that ask for CONTAINER, each with whose it is (READERS)."""
    found = []
    for reader in readers:
        prefixes = PREFIXES[reader]
        candidates = [
            f"{prefix}{end}" for end in (f"/container.{container}", "/pod", "") for prefix in prefixes
        ]
        # The closest one counts alone, as with all that read them.
        name = next((name for name in candidates if name in annotations), "")
        if name:
            found.append((name, reader))
    return tuple(found)


def by_annotation(
    annotations: Mapping[str, str], container: str, readers: tuple[str, ...]
) -> tuple[DeviceRequest, ...]:
    """Return what the annotations ask for, without repetitions; raises Refusal."""
    items = []
    for name, reader in requesting_annotations(annotations, container, readers):
        text = annotations[name]
        if len(text) > MAX_TEXT:
            raise Refusal("annotation", f"the annotation {name} has more than {MAX_TEXT} characters")
        names = comma_list(text) if reader == "nvidia" else _listed(name, text, plain=reader == "cdigen")
        items += [qualified_request(device, f"annotation {name}") for device in names]
    return bounded(items)


def _listed(name: str, text: str, *, plain: bool) -> list[str]:
    """Return the items of a YAML list of texts; where PLAIN, names with commas between them will do.

    Events are read as they come, and the first that such a list does not have ends it: nothing nests.
    """
    if plain and not text.lstrip().startswith(("-", "[", "#")):
        return comma_list(text)
    import yaml  # noqa: PLC0415 - the registration need not wait for it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    items: list[str] = []
    wanted = {"StreamStartEvent", "DocumentStartEvent", "DocumentEndEvent", "StreamEndEvent"}
    wanted |= {"SequenceStartEvent", "SequenceEndEvent", "ScalarEvent"}
    lists = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            kind = type(event).__name__
            lists += kind == "SequenceStartEvent"
            if kind not in wanted or lists > 1 or (kind == "ScalarEvent" and not lists):
                break
            if isinstance(event, yaml.ScalarEvent):
                items.append(str(event.value))
            if len(items) > MAX_DEVICES * 4:
                raise Refusal("too_much", f"the annotation {name} lists more than {MAX_DEVICES} devices")
        else:
            if lists or not text.strip():
                return items
    except (yaml.YAMLError, ValueError):  # ValueError: what cannot be encoded for the parser
        raise Refusal("annotation", f"the annotation {name} is not YAML") from None
    raise Refusal("annotation", f"the annotation {name} is not a YAML list of device names")
