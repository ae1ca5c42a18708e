"""Pure functions that read the device requests in the annotations of a pod.

The annotations have the same meaning as for NVIDIA's NRI plugin and for the device injector, a sample plugin
of NRI.
"""

from __future__ import annotations

from cdigen.nri.decision.request.device_request import (
    MAX_DEVICES,
    MAX_TEXT,
    DeviceRequest,
    comma_list,
    deduplicated,
    qualified_request,
)
from cdigen.nri.decision.request.refusal import InjectionRefusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# The annotations of each reader, in the order of preference. A reader is the plugin that introduced the
# annotations. An annotation name has no suffix, or the suffix /pod or /container.NAME. "noderesource" is the
# device injector (containerd/nri, plugins/device-injector). cdi-devices.nri.io is the older annotation of the
# device injector. All annotations except NVIDIA's can contain a YAML list.
PREFIXES = {
    "cdigen": ("devices.cdigen.dev",),
    "nvidia": ("nvidia.cdi.k8s.io",),
    "noderesource": ("cdi-devices.noderesource.dev", "cdi-devices.nri.io"),
}


def requesting_annotations(
    annotations: Mapping[str, str], container: str, readers: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Return the annotations with requests for CONTAINER, as pairs of annotation name and reader.

    READERS are the readers whose annotations are searched.
    """
    found = []
    for reader in readers:
        prefixes = PREFIXES[reader]
        candidates = [
            f"{prefix}{end}" for end in (f"/container.{container}", "/pod", "") for prefix in prefixes
        ]
        # Only the most specific annotation of a reader applies, as in the other plugins.
        name = next((name for name in candidates if name in annotations), "")
        if name:
            found.append((name, reader))
    return tuple(found)


def by_annotation(
    annotations: Mapping[str, str], container: str, readers: tuple[str, ...]
) -> tuple[DeviceRequest, ...]:
    """Return the requests for CONTAINER in ANNOTATIONS, without repetitions.

    Raise InjectionRefusal if an annotation is invalid.
    """
    items = []
    for name, reader in requesting_annotations(annotations, container, readers):
        text = annotations[name]
        if len(text) > MAX_TEXT:
            raise InjectionRefusal("annotation", f"the annotation {name} has more than {MAX_TEXT} characters")
        names = comma_list(text) if reader == "nvidia" else _yaml_list(name, text, plain=reader == "cdigen")
        items += [qualified_request(device, f"annotation {name}") for device in names]
    return deduplicated(items)


def _yaml_list(name: str, text: str, *, plain: bool) -> list[str]:
    """Return the device names in TEXT, the value of the annotation NAME.

    TEXT is a YAML list. If PLAIN is true, TEXT may also be names separated by commas. The parser stops at the
    first event that a flat list cannot have, so it reads no nested values. Raise InjectionRefusal if TEXT is
    invalid.
    """
    if plain and not text.lstrip().startswith(("-", "[", "#")):
        return comma_list(text)
    import yaml  # noqa: PLC0415 - the import would delay the registration

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    items: list[str] = []
    accepted = {"StreamStartEvent", "DocumentStartEvent", "DocumentEndEvent", "StreamEndEvent"}
    accepted |= {"SequenceStartEvent", "SequenceEndEvent", "ScalarEvent"}
    lists = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            kind = type(event).__name__
            lists += kind == "SequenceStartEvent"
            if kind not in accepted or lists > 1 or (kind == "ScalarEvent" and not lists):
                break
            if isinstance(event, yaml.ScalarEvent):
                items.append(str(event.value))
            if len(items) > MAX_DEVICES * 4:
                raise InjectionRefusal(
                    "too_much", f"the annotation {name} lists more than {MAX_DEVICES} devices"
                )
        else:
            if lists or not text.strip():
                return items
    except (yaml.YAMLError, ValueError):  # ValueError: the parser cannot encode the text
        raise InjectionRefusal("annotation", f"the annotation {name} is not YAML") from None
    raise InjectionRefusal("annotation", f"the annotation {name} is not a YAML list of device names")
