"""``with_nvidia_file`` adds the settings of NVIDIA's configuration file to the settings of cdigen."""

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
    """Return SETTINGS with the settings of NVIDIA's file, and findings on unsupported keys.

    ``nvidia_config`` in SETTINGS is the path of the file below HOST. If the file cannot be read, SETTINGS do
    not change, and a finding has the reason. At most MAX_FINDINGS + 1 findings are returned. Each message
    begins with the file, the line and the column of the key.
    """
    read, found = read_nvidia_file(host, settings)
    return read, tuple(replace(each, message=_with_place(each)) for each in found)


def read_nvidia_file(host: Root, settings: KubeletConfig) -> tuple[KubeletConfig, tuple[Finding, ...]]:
    """Return the same values as ``with_nvidia_file``, but without file, line and column in the messages."""
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
        found = (*found[:MAX_FINDINGS], _finding(path, f"{more} more findings are not listed", found[0].hint))
    return read, found


def _with_place(found: Finding) -> str:
    """Return the message of FOUND with file and line, as for an error in cdigen's own configuration."""
    return format_fault(replace(found, severity="error")) if found.place else found.message


def _finding(path: str, text: str, hint: str) -> Finding:
    return Finding(severity="error", rule=NVIDIA_RULE, path=path, message=text, hint=hint)
