"""A feature file of Node Feature Discovery: ``content``, and whether one is ours. Pure.

Its format: NFD's customization guide, "Local feature source". Lines ``name=value`` become labels of the node
as long as the time of ``# +expiry-time=`` has not come. A file of more than 64 KiB does not count at all, nor
does one whose name begins with a dot.
"""

from __future__ import annotations

from datetime import UTC, datetime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdigen.kubelet.labels.words import Label

FOLDER = "/etc/kubernetes/node-feature-discovery/features.d"
MAX_BYTES = 64 << 10
# So many have less than that, the longest there can be; 16 GPUs without anything alike make 200.
MAX_LABELS = 400
# By its first line a file is known as ours.
_MARK = "# Written by cdigen kubelet, and written anew at every change:"
_HEAD = f"{_MARK} 'kubelet: {{labels}}' in its configuration.\n"


def content(labels: Sequence[Label], expires_s: float) -> bytes:
    """Return the file with LABELS, until the Unix time EXPIRES_S."""
    until = datetime.fromtimestamp(int(expires_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    lines = "".join(f"{name}={value}\n" for name, value in labels)
    return f"{_HEAD}# +expiry-time={until}\n{lines}".encode("ascii")


def bounded(labels: Sequence[Label]) -> tuple[Label, ...]:
    """Return as many of LABELS as a file may have; those that count are left out before the others."""
    # What is counted by value has the longer names, with a dot for each part.
    first = sorted(labels, key=lambda label: (label[0].count("."), label))[:MAX_LABELS]
    kept = {name for name, _ in first}
    return tuple(label for label in labels if label[0] in kept)


def is_ours(data: bytes) -> bool:
    """Return whether DATA is such a file of ours."""
    return data.startswith(_MARK.encode("ascii"))
