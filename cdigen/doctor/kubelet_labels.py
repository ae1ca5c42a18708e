"""The check of the node's labels: whether ``cdigen kubelet`` writes them, and nobody else the same ones."""

from __future__ import annotations

import posixpath
from datetime import UTC, datetime

from cdigen.doctor.kubelet import PLUGIN, TOPIC, for_nodes, see
from cdigen.doctor.result import listed
from cdigen.host.root import reason, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

NODE_LABELS, OTHERS = "kubelet-node-labels", "kubelet-label-files"
_QUESTION = 22
# As status.json has it (kubelet.labels.keeper).
_WRITTEN = "written"
# Of NFD: a larger file does not count (source/local/local.go), nor what comes after a time that is over.
_MAX_FILE, _MAX_FILES = 64 << 10, 1_000
_EXPIRY = "# +expiry-time="


def _node_labels(context: Context) -> Iterator[CheckResult]:
    """Report how the file of the node's labels stands, and which other file has the same labels."""
    path = context.request.configuration.kubelet.labels
    status = context.node.status
    if not path or status is None:
        return
    said = status.get("labels")
    if not isinstance(said, dict):
        text = f"cdigen kubelet does not write {shown(path)}: it runs by an older configuration, or version"
        yield TOPIC.warning(NODE_LABELS, see(text, _QUESTION), because=(PLUGIN,))
        return
    names = frozenset(map(str, said.get("labels") or ()))
    why, hint = str(said.get("reason", "")), str(said.get("hint", ""))
    if said.get("state") != _WRITTEN:
        text = f"the node has no labels of its devices: {why}{hint and f'; {hint}'}"
        yield TOPIC.warning(NODE_LABELS, see(shown(text), _QUESTION))
        return
    left_out = said.get("left_out")
    more = f"; {left_out} more have no room" if left_out else ""
    yield TOPIC.good(NODE_LABELS, f"{shown(path)} has {len(names)} labels for NFD{more}")
    yield from _others(context, path, names)


def _others(context: Context, path: str, names: frozenset[str]) -> Iterator[CheckResult]:
    """Report other files beside PATH that set some of NAMES, of which the last by name counts."""
    folder, own = posixpath.split(path)
    same: dict[str, str] = {}
    try:
        files = sorted(context.host.listdir(folder))[:_MAX_FILES]
    except OSError as error:
        yield TOPIC.unchecked(OTHERS, f"{shown(folder)}: {reason(error)}")
        return
    for name in files:
        if name == own or name.startswith("."):
            continue
        try:
            data = context.host.read(f"{folder}/{name}", limit=_MAX_FILE)
        except OSError:
            continue
        if both := names & _set_by(data.decode(errors="replace")):
            same[name] = min(both)
    if not same:
        yield TOPIC.good(OTHERS, f"no other file in {shown(folder)} has these labels")
        return
    which = listed(f"{shown(name)} ({shown(label)})" for name, label in same.items())
    text = f"other files in {shown(folder)} set the same labels, of which NFD takes the last by name: {which}"
    yield TOPIC.warning(OTHERS, see(text, _QUESTION))


def _set_by(text: str) -> set[str]:
    """Return the names of the labels that TEXT, a file of NFD's, sets now."""
    names, is_over = set(), False
    for line in text.splitlines():
        if line.startswith(_EXPIRY):
            is_over = _is_past(line.removeprefix(_EXPIRY).strip())
        elif not is_over:
            names.add(line.partition("=")[0].strip())
    return names


def _is_past(time: str) -> bool:
    try:
        return datetime.fromisoformat(time) <= datetime.now(UTC)
    except (ValueError, TypeError):  # no time, or one without a zone
        return False


CHECKS = (for_nodes(_node_labels),)
