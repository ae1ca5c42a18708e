"""What is found of other tools, and the steps from them to cdigen: ``Migration``."""

from __future__ import annotations

from cdigen.doctor.result import command_line
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.doctor.result import Remedy


@frozen
class Found:
    """Something of another tool.

    ``tool`` is its name, ``kind`` what was found: packages, programs, units, spec, runtime, hook or plugin;
    ``where``: the packages, units or paths.
    """

    tool: str
    kind: str
    where: tuple[str, ...]
    detail: str = ""

    def row(self) -> dict[str, Any]:
        """Return it as JSON shows it."""
        return {"tool": self.tool, "kind": self.kind, "where": list(self.where), "detail": self.detail}


@frozen
class Step:
    """One step of the way, after which everything works that worked before.

    ``commands`` do it, ``undo`` takes it back; what only a person can do stands in ``by_hand`` and
    ``undo_by_hand``, and comes after the commands.
    """

    name: str
    why: str
    commands: tuple[Remedy, ...] = ()
    by_hand: str = ""
    undo: tuple[Remedy, ...] = ()
    undo_by_hand: str = ""

    def row(self) -> dict[str, Any]:
        """Return it as JSON shows it."""
        return {
            "step": self.name,
            "why": self.why,
            "command": command_line(self.commands),
            "commands": [command.row() for command in self.commands],
            "by_hand": self.by_hand,
            "undo": command_line(self.undo),
            "undo_commands": [command.row() for command in self.undo],
            "undo_by_hand": self.undo_by_hand,
        }


@frozen
class Migration:
    """What is FOUND, the STEPS in the order in which nothing breaks, and what has to STAY, and why."""

    found: tuple[Found, ...]
    steps: tuple[Step, ...]
    stays: tuple[str, ...]
