"""Device plugins of Kubernetes, which stay until cdigen serves their resources."""

from __future__ import annotations

from cdigen import page_url
from cdigen.doctor.migration.leftovers import GPUSHARE, TOOLKIT
from cdigen.host.root import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.migration.leftovers import Leftover

_SEE = page_url("how-to/migrate")
# Device plugin -> the commands that replace it, and the page with the steps.
_SUCCESSOR = ("'cdigen kubelet'", page_url("how-to/kubernetes/replace-device-plugins"))
_SUCCESSORS = {
    GPUSHARE: (
        "'cdigen kubelet' with 'cdigen extender'",
        page_url("how-to/kubernetes/share-gpu-memory"),
    )
}


def kept_for_plugins(
    plugins: tuple[Leftover, ...], found: tuple[Leftover, ...], *, needed: bool
) -> Iterator[str]:
    """Yield the reason to keep each of PLUGINS, and NVIDIA's toolkit if it is in FOUND and NEEDED."""
    for plugin in plugins:
        successor, page = _SUCCESSORS.get(plugin.tool, _SUCCESSOR)
        where = shown(plugin.where[0])
        yield (
            f"{plugin.tool} ({where}): pods that request its resource need it until {successor} replaces it "
            f"({page})"
        )
    if needed and any(one.tool == TOOLKIT for one in found):
        yield f"{TOOLKIT}, with its runtimes: the device plugin may need them ({_SEE})"
