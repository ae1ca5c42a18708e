"""The check of the node's labels in the file that ``cdigen kubelet`` writes for Node Feature Discovery (NFD).

The check also reports other files with the same labels.
"""

from __future__ import annotations

import posixpath
from datetime import UTC, datetime

from cdigen.doctor.kubernetes.kubelet import PLUGIN, TOPIC, for_nodes, see
from cdigen.doctor.result import listed
from cdigen.host.root import reason, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

NODE_LABELS, OTHERS = "kubelet-node-labels", "kubelet-label-files"
# The state in status.json if cdigen has written the file (kubelet.labels.label_file).
_WRITTEN = "written"
# NFD ignores a file of more than _MAX_FILE bytes, and the labels below a line with a past expiry time
# (source/local/local.go).
_MAX_FILE, _MAX_FILES = 64 << 10, 1_000
_EXPIRY = "# +expiry-time="


def _node_labels(context: Context) -> Iterator[CheckResult]:
    """Report the state of the file with node labels, and other files with the same labels."""
    path = context.request.configuration.kubelet.labels
    status = context.node.status
    if not path or status is None:
        return
    state = status.get("labels")
    if not isinstance(state, dict):
        why = "its configuration or version differs from this command's"
        text = f"cdigen kubelet does not write {shown(path)}: {why}"
        yield TOPIC.warning(NODE_LABELS, see(text), because=(PLUGIN,))
        return
    names = frozenset(map(str, state.get("labels") or ()))
    cause, hint = str(state.get("reason", "")), str(state.get("hint", ""))
    if state.get("state") != _WRITTEN:
        text = f"the node has no labels of its devices: {cause}{hint and f'; {hint}'}"
        yield TOPIC.warning(NODE_LABELS, see(shown(text)))
        return
    left_out = state.get("left_out")
    more = f"; {left_out} more do not fit" if left_out else ""
    yield TOPIC.passed(NODE_LABELS, f"{shown(path)} has {len(names)} labels for NFD{more}")
    yield from _others(context, path, names)


def _others(context: Context, path: str, names: frozenset[str]) -> Iterator[CheckResult]:
    """Report other files in the folder of PATH that set some of NAMES; NFD uses the last file by name."""
    folder, own = posixpath.split(path)
    same: dict[str, str] = {}
    try:
        files = sorted(context.host.listdir(folder))[:_MAX_FILES]
    except OSError as error:
        yield TOPIC.skipped(OTHERS, f"{shown(folder)}: {reason(error)}")
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
        yield TOPIC.passed(OTHERS, f"no other file in {shown(folder)} sets cdigen's labels")
        return
    which = listed(f"{shown(name)} ({shown(label)})" for name, label in same.items())
    text = f"other files in {shown(folder)} set the same labels: {which}; NFD uses the last file by name"
    yield TOPIC.warning(OTHERS, see(text))


def _set_by(text: str) -> set[str]:
    """Return the names of the labels that TEXT, a feature file of NFD, sets at present."""
    names, is_expired = set(), False
    for line in text.splitlines():
        if line.startswith(_EXPIRY):
            is_expired = _is_past(line.removeprefix(_EXPIRY).strip())
        elif not is_expired:
            names.add(line.partition("=")[0].strip())
    return names


def _is_past(time: str) -> bool:
    try:
        return datetime.fromisoformat(time) <= datetime.now(UTC)
    except (ValueError, TypeError):  # not a time, or a time without a zone
        return False


CHECKS = (for_nodes(_node_labels),)
