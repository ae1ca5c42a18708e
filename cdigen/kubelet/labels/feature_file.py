"""The feature file of cdigen for Node Feature Discovery (NFD). No I/O.

NFD's customization guide, "Local feature source", describes the format. Lines ``name=value`` become labels of
the node until the time in ``# +expiry-time=``. NFD ignores a file of more than 64 KiB, and a file whose name
begins with a dot.
"""

from __future__ import annotations

from datetime import UTC, datetime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdigen.vendors.labels import Label


FOLDER = "/etc/kubernetes/node-feature-discovery/features.d"
MAX_BYTES = 64 << 10
# This number of the longest labels fits into MAX_BYTES. 16 GPUs that differ in every property have 200
# labels.
MAX_LABELS = 400
# The first line marks a file of cdigen.
_MARK = "# Written by cdigen kubelet, which replaces it at every change:"
_HEAD = f"{_MARK} 'kubelet: {{labels}}' in its configuration.\n"


def content(labels: Sequence[Label], expires_s: float) -> bytes:
    """Return the content of a file with LABELS, valid until the Unix time EXPIRES_S."""
    until = datetime.fromtimestamp(int(expires_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    lines = "".join(f"{name}={value}\n" for name, value in labels)
    return f"{_HEAD}# +expiry-time={until}\n{lines}".encode("ascii")


def bounded(labels: Sequence[Label]) -> tuple[Label, ...]:
    """Return at most MAX_LABELS of LABELS; labels with a count for each value are left out first."""
    # Labels with a count for each value have more dots in their names.
    first = sorted(labels, key=lambda label: (label[0].count("."), label))[:MAX_LABELS]
    kept = {name for name, _ in first}
    return tuple(label for label in labels if label[0] in kept)


def is_ours(data: bytes) -> bool:
    """Return whether DATA is the content of a file of cdigen."""
    return data.startswith(_MARK.encode("ascii"))
