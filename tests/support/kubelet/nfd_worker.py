"""The labels that Node Feature Discovery makes of its folder, according to its documentation: `labels_of`.

From NFD's customization guide, "Local feature source": lines ``<namespace>/<name>[=<value>]``, comments, the
directives ``+expiry-time``, ``+no-label`` and ``+no-feature``. NFD ignores dot files and files of more than
64 kB. If two files set one label, NFD uses the last file by name.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 64 * 1024
FOLDER = "etc/kubernetes/node-feature-discovery/features.d"
# The names and values that Kubernetes accepts (the documentation of labels, "Syntax and character set").
PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
WORD = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]")


def labels_of(folder: Path, now_s: float | None = None) -> dict[str, str]:
    """Return the labels that NFD makes of FOLDER at NOW_S, or now; AssertionError if a label is invalid."""
    found: dict[str, str] = {}
    for file in sorted(folder.iterdir()):
        if file.name.startswith(".") or not file.is_file() or file.stat().st_size > LIMIT:
            continue
        found |= parse(file.read_text(), now_s)
    return found


def parse(text: str, now_s: float | None = None) -> dict[str, str]:
    """Return the labels of one file."""
    now = datetime.now(UTC) if now_s is None else datetime.fromtimestamp(now_s, UTC)
    found: dict[str, str] = {}
    until, is_label = None, True
    for line in map(str.strip, text.splitlines()):
        if line.startswith("# +expiry-time="):
            until = datetime.fromisoformat(line.partition("=")[2])
            assert until.tzinfo is not None, "RFC 3339 has a zone"
        elif line.startswith("# +"):
            assert line in {"# +no-label", "# +no-feature"}, f"an unknown directive: {line}"
            is_label = is_label and line != "# +no-label"
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            if (until is None or now < until) and is_label:
                found[name] = value or "true"
            is_label = True
    for name, value in found.items():
        prefix, slash, rest = name.partition("/")
        assert slash, f"without a namespace: {name}"
        assert len(prefix) <= 253, name
        assert PREFIX.fullmatch(prefix), name
        assert WORD.fullmatch(rest), name
        assert WORD.fullmatch(value), f"{name}={value}"
    return found
