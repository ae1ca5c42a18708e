"""Settings with what NVIDIA's own configuration file says: ``with_nvidia_file``."""

from __future__ import annotations

from cdigen.config import format_fault
from cdigen.config.settings import MAX_SIZE
from cdigen.host.root import reason
from cdigen.kubelet.resources import nvidia_file
from cdigen.kubelet.resources.model import NVIDIA_RULE
from cdigen.model.findings import Finding
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.config import KubeletConfig
    from cdigen.host.root import Root

MAX_FINDINGS = 50


def with_nvidia_file(host: Root, settings: KubeletConfig) -> tuple[KubeletConfig, tuple[Finding, ...]]:
    """Return SETTINGS with what the file says that they name, below HOST, and what cdigen does not do of it.

    A file that cannot be read changes nothing, and is a finding. There are MAX_FINDINGS and one more at most.
    Messages begin with the place of what they are about.
    """
    read, found = read_nvidia_file(host, settings)
    return read, tuple(replace(each, message=_placed(each)) for each in found)


def read_nvidia_file(host: Root, settings: KubeletConfig) -> tuple[KubeletConfig, tuple[Finding, ...]]:
    """Return the same; places are beside the messages alone."""
    path = settings.nvidia_config
    if not path:
        return settings, ()
    try:
        data = host.read(path, limit=MAX_SIZE)
    except OSError as error:
        text = f"{host.outer_path(path)} cannot be read: {reason(error)}"
        return settings, (_finding(path, text, "correct 'kubelet: {nvidia_config}' or the file"),)
    read, found = nvidia_file.apply(settings, data, file=path)
    more = len(found) - MAX_FINDINGS
    if more > 0:
        found = (*found[:MAX_FINDINGS], _finding(path, f"and {more} more", found[0].hint))
    return read, found


def _placed(found: Finding) -> str:
    """Return the message of FOUND after its place, as that of a fault in cdigen's own configuration."""
    return format_fault(replace(found, severity="error")) if found.place else found.message


def _finding(path: str, text: str, hint: str) -> Finding:
    return Finding(severity="error", rule=NVIDIA_RULE, path=path, message=text, hint=hint)
